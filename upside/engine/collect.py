"""Trajectories from a node of the tree, for environments that live in JAX.

One compiled program serves every way of acting; which one is a traced number. Nothing after this
module knows where a `Trajectory` came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from upside.nets import Actor
from upside.skills.plan import Plan
from upside.types import Environment, Trajectory

POLICY, RANDOM, PROBE, LOOSE_PROBE = 0, 1, 2, 3
"""Ways of acting in the directed part: the skill's actor (plus noise), uniformly random actions
(K_initial), or an action held for a random while, then another (a probe). The first actions of probes
are spread evenly; those of loose ones are drawn independently."""


def host_key(*numbers: int) -> PRNGKeyArray:
    """The random key of these numbers, made on the host: nothing is dispatched or compiled for it."""
    words = np.random.SeedSequence(list(numbers)).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def walk(
    env: Environment,
    bank: Actor,
    path: Int[Array, " depth"],
    length: Int[Array, ""],
    T: int,
    key: PRNGKeyArray,
) -> tuple[Any, Float[Array, "points obs"]]:
    """Reset and follow the skills `path[:length]`, T noise-free steps each: where a node's episodes start.

    `length` is traced: deeper trees run longer and compile nothing. Also returns the observations
    passed through, padded with the last one.
    """
    state, obs = env.reset(_key(env, key, 0))
    trace = jnp.zeros((path.size * T + 1, obs.size)).at[0].set(obs)

    def step(t: Array, carry: tuple) -> tuple:
        state, obs, trace = carry
        actor = jax.tree.map(lambda leaf: leaf[path[t // T]], bank)
        out = env.step(state, actor(obs), _key(env, key, t + 1))
        return out.state, out.obs, trace.at[t + 1].set(out.obs)

    state, obs, trace = jax.lax.fori_loop(0, length * T, step, (state, obs, trace))
    passed = jnp.arange(trace.shape[0])[:, None] <= length * T
    return (state, obs), jnp.where(passed, trace, obs)


def _key(env: Environment, key: PRNGKeyArray, t: ArrayLike) -> PRNGKeyArray:
    """The environment's key of step t. One that ignores chance need not wait for a key to be mixed."""
    return key if env.deterministic else jax.random.fold_in(key, t)


def episode(
    env: Environment,
    plan: Plan,
    actor: Actor,
    start: tuple[Any, Array],
    mode: ArrayLike,
    uniform: Float[Array, "draws act"],
    noise: Float[Array, "T act"],
    key: PRNGKeyArray,
) -> Trajectory:
    """One episode from a node onwards: T directed steps, then H uniformly random ones (Sect. 3.1)."""
    direct_key, diffuse_key = (key, key) if env.deterministic else jax.random.split(key)
    # A probe changes its mind at a uniformly drawn step, half of the time not at all: a straight
    # ray finds open space, a bent one finds passages.
    switch = plan.T * (uniform[-1, 0] + 1.0)

    def directed(obs: Array, draw: tuple) -> Array:
        t, random, noise = draw
        held = jnp.where(t < switch, uniform[0], uniform[1])
        return jnp.select(
            [mode == POLICY, jnp.asarray(mode) >= PROBE], [actor.explore(obs, noise), held], random
        )

    draws = (jnp.arange(plan.T), uniform[: plan.T], noise)
    reached, first = act(env, start, directed, draws, direct_key)
    second = diffuse(env, reached, uniform[plan.T : -1], diffuse_key)
    after, action, terminated, truncated = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), first, second
    )
    obs = jnp.concatenate([start[1][None], after])
    return Trajectory(obs, action, terminated, truncated, jax.vmap(env.features)(after))


def diffuse(
    env: Environment, start: tuple[Any, Array], uniform: Float[Array, "H act"], key: PRNGKeyArray
) -> tuple[Array, ...]:
    """The diffusing part: a random walk with uniform actions (Sect. 3.1)."""
    return act(env, start, lambda _, action: action, uniform, key)[1]


def act(
    env: Environment,
    start: tuple[Any, Array],
    policy: Callable[[Array, Any], Array],
    draws: PyTree,
    key: PRNGKeyArray,
) -> tuple[Any, tuple[Array, ...]]:
    """One step per row of `draws`: the end, and (next obs, action, terminated, truncated) of each step."""

    def step(carry: tuple, draw: tuple) -> tuple[tuple, tuple]:
        (state, obs), (t, random) = carry, draw
        action = policy(obs, random)
        out = env.step(state, action, _key(env, key, t))
        return (out.state, out.obs), (out.obs, action, out.terminated, out.truncated)

    steps = jnp.arange(jax.tree.leaves(draws)[0].shape[0])
    return jax.lax.scan(step, start, (steps, draws))


def collect(
    env: Environment,
    plan: Plan,
    episodes: int,
    actors: Actor,
    starts: tuple[Any, Array],
    mode: ArrayLike,
    sigma: ArrayLike,
    key: PRNGKeyArray,
) -> Trajectory:
    """`episodes` of each stacked actor. `starts` has a leading axis of 1 or of all."""
    shape = (jax.tree.leaves(actors)[0].shape[0], episodes)
    uniform_key, normal_key, env_key = jax.random.split(key, 3)
    uniform = jax.random.uniform(
        uniform_key, (*shape, plan.steps + 1, env.action_size), minval=-1.0, maxval=1.0
    )
    spread = _spread(uniform[0, 0, 0], shape)
    uniform = jnp.where(mode == PROBE, uniform.at[:, :, 0].set(spread), uniform)
    noise = sigma * jax.random.normal(normal_key, (*shape, plan.T, env.action_size))
    one = shape[0] * shape[1]
    starts = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (one, *leaf.shape[1:])).reshape(
            *shape, *leaf.shape[1:]
        ),
        starts,
    )
    keys = (
        jnp.broadcast_to(env_key, shape) if env.deterministic else jax.random.split(env_key, shape)
    )
    run = lambda actor, *each: episode(env, plan, actor, each[0], mode, *each[1:])  # noqa: E731
    siblings = jax.vmap(jax.vmap(run, (None, 0, 0, 0, 0)))
    return siblings(actors, starts, uniform, noise, keys)


def _spread(first: Float[Array, " act"], shape: tuple[int, int]) -> Float[Array, "n e act"]:
    """Actions that fill the box evenly however few they are, from a random `first` one on.

    The additive sequence with steps φ⁻¹, …, φ⁻ᵈ, where φ is the positive root of φᵈ⁺¹ = φ + 1 (Roberts'
    R_d: the golden ratio for d = 1). The iteration below converges to it.
    """
    d = first.size
    phi = 2.0
    for _ in range(40):
        phi = (1 + phi) ** (1 / (d + 1))
    step = phi ** -jnp.arange(1.0, d + 1)
    index = jnp.arange(shape[0] * shape[1]).reshape(*shape, 1)
    return ((first + 1) / 2 + index * step) % 1 * 2 - 1
