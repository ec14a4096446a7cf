"""How episodes are executed: inside compiled programs, or on the host (design: two kinds of
environment, one Trajectory)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from upside.engine import collect
from upside.engine.compiled import QUICKER, compiled
from upside.engine.host import Host
from upside.engine.playing import Over
from upside.envs.host import HostEnv
from upside.nets import Actor
from upside.skills.plan import Plan
from upside.types import Environment, Trajectory, World


@runtime_checkable
class Rollouts(Protocol):
    """Episodes of one environment."""

    @property
    def inside(self) -> Chase | None:
        """Episodes of one chain in training as a part of a compiled program; None where they need the host."""
        ...

    @property
    def walks(self) -> int:
        """Episodes that a walk to a node takes; none where its end is computed once for all that follow."""
        ...

    def walk(
        self, T: int, bank: Actor, path: np.ndarray, length: Any, key: PRNGKeyArray
    ) -> tuple[Any, Any]:
        """Where the episodes of the node at the end of `path` start, and the features of what was passed.

        What comes first is for `collect`; its second part is the observation there, with a leading axis.
        """
        ...

    def collect(
        self,
        plan: Plan,
        episodes: int,
        actors: Actor,
        starts: Any,
        mode: Any,
        sigma: Any,
        wants: np.ndarray,
        steps: int,
        key: PRNGKeyArray,
    ) -> Trajectory:
        """The first `wants[i]` of `episodes` of each stacked actor, and of those the first `steps`.

        The rest may be anything.
        """
        ...

    def execute(
        self,
        T: int,
        H: int,
        episodes: int,
        bank: Actor,
        paths: np.ndarray,
        lengths: np.ndarray,
        key: PRNGKeyArray,
    ) -> Executed:
        """Chains of skills without noise, then H random steps."""
        ...

    def explore(
        self,
        T: int,
        horizon: int,
        episodes: int,
        bank: Actor,
        paths: np.ndarray,
        lengths: np.ndarray,
        noise: Float[Array | np.ndarray, "n episodes horizon act"],
        key: PRNGKeyArray,
    ) -> Seen:
        """Chains of skills with this noise on their actions, then random steps until the horizon."""
        ...

    def chase(
        self,
        T: int,
        actors: Actor,
        last: Any,
        noise: Any,
        noisy_from: Any,
        wanted: Any,
        keys: Any,
        *,
        over: Sequence[Over] | None = None,
    ) -> Seen:
        """Episodes of stacked chains in training, with noise from a stage on; none where nobody wants them.

        Where a chain's episode is `over` it may stay, if that is less work.
        """
        ...


Executed = tuple[Any, Any, Any, Any]
"""Observations and features along the skills, padded; then those of the random steps. Axes: policies, episodes, steps."""
Seen = tuple[Any, Any, Any]
"""Observations, features and actions of whole episodes, the first state included."""
Chase = Callable[..., Seen]
"""`Rollouts.chase` of a single chain that is wanted."""


class Device:
    """Episodes of an environment written in JAX."""

    walks = 0

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.walk = compiled("walk", self._walk, 0)
        self._collect = compiled("collect", self._collected, 0, 1)
        self.execute = compiled("execute", self._execute, 0, 1, 2)
        self.explore = compiled("explore", self._explore, 0, 1, 2)
        self.inside: Chase = self._chase
        self._chased = compiled("chase", self._chase_all, 0, options=QUICKER)  # as in training

    def _walk(
        self, T: int, bank: Actor, path: Int[Array, " depth"], length: Array, key: PRNGKeyArray
    ) -> tuple[Any, Array]:
        start, trace = collect.walk(self.env, bank, path, length, T, key)
        return jax.tree.map(lambda leaf: leaf[None], start), jax.vmap(self.env.features)(trace)

    def collect(
        self,
        plan: Plan,
        episodes: int,
        actors: Actor,
        starts: Any,
        mode: Any,
        sigma: Any,
        wants: np.ndarray,
        steps: int,
        key: PRNGKeyArray,
    ) -> Trajectory:
        """All of them: what is not wanted costs next to nothing."""
        return self._collect(plan, episodes, actors, starts, mode, sigma, key)

    def _collected(self, plan: Plan, episodes: int, *rest: Any) -> Trajectory:
        return collect.collect(self.env, plan, episodes, *rest)

    def _execute(
        self,
        T: int,
        H: int,
        episodes: int,
        bank: Actor,
        paths: Int[Array, "n depth"],
        lengths: Int[Array, " n"],
        key: PRNGKeyArray,
    ) -> Executed:
        env = self.env
        uniform_key, env_key = jax.random.split(key)
        shape = (paths.shape[0], episodes)
        uniform = jax.random.uniform(uniform_key, (*shape, H, env.action_size), minval=-1, maxval=1)
        keys = jax.random.split(env_key, (*shape, 2))

        def one(path: Array, length: Array, uniform: Array, keys: Any) -> tuple[Array, Array]:
            start, trace = collect.walk(env, bank, path, length, T, keys[0])
            return trace, collect.diffuse(env, start, uniform, keys[1])[0]

        walked, after = jax.vmap(jax.vmap(one, (None, None, 0, 0)))(paths, lengths, uniform, keys)
        return walked, self._features(walked), after, self._features(after)

    def _features(self, obs: Array) -> Array:
        return jnp.vectorize(self.env.features, signature="(o)->(f)")(obs)

    def _explore(
        self,
        T: int,
        horizon: int,
        episodes: int,
        bank: Actor,
        paths: Int[Array, "n depth"],
        lengths: Int[Array, " n"],
        noise: Float[Array, "n episodes horizon act"],
        key: PRNGKeyArray,
    ) -> Seen:
        env, shape = self.env, (paths.shape[0], episodes)
        uniform_key, env_key = jax.random.split(key)
        uniform = jax.random.uniform(
            uniform_key, (*shape, horizon, env.action_size), minval=-1, maxval=1
        )

        def one(path: Array, length: Array, *draws: Array) -> Seen:
            def act(obs: Array, draw: tuple) -> Array:
                t, random, noise = draw
                skill = path[jnp.minimum(t // T, path.size - 1)]
                actor = jax.tree.map(lambda leaf: leaf[skill], bank)
                return jnp.where(t < length * T, actor.explore(obs, noise), random)

            return self._whole(act, (jnp.arange(horizon), *draws[:-1]), draws[-1])

        keys = jax.random.split(env_key, shape)
        episodes_of = jax.vmap(one, (None, None, 0, 0, 0))
        return jax.vmap(episodes_of)(paths, lengths, uniform, noise, keys)

    def chase(self, T: int, *every: Any, over: Sequence[Over] | None = None) -> Seen:
        """To their planned ends, and those that nobody wants, too: nobody asks for many, they are chased `inside`."""
        return self._chased(T, *every)

    def _chase_all(self, T: int, *every: Any) -> Seen:
        """One chain after another."""
        *way, _, keys = every
        return jax.lax.map(lambda one: self._chase(T, *one), (*way, keys))

    def _chase(
        self,
        T: int,
        actors: Actor,
        last: Int[Array, ""],
        noise: Float[Array, "n steps act"],
        noisy_from: Int[Array, " n"],
        key: PRNGKeyArray,
    ) -> Seen:
        def episode(noise: Array, noisy_from: Array, key: PRNGKeyArray) -> Seen:
            def act(obs: Array, draw: tuple) -> Array:
                t, noise = draw
                now = jnp.minimum(t // T, last)
                actor = jax.tree.map(lambda leaf: leaf[now], actors)
                return actor.explore(obs, jnp.where(now >= noisy_from, noise, 0.0))

            return self._whole(act, (jnp.arange(noise.shape[0]), noise), key)

        return jax.vmap(episode)(noise, noisy_from, jax.random.split(key, noise.shape[0]))

    def _whole(self, act: Callable[[Array, Any], Array], draws: Any, key: PRNGKeyArray) -> Seen:
        """One episode from its reset on."""
        reset_key, step_key = jax.random.split(key)
        start = collect.first(self.env, reset_key)
        _, (after, action, _, _) = collect.act(self.env, start, act, draws, step_key)
        obs = jnp.concatenate([start[1][None], after])
        return obs, jax.vmap(self.env.features)(obs), action


class Chance(Device):
    """Where chance has a say, no two walks to a node end alike: every episode begins with its own."""

    walks = 1

    def _walk(
        self, T: int, bank: Actor, path: Int[Array, " depth"], length: Array, key: PRNGKeyArray
    ) -> tuple[Any, Array]:
        (_, obs, _), passed = super()._walk(T, bank, path, length, key)
        return ((bank, path, length), obs), passed

    def _collected(
        self, plan: Plan, episodes: int, actors: Actor, starts: Any, *rest: Any
    ) -> Trajectory:
        (*way, key), number = rest, jax.tree.leaves(actors)[0].shape[0] * episodes
        walk_key, key = jax.random.split(key)
        bank, path, length = starts[0]
        walk = lambda key: collect.walk(self.env, bank, path, length, plan.T, key)[0]  # noqa: E731
        places = jax.vmap(walk)(jax.random.split(walk_key, number))
        return super()._collected(plan, episodes, actors, places, *way, key)


@functools.lru_cache(maxsize=8)
def _device(env: Environment) -> Device:
    """One for all runs on an environment: they share its programs."""
    return Device(env) if env.deterministic else Chance(env)


def of(env: World, cores: int = 1) -> Rollouts:
    """How episodes of that environment are executed, on so many cores."""
    return Host(env, cores) if isinstance(env, HostEnv) else _device(env)
