"""Trajectories from a node of the tree, for environments that live on the host.

Every episode is executed from its reset on, parents' skills included; where an environment starts every
episode alike and its state can be saved, those skills are executed once, and the state at their end is put
back (interactions count them every time). A network is multiplied with each observation by itself, so the
numbers do not depend on who shares a call of it (`engine/playing.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from upside.engine import collect
from upside.engine.collect import POLICY
from upside.engine.playing import Act, Over, Played, Saved, Segment, play
from upside.envs.host import HostEnv
from upside.nets import Actor
from upside.skills.plan import Plan
from upside.types import Trajectory


class Host:
    """Episodes of an environment on the host; see `engine.rollouts` for what each method is for."""

    walks = 1
    inside = None

    def __init__(self, env: HostEnv, cores: int = 1) -> None:
        self.env, self.cores = env, cores

    def walk(
        self, T: int, bank: Actor, path: np.ndarray, length: Any, key: PRNGKeyArray
    ) -> tuple[Any, np.ndarray]:
        stages = [_row(bank, int(z)) for z in path[: int(length)]]
        played, saved = self._walked(T, stages, key)
        return (stages, played.obs[:, -1], saved), played.features[0]

    def _walked(
        self, T: int, stages: list[Actor], key: PRNGKeyArray
    ) -> tuple[Played, Saved | None]:
        """One episode along these skills, and its end, if it can be put back."""
        ends: list[Any] = []
        look = (lambda simulator: ends.append(simulator.save())) if self.env.repeats else None
        segments = [(T, _follow(stage)) for stage in stages]
        played = play(self.env, self.cores, 1, lambda _: segments, key, look=look)
        known = ends and not played.terminated.any()
        return played, Saved(ends[0], T * len(stages), played.obs[0, -1]) if known else None

    def collect(
        self,
        plan: Plan,
        episodes: int,
        actors: Actor,
        starts: tuple[list[Actor], np.ndarray, Saved | None],
        mode: Any,
        sigma: Any,
        wants: np.ndarray,
        steps: int,
        key: PRNGKeyArray,
    ) -> Trajectory:
        n = len(wants)
        uniform, noise, env_key = _drawn(
            plan, (n, episodes), self.env.action_size, mode, sigma, key
        )
        uniform, noise = np.asarray(uniform), np.asarray(noise)
        wanted = np.argwhere(np.arange(episodes) < np.asarray(wants)[:, None])
        stages, _, saved = starts
        before = 0 if saved else plan.T * len(stages)

        def segments(group: np.ndarray) -> list[Segment]:
            slots, which = wanted[group].T
            mine = _row(actors, slots)
            random, shaken = uniform[slots, which], noise[slots, which]
            if mode == POLICY:
                directed = _each_its_own(mine, shaken)
            else:
                known = np.asarray(_planned(plan, mine, mode, random))
                directed = lambda t, _: known[:, t]  # noqa: E731
            prefix = [] if saved else [(plan.T, _follow(stage)) for stage in stages]
            return [*prefix, (plan.T, directed), (plan.H, lambda t, _: random[:, plan.T + t])]

        played = play(self.env, self.cores, len(wanted), segments, env_key, before + steps, saved)
        got = Trajectory(
            played.obs[:, before:],
            played.action[:, before:],
            played.terminated[:, before:],
            np.zeros_like(played.terminated[:, before:]),
            played.features[:, before + 1 :],
        )
        return jax.tree.map(lambda leaf: _placed(leaf, wanted, (n, episodes)), got)

    def execute(
        self,
        T: int,
        H: int,
        episodes: int,
        bank: Actor,
        paths: np.ndarray,
        lengths: np.ndarray,
        key: PRNGKeyArray,
    ) -> Any:
        longest, parts = T * int(max(lengths)), []
        for row, (path, length) in enumerate(zip(paths, lengths, strict=True)):
            own, end = jax.random.fold_in(key, row), T * int(length)
            played = self._executed(
                T, H, episodes, [_row(bank, int(z)) for z in path[:length]], own
            )
            for seen in (played.obs, played.features):
                passed, after = seen[:, : end + 1], seen[:, end + 1 :]
                fill = np.repeat(passed[:, -1:], longest - end, axis=1)
                parts += [np.concatenate([passed, fill], axis=1), after]
        return tuple(np.stack(parts[i::4]) for i in (0, 2, 1, 3))

    def _executed(
        self,
        T: int,
        steps: int,
        episodes: int,
        chain: list[Actor],
        key: PRNGKeyArray,
        most: int | None = None,
    ) -> Played:
        """Episodes along the skills without noise, then random steps; what can be put back is executed once."""
        walked, saved = self._walked(T, chain, key) if self.env.repeats else (None, None)
        if walked is None or saved is None:
            return self._chain_then_random(T, episodes, steps, chain, None, key, most)
        after = self._chain_then_random(T, episodes, steps, [], None, key, saved=saved)
        after = after._replace(obs=after.obs[:, 1:], features=after.features[:, 1:])
        way = (np.repeat(leaf, episodes, axis=0) for leaf in walked)
        return Played(*(np.concatenate(both, axis=1) for both in zip(way, after, strict=True)))

    def explore(
        self,
        T: int,
        horizon: int,
        episodes: int,
        bank: Actor,
        paths: np.ndarray,
        lengths: np.ndarray,
        noise: Any,
        key: PRNGKeyArray,
    ) -> Any:
        parts, noise = [], np.asarray(noise)
        for row, (path, length) in enumerate(zip(paths, lengths, strict=True)):
            own, left = jax.random.fold_in(key, row), horizon - T * int(length)
            chain = [_row(bank, int(z)) for z in path[:length]]
            if noise[row].any():
                played = self._chain_then_random(T, episodes, left, chain, noise[row], own, horizon)
            else:
                played = self._executed(T, left, episodes, chain, own, horizon)
            seen = (played.obs[:, : horizon + 1], played.features[:, : horizon + 1])
            parts.append((*seen, played.action[:, :horizon]))
        return tuple(map(np.stack, zip(*parts, strict=True)))

    def _chain_then_random(
        self,
        T: int,
        episodes: int,
        steps: int,
        chain: list[Actor],
        noise: np.ndarray | None,
        key: PRNGKeyArray,
        most: int | None = None,
        saved: Saved | None = None,
    ) -> Played:
        key, random_key = jax.random.split(key)
        random = np.asarray(_uniform((episodes, max(steps, 0), self.env.action_size), random_key))

        def segments(group: Any) -> list[Any]:
            follow = lambda k: _follow(chain[k])  # noqa: E731
            if noise is not None:
                follow = lambda k: _shaken(chain[k], noise[group, k * T :])  # noqa: E731
            stages = [(T, follow(k)) for k in range(len(chain))]
            return [*stages, (max(steps, 0), lambda t, _: random[group, t])]

        return play(self.env, self.cores, episodes, segments, key, most, saved)

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
    ) -> Any:
        def one(i: int) -> Any:
            ends = over[i] if over else None
            way = (_row(actors, i), int(last[i]), noise[i], noisy_from[i], keys[i])
            return self._chase_one(T, *way, ends)

        parts = [one(i) for i in np.flatnonzero(wanted).tolist()]
        found = tuple(map(np.stack, zip(*parts, strict=True)))
        where = np.flatnonzero(wanted)[:, None]
        return tuple(_placed(leaf, where, (len(wanted),)) for leaf in found)

    def _chase_one(
        self,
        T: int,
        actors: Actor,
        last: int,
        noise: Any,
        noisy_from: Any,
        key: PRNGKeyArray,
        over: Over | None,
    ) -> Any:
        n, horizon = noise.shape[:2]
        stage = np.minimum(np.arange(horizon) // T, last)
        shaken = np.where((stage >= np.asarray(noisy_from)[:, None])[..., None], noise, 0.0)

        def segments(group: np.ndarray) -> list[Segment]:
            ends = [min((k + 1) * T, horizon) for k in range(last)] + [horizon]
            return [
                (max(end - k * T, 0), _shaken(_row(actors, k), shaken[group, k * T :]))
                for k, end in enumerate(ends)
            ]

        played = play(self.env, self.cores, n, segments, key, over=over)
        return played.obs, played.features, played.action


def _placed(leaf: np.ndarray, wanted: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Episodes in their places among those that nobody wanted."""
    out = np.zeros((*shape, *leaf.shape[1:]), leaf.dtype)
    out[tuple(wanted.T)] = leaf
    return out


def _row(bank: Actor, index: int | np.ndarray) -> Actor:
    """As NumPy's arrays, so that no step of an episode has to ask JAX for its action."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], bank)


def _follow(actor: Actor) -> Act:
    return lambda _, obs: actor(obs[:, None])[:, 0]


def _shaken(actor: Actor, noise: np.ndarray) -> Act:
    return lambda t, obs: actor.explore(obs[:, None], noise[:, None, t])[:, 0]


def _each_its_own(actors: Actor, noise: np.ndarray) -> Act:
    """Stacked actors, each for one episode of a group."""
    each = jax.tree.map(lambda leaf: leaf[:, None] if leaf.ndim == 2 else leaf, actors)
    return _shaken(each, noise)


_drawn = jax.jit(collect.drawn, static_argnums=(0, 1, 2))


@functools.partial(jax.jit, static_argnums=0)
def _planned(plan: Plan, actors: Actor, mode: Array, uniform: Array) -> Array:
    """Every directed step of a group that follows no actor: nothing depends on what is observed."""
    one = jax.vmap(functools.partial(collect.direct, plan), (0, None, 0, 0, None, 0, 0))
    blind, still = jnp.zeros_like(actors.center), jnp.zeros(uniform.shape[::2])
    step = lambda t: one(actors, mode, uniform, blind, t, uniform[:, t], still)  # noqa: E731
    return jax.vmap(step, out_axes=1)(jnp.arange(plan.T))


@functools.partial(jax.jit, static_argnums=0)
def _uniform(shape: tuple[int, ...], key: PRNGKeyArray) -> Array:
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
