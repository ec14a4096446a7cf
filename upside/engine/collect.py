"""Trajectories from a node of the tree, for environments that live in JAX.

One compiled program serves every way of acting; which one is a traced number. `engine/host.py` has
the same for environments that live on the host; nothing after these two knows where a `Trajectory`
came from.
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

POLICY, RANDOM, PROBE, LOOSE_PROBE, RHYTHM, LOOSE_RHYTHM = range(6)
"""Ways of acting in the directed part: the skill's actor (plus noise), uniformly random actions
(K_initial), or a probe: an action held for a random while, then another; or a rhythm. The first actions of
probes, and the phases of rhythms, are spread evenly; those of loose ones are drawn independently."""


Place = tuple[Any, Any, Any]
"""A state, its observation, and whether the environment has ended there."""


def host_key(*numbers: int) -> PRNGKeyArray:
    """The random key of these numbers, made on the host: nothing is dispatched or compiled for it."""
    return jax.random.wrap_key_data(jnp.asarray(words(*numbers)), impl="threefry2x32")


def words(*numbers: int) -> np.ndarray:
    """What that key is made of."""
    return np.random.SeedSequence(list(numbers)).generate_state(2)


def walk(
    env: Environment,
    bank: Actor,
    path: Int[Array, " depth"],
    length: Int[Array, ""],
    T: int,
    key: PRNGKeyArray,
) -> tuple[Place, Float[Array, "points obs"]]:
    """Reset and follow the skills `path[:length]`, T noise-free steps each: where a node's episodes start.

    `length` is traced: deeper trees run longer and compile nothing. Also returns the observations
    passed through, padded with the last one.
    """
    start = first(env, _key(env, key, 0))
    trace = jnp.zeros((path.size * T + 1, start[1].size)).at[0].set(start[1])

    def step(t: Array, carry: tuple) -> tuple:
        state, obs, over, trace = carry
        actor = jax.tree.map(lambda leaf: leaf[path[t // T]], bank)
        out = env.step(state, actor(obs), _key(env, key, t + 1))
        stay = lambda old, new: jnp.where(over, old, new)  # noqa: E731
        state, obs = jax.tree.map(stay, (state, obs), (out.state, out.obs))
        return state, obs, over | out.terminated, trace.at[t + 1].set(obs)

    *end, trace = jax.lax.fori_loop(0, length * T, step, (*start, trace))
    passed = jnp.arange(trace.shape[0])[:, None] <= length * T
    return tuple(end), jnp.where(passed, trace, end[1])


def first(env: Environment, key: PRNGKeyArray) -> Place:
    """Where every episode begins."""
    return (*env.reset(key), jnp.array(False))


def _key(env: Environment, key: PRNGKeyArray, t: ArrayLike) -> PRNGKeyArray:
    """The environment's key of step t. One that ignores chance need not wait for a key to be mixed."""
    return key if env.deterministic else jax.random.fold_in(key, t)


def episode(
    env: Environment,
    plan: Plan,
    actor: Actor,
    start: Place,
    mode: ArrayLike,
    uniform: Float[Array, "draws act"],
    noise: Float[Array, "T act"],
    key: PRNGKeyArray,
) -> Trajectory:
    """One episode from a node onwards: T directed steps, then H uniformly random ones (Sect. 3.1)."""
    direct_key, diffuse_key = (key, key) if env.deterministic else jax.random.split(key)
    directed = lambda obs, draw: direct(plan, actor, mode, uniform, obs, *draw)  # noqa: E731
    draws = (jnp.arange(plan.T), uniform[: plan.T], noise)
    reached, first = act(env, start, directed, draws, direct_key)
    second = diffuse(env, reached, uniform[plan.T : -1], diffuse_key)
    after, action, terminated, truncated = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), first, second
    )
    obs = jnp.concatenate([start[1][None], after])
    return Trajectory(obs, action, terminated, truncated, jax.vmap(env.features)(after))


def direct(
    plan: Plan,
    actor: Actor,
    mode: ArrayLike,
    uniform: Float[Array, "draws act"],
    obs: Float[Array, " obs"],
    t: Int[ArrayLike, ""],
    random: Float[Array, " act"],
    noise: Float[Array, " act"],
) -> Float[Array, " act"]:
    """The action of step t of the directed part."""
    # A probe changes its mind at a uniformly drawn step, half of the time not at all: a straight
    # ray finds open space, a bent one finds passages.
    mode, t = jnp.asarray(mode), jnp.asarray(t)
    switch = plan.T * (uniform[-1, 0] + 1.0)
    held = jnp.where(t < switch, uniform[0], uniform[1])
    # A rhythm moves legs: all actions swing between their bounds in one period, each in a phase of its own.
    period = jnp.maximum(plan.T * (0.2 + 0.1 * uniform[-1, 0]), 2.0)
    swing = jnp.sign(jnp.sin(2 * jnp.pi * t / period + jnp.pi * uniform[0]))
    probe = jnp.where(mode >= RHYTHM, swing, held)
    return jnp.select([mode == POLICY, mode >= PROBE], [actor.explore(obs, noise), probe], random)


def diffuse(
    env: Environment, start: Place, uniform: Float[Array, "H act"], key: PRNGKeyArray
) -> tuple[Array, ...]:
    """The diffusing part: a random walk with uniform actions (Sect. 3.1)."""
    return act(env, start, lambda _, action: action, uniform, key)[1]


def act(
    env: Environment,
    start: Place,
    policy: Callable[[Array, Any], Array],
    draws: PyTree,
    key: PRNGKeyArray,
) -> tuple[Place, tuple[Array, ...]]:
    """One step per row of `draws`: the end, and (next obs, action, terminated, truncated) of each step.

    Where the environment has ended, it stays: that state is absorbing.
    """

    def step(carry: tuple, draw: tuple) -> tuple[tuple, tuple]:
        (*before, over), (t, random) = carry, draw
        action = policy(before[1], random)
        out = env.step(before[0], action, _key(env, key, t))
        stay = lambda old, new: jnp.where(over, old, new)  # noqa: E731
        state, obs = jax.tree.map(stay, tuple(before), (out.state, out.obs))
        over = over | out.terminated
        return (state, obs, over), (obs, action, over, out.truncated)

    steps = jnp.arange(jax.tree.leaves(draws)[0].shape[0])
    return jax.lax.scan(step, start, (steps, draws))


def collect(
    env: Environment,
    plan: Plan,
    episodes: int,
    actors: Actor,
    starts: Place,
    mode: ArrayLike,
    sigma: ArrayLike,
    key: PRNGKeyArray,
) -> Trajectory:
    """`episodes` of each stacked actor. `starts` has a leading axis of 1 or of all."""
    shape = (jax.tree.leaves(actors)[0].shape[0], episodes)
    uniform, noise, env_key = drawn(plan, shape, env.action_size, mode, sigma, key)
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


def drawn(
    plan: Plan,
    shape: tuple[int, int],
    action_size: int,
    mode: ArrayLike,
    sigma: ArrayLike,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "n e draws act"], Float[Array, "n e T act"], PRNGKeyArray]:
    """What chance decides of episodes: uniform actions, noise, and a key for the environment."""
    mode = jnp.asarray(mode)
    uniform_key, normal_key, env_key = jax.random.split(key, 3)
    uniform = jax.random.uniform(
        uniform_key, (*shape, plan.steps + 1, action_size), minval=-1.0, maxval=1.0
    )
    spread = _spread(uniform[0, 0, 0], shape)
    even = (mode == PROBE) | (mode == RHYTHM)
    uniform = jnp.where(even, uniform.at[:, :, 0].set(spread), uniform)
    noise = jnp.asarray(sigma) * jax.random.normal(normal_key, (*shape, plan.T, action_size))
    return uniform, noise, env_key


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
