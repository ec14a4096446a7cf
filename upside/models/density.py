"""Where a skill has been lately: a multinomial over buckets (the paper's SMM, App. C)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from upside.types import Space


def cells(space: Space, features: Float[Array, "*b feat"]) -> Int[Array, "*b"]:
    """The bucket of each state, as a traced number; what is outside the box counts to its edge."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    size = jnp.asarray(space.buckets)
    at = jnp.clip(((features - low) / (high - low) * size).astype(int), 0, size - 1)
    strides = [math.prod(space.buckets[i + 1 :]) for i in range(len(space.buckets))]
    return at @ jnp.asarray(strides)


def fit(
    space: Space,
    states: Float[Array | np.ndarray, "n size feat"],
    counts: Int[Array | np.ndarray, " n"],
) -> Float[Array, "n buckets"]:
    """log ρ_z of each skill's recent states over all buckets, one pseudo-count each, relative to uniform."""
    total = math.prod(space.buckets)

    def one(states: Array, count: Array) -> Array:
        filled = (jnp.arange(states.shape[0]) < count).astype(float)
        seen = jnp.zeros(total).at[cells(space, states)].add(filled)
        return jnp.log((seen + 1.0) / (count + total)) + math.log(total)

    return jax.vmap(one)(jnp.asarray(states), jnp.asarray(counts))
