"""Episodes of simulators on the host: a few advance together, several such groups run beside one another.

One call of a network serves a group; groups have a thread each (a simulator like MuJoCo lets others run while it
steps). The numbers depend neither on who shares a group nor on the number of cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from upside.envs.host import HostEnv
from upside.envs.simulator import Simulator
from upside.types import UserError

GROUP = 4
"""Episodes that advance together at most: more share a call of the network, fewer leave cores idle."""

Act = Callable[[int, np.ndarray], Any]
Over = Callable[[np.ndarray], bool]
"""Whether an episode is over at a state with these features."""
Segment = tuple[int, Act]
"""So many steps, and the actions of a group in step t of them."""


class Played(NamedTuple):
    """Episodes as they were executed, from the reset on."""

    obs: Float[np.ndarray, "n points obs"]
    features: Float[np.ndarray, "n points feat"]
    action: Float[np.ndarray, "n steps act"]
    terminated: np.ndarray


class Saved(NamedTuple):
    """The end of a node's skills in a simulator that repeats what it does."""

    state: tuple[np.ndarray, np.ndarray]
    steps: int
    obs: np.ndarray


def play(
    env: HostEnv,
    cores: int,
    number: int,
    segments: Callable[[np.ndarray], Sequence[Segment]],
    key: PRNGKeyArray,
    most: int | None = None,
    saved: Saved | None = None,
    look: Callable[[Simulator], None] | None = None,
    over: Over | None = None,
) -> Played:
    """`number` episodes, at most so many steps of each, from their reset on or from what was `saved`.

    `segments` says how a group acts; `look` is shown the simulator of the first at its end; where it is `over`,
    an episode stays.
    """
    words = np.asarray(jax.random.key_data(key)).tolist()
    seeds = np.random.SeedSequence(words).generate_state(number) % 2**31
    size = min(GROUP, -(-number // cores))
    groups = [np.arange(i, min(i + size, number)) for i in range(0, number, size)]

    def one(group: np.ndarray) -> Played:
        with env.simulators(group.size) as simulators:
            firsts = [
                _begin(simulator, int(seed), saved)
                for simulator, seed in zip(simulators, seeds[group], strict=True)
            ]
            played = _together(simulators, firsts, segments(group), most, env, over)
            if look is not None:
                look(simulators[0])
            return played

    if len(groups) == 1:  # in this thread: a picture can only be drawn where its window was made
        return one(groups[0])
    parts = _side_by_side(cores, one, groups)
    return Played(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))


def _begin(
    simulator: Simulator, seed: int, saved: Saved | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Observation and features of the first state; these are not saved, since nobody asks for them."""
    if saved is None:
        return simulator.reset(seed)[:2]
    simulator.restore(saved.state, saved.steps)
    return saved.obs, None


def _together(
    simulators: list[Simulator],
    firsts: Sequence[tuple[np.ndarray, np.ndarray | None]],
    segments: Sequence[Segment],
    most: int | None,
    env: HostEnv,
    ends_at: Over | None = None,
) -> Played:
    """One group of episodes, step by step, from their first observations and features (or none) on.

    Where one has ended, it stays: that state is absorbing. So it does where `ends_at` says that it has reached its
    goal; nobody looks at what would follow.
    """
    steps, n = sum(length for length, _ in segments), len(simulators)
    ends = steps if most is None else min(steps, most)
    obs = np.zeros((n, steps + 1, env.observation_size), np.float32)
    features = np.zeros((n, steps + 1, len(env.space.low)), np.float32)
    action = np.zeros((n, steps, env.action_size), np.float32)
    over, reached = np.zeros((n, steps), bool), np.zeros(n, bool)
    for i, (first, place) in enumerate(firsts):
        obs[i, 0], features[i, 0] = first, 0.0 if place is None else place
    at = 0
    for length, act in segments:
        for t in range(length if most is None else min(length, most - at)):
            if reached.all():
                obs[:, at + 1 :], features[:, at + 1 :] = obs[:, [at]], features[:, [at]]
                return Played(obs, features, action, over | (np.arange(steps) >= at))
            action[:, at] = act(t, obs[:, at])
            for i, simulator in enumerate(simulators):
                if at and over[i, at - 1]:
                    over[i, at] = True
                    if reached[i]:
                        action[i, at] = 0.0  # as where a whole group is cut
                    obs[i, at + 1], features[i, at + 1] = obs[i, at], features[i, at]
                    continue
                told = simulator.step(action[i, at])
                obs[i, at + 1], features[i, at + 1] = told.obs, told.features
                reached[i] = ends_at is not None and ends_at(told.features)
                over[i, at] = told.terminated or reached[i]
                if told.truncated and not told.terminated and at + 1 < ends:
                    raise UserError(
                        f"{env.name} cut an episode short after {at + 1} of {ends} steps: lift its "
                        f"time limit, or plan shorter episodes (--T, --H, --H-max {at + 1})"
                    )
            at += 1
    return Played(obs, features, action, over)


def _side_by_side(
    cores: int, play: Callable[[np.ndarray], Played], groups: Sequence[np.ndarray]
) -> list[Played]:
    """All groups, in threads; what goes wrong in one is said at once, though another one may not come back."""
    parts = [_threads(cores).submit(play, group) for group in groups]
    try:
        done, _ = wait(parts, return_when=FIRST_EXCEPTION)
        return [part.result() for part in parts if part in done]
    finally:
        for part in parts:
            part.cancel()


@functools.cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, "episodes")
