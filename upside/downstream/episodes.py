"""Episodes of a chain of skills under a task: judged, stored, counted."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from upside.downstream.tasks import Task

NEVER = 10**6  # a stage that no episode has


class Episodes(NamedTuple):
    """Whole episodes; after `length` steps the task was over, or the time up."""

    obs: Float[Array, "*n points obs"]
    features: Float[Array, "*n points feat"]
    action: Float[Array, "*n steps act"]
    reward: Float[Array, "*n steps"]
    """0 from `length` on."""
    length: Int[Array, "*n"]
    over: Bool[Array, "*n"]
    """Ended by the task, not by the time."""


def judged(task: Task, obs: Array, features: Array, action: Array) -> Episodes:
    """One episode's reward and end."""
    steps = action.shape[0]
    reward, over = task(features[1:])
    length = jnp.where(over.any(), jnp.argmax(over) + 1, steps)
    reward = jnp.where(jnp.arange(steps) < length, reward, 0.0)
    return Episodes(obs, features, action, reward, length, over.any())


def discounted(episodes: Episodes, gamma: float) -> Float[Array, "*n"]:
    """Σ γᵗ r_t with t counted from 1: γ^τ for a goal that is reached with the τ-th step."""
    steps = episodes.reward.shape[-1]
    return episodes.reward @ gamma ** jnp.arange(1.0, steps + 1)


class Store(eqx.Module):
    """The best episode of one chain so far, and then the newest ones, in a ring."""

    episodes: Episodes
    size: Int[Array, ""]
    cursor: Int[Array, ""]
    """How many of the ring's episodes there have ever been."""

    def add(self, new: Episodes, gamma: float) -> Store:
        """The newest ones; the best of them also in the first place, if it is better than what is there."""
        ring, n = self.episodes.length.shape[0] - 1, new.length.shape[0]
        at = 1 + (self.cursor + jnp.arange(n)) % ring
        worth = discounted(new, gamma)
        first = jax.tree.map(lambda leaf: leaf[0], self.episodes)
        better = (self.size == 0) | (worth.max() > discounted(first, gamma))

        def put(old: Array, leaf: Array) -> Array:
            best = jnp.where(better, leaf[jnp.argmax(worth)], old[0])
            return old.at[at].set(leaf).at[0].set(best)

        episodes = jax.tree.map(put, self.episodes, new)
        size = 1 + jnp.minimum(self.cursor + n, ring)
        return Store(episodes, size, self.cursor + n)


def empty(capacity: int, steps: int, obs: int, feat: int, act: int) -> Store:
    episodes = Episodes(
        jnp.zeros((capacity, steps + 1, obs)),
        jnp.zeros((capacity, steps + 1, feat)),
        jnp.zeros((capacity, steps, act)),
        jnp.zeros((capacity, steps)),
        jnp.zeros(capacity, int),
        jnp.zeros(capacity, bool),
    )
    return Store(episodes, jnp.zeros((), int), jnp.zeros((), int))
