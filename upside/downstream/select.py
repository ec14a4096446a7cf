"""Which policy of a run is worth fine-tuning: the one that collects most (Sect. 4).

Every policy is rolled out N_explo times: its chain of directed skills, then its diffusing part, which
goes on until H_max. The paper leaves open for how long it diffuses here; a place that is unknown
is found more often the longer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from upside.downstream.episodes import Episodes, discounted, judged
from upside.downstream.tasks import Task
from upside.engine import collect
from upside.nets import Actor
from upside.run import Run
from upside.types import Environment


@dataclasses.dataclass(frozen=True)
class Choice:
    """The policy that collected most."""

    policy: int
    returns: np.ndarray
    """Mean discounted return of every policy."""
    episodes: Episodes
    """Those of the one chosen."""
    interactions: int
    """Of all policies together: episodes end where the task is over."""

    @property
    def found(self) -> bool:
        """Whether any policy was ever paid."""
        return bool(self.returns.max() > 0)


def explore(
    run: Run, episodes: int, horizon: int, seed: int, policies: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Observations and actions of `episodes` of every policy (or of some), root first; the same for every task."""
    where = map(jnp.asarray, run.paths(range(len(run)) if policies is None else policies))
    steps, key = run.method.plan.T, jax.random.key(seed)
    found = _explore(run.env, steps, horizon, episodes, run.actors, *where, key)
    return np.asarray(found[0]), np.asarray(found[1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _explore(
    env: Environment,
    T: int,
    horizon: int,
    episodes: int,
    bank: Actor,
    paths: Int[Array, "n depth"],
    lengths: Int[Array, " n"],
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    shape = (paths.shape[0], episodes)
    uniform_key, env_key = jax.random.split(key)
    uniform = jax.random.uniform(
        uniform_key, (*shape, horizon, env.action_size), minval=-1, maxval=1
    )

    def one(path: Array, length: Array, uniform: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        def act(obs: Array, draw: tuple) -> Array:
            t, random = draw
            skill = path[jnp.minimum(t // T, path.size - 1)]
            actor = jax.tree.map(lambda leaf: leaf[skill], bank)
            return jnp.where(t < length * T, actor(obs), random)

        reset_key, step_key = jax.random.split(key)
        start = env.reset(reset_key)
        draws = (jnp.arange(horizon), uniform)
        _, (after, action, _, _) = collect.act(env, start, act, draws, step_key)
        return jnp.concatenate([start[1][None], after]), action

    keys = jax.random.split(env_key, shape)
    return jax.vmap(jax.vmap(one, (None, None, 0, 0)))(paths, lengths, uniform, keys)


def choose(
    env: Environment,
    task: Task,
    gamma: float,
    obs: np.ndarray,
    action: np.ndarray,
    rng: np.random.Generator,
) -> Choice:
    """The policy with the largest mean discounted return; where none was paid, any of them."""
    every = _judge(env, task, jnp.asarray(obs), jnp.asarray(action))
    returns = np.asarray(discounted(every, gamma)).mean(axis=1)
    best = np.flatnonzero(returns == returns.max())
    policy = int(rng.choice(best))
    own = jax.tree.map(lambda leaf: leaf[policy], every)
    return Choice(policy, returns, own, int(np.asarray(every.length).sum()))


def as_it_is(run: Run, task: Task, policy: int, episodes: int, horizon: int, seed: int) -> Episodes:
    """Episodes of one policy."""
    obs, action = explore(run, episodes, horizon, seed, [policy])
    every = _judge(run.env, task, jnp.asarray(obs), jnp.asarray(action))
    return jax.tree.map(lambda leaf: leaf[0], every)


@functools.partial(jax.jit, static_argnums=0)
def _judge(env: Environment, task: Any, obs: Array, action: Array) -> Episodes:
    return jax.vmap(jax.vmap(lambda o, a: judged(env, task, o, a)))(obs, action)
