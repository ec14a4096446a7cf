"""Episodes of a chain of skills under a task: rolled out, stored, counted."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from upside.downstream.tasks import Task
from upside.engine import collect
from upside.nets import Actor
from upside.types import Environment

NEVER = 10**6  # a stage that no episode has


class Episodes(NamedTuple):
    """Whole episodes; after `length` steps the task was over, or the time up."""

    obs: Float[Array, "*n points obs"]
    action: Float[Array, "*n steps act"]
    reward: Float[Array, "*n steps"]
    """0 from `length` on."""
    length: Int[Array, "*n"]
    over: Bool[Array, "*n"]
    """Ended by the task, not by the time."""


def judged(env: Environment, task: Task, obs: Array, action: Array) -> Episodes:
    """One episode's reward and end."""
    steps = action.shape[0]
    reward, over = task(jax.vmap(env.features)(obs[1:]))
    length = jnp.where(over.any(), jnp.argmax(over) + 1, steps)
    reward = jnp.where(jnp.arange(steps) < length, reward, 0.0)
    return Episodes(obs, action, reward, length, over.any())


def discounted(episodes: Episodes, gamma: float) -> Float[Array, "*n"]:
    """Σ γᵗ r_t with t counted from 1: γ^τ for a goal that is reached with the τ-th step."""
    steps = episodes.reward.shape[-1]
    return episodes.reward @ gamma ** jnp.arange(1.0, steps + 1)


def stage(t: Array, last: Array, T: int) -> Array:
    """Which stage acts at step t: T steps each, the last one until the end."""
    return jnp.minimum(t // T, last)


def rollout(
    env: Environment,
    task: Task,
    actors: Actor,
    last: Int[Array, ""],
    T: int,
    noise: Float[Array, "steps act"],
    noisy_from: Int[Array, ""],
    key: PRNGKeyArray,
) -> Episodes:
    """One episode of a chain, with noise from stage `noisy_from` on."""
    reset_key, step_key = jax.random.split(key)

    def act(obs: Array, draw: tuple) -> Array:
        t, noise = draw
        now = stage(t, last, T)
        actor = jax.tree.map(lambda leaf: leaf[now], actors)
        return actor.explore(obs, jnp.where(now >= noisy_from, noise, 0.0))

    start = env.reset(reset_key)
    draws = (jnp.arange(noise.shape[0]), noise)
    _, (after, action, _, _) = collect.act(env, start, act, draws, step_key)
    return judged(env, task, jnp.concatenate([start[1][None], after]), action)


class Store(eqx.Module):
    """The newest episodes of one chain, in a ring."""

    episodes: Episodes
    size: Int[Array, ""]
    cursor: Int[Array, ""]

    def add(self, new: Episodes) -> Store:
        capacity, n = self.episodes.length.shape[0], new.length.shape[0]
        at = (self.cursor + jnp.arange(n)) % capacity
        episodes = jax.tree.map(lambda old, leaf: old.at[at].set(leaf), self.episodes, new)
        size = jnp.minimum(self.size + n, capacity)
        return Store(episodes, size, (self.cursor + n) % capacity)


def empty(capacity: int, steps: int, obs: int, act: int) -> Store:
    episodes = Episodes(
        jnp.zeros((capacity, steps + 1, obs)),
        jnp.zeros((capacity, steps, act)),
        jnp.zeros((capacity, steps)),
        jnp.zeros(capacity, int),
        jnp.zeros(capacity, bool),
    )
    return Store(episodes, jnp.zeros((), int), jnp.zeros((), int))
