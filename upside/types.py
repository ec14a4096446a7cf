"""The words every other module speaks: environments, trajectories, errors a user can mend."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray


class UserError(Exception):
    """Something the user can mend. The command prints it as one line and exits with 2."""


@contextlib.contextmanager
def as_arguments() -> Iterator[None]:
    """In Python an error names arguments, where it would name the command's options: run_dir for --run-dir."""
    try:
        yield
    except UserError as error:
        argument = lambda option: option[1].replace("-", "_")  # noqa: E731
        said = re.sub(r"(?<![\w-])--([A-Za-z][\w-]*)", argument, str(error))
        raise UserError(said) from error.__cause__


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a registry: says what is near it and what there is."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from: {', '.join(known)}"
    return UserError(f"unknown {kind} '{name}': {hint}")


def usable_cores() -> list[int]:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def flag(name: str) -> str:
    """How a field is spelled on the command line."""
    return "--" + name.replace("_", "-")


def at_least(part: object, least: int, *names: str) -> None:
    """Refuse settings below `least`, which not-a-number is too."""
    for name in names:
        if not getattr(part, name) >= least:
            raise UserError(f"{flag(name)} {getattr(part, name)} is not at least {least}")


def at_most(part: object, most: int, *names: str) -> None:
    """Refuse settings above `most`."""
    for name in names:
        if not getattr(part, name) <= most:
            raise UserError(f"{flag(name)} {getattr(part, name)} exceeds {most}")


def number(name: str, value: Any, whole: bool = False) -> Any:
    """A number as Python's callers may give it, 1e6 for a whole one too."""
    kinds = (int, float, np.integer, np.floating)
    if isinstance(value, kinds) and not isinstance(value, bool):
        if not whole:
            return float(value)
        if float(value).is_integer():
            return int(value)
    raise UserError(f"{flag(name)} {value!r} is not a {'whole ' if whole else ''}number")


def numbers(name: str, values: Any, whole: bool = False) -> tuple[Any, ...]:
    """One such number, or several, as Python's callers may give them."""
    several = isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, str)
    return tuple(number(name, value, whole) for value in (values if several else (values,)))


class Step(NamedTuple):
    """What one step of an environment returns. `obs` is the true next observation, never a reset's."""

    state: Any
    obs: Float[Array, " obs"]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class Trajectory(NamedTuple):
    """Episodes from a node onwards: T directed steps, then H diffusing ones; leading axes are free.

    `obs` has one entry more than there are steps; `obs[t + 1]` is the true successor of `obs[t]`.
    `features` are those of `obs[1:]`, the states that were reached.
    """

    obs: Float[Array | np.ndarray, "*n points obs"]
    action: Float[Array | np.ndarray, "*n steps act"]
    terminated: Bool[Array | np.ndarray, "*n steps"]
    truncated: Bool[Array | np.ndarray, "*n steps"]
    features: Float[Array | np.ndarray, "*n steps feat"]


@dataclasses.dataclass(frozen=True)
class Space:
    """The box of the discriminator's features in which coverage is counted, cut into buckets."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    buckets: tuple[int, ...]

    @property
    def box(self) -> tuple[float, ...]:
        """Low and high of each feature, as `--box` has them."""
        return tuple(x for pair in zip(self.low, self.high, strict=True) for x in pair)

    @property
    def units(self) -> np.ndarray:
        """What counts as the same distance along each feature, the longest side's being 1.

        A position and a velocity have no common unit: the box says how far apart is far.
        """
        width = np.subtract(self.high, self.low)
        return (width / width.max()).astype(np.float32)

    def bucket(self, features: np.ndarray) -> np.ndarray:
        """Flat index of the bucket of each row of `features`, -1 outside the box."""
        features = np.asarray(features)
        low, high = np.asarray(self.low), np.asarray(self.high)
        inside = np.all((features >= low) & (features <= high), axis=-1)
        scaled = np.where(inside[..., None], (features - low) / (high - low), 0.0) * self.buckets
        cells = np.minimum(scaled.astype(int), np.asarray(self.buckets) - 1)
        flat = np.ravel_multi_index(tuple(np.moveaxis(cells, -1, 0)), self.buckets)
        return np.where(inside, flat, -1)

    def covered(self, features: np.ndarray) -> set[int]:
        """The buckets that any row of `features` lies in."""
        return set(np.unique(self.bucket(features)).tolist()) - {-1}


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a problem is, where that asks for other settings than a maze's (App. C)."""

    T: int
    H: int
    episode: int
    """H_max, steps of an episode."""
    hidden: int
    k_steps: int
    probe: Literal["held", "rhythm"]
    """What moves it: a held action, or a rhythm."""
    probes: int
    """Episodes that look for free space around a policy."""
    tries: int
    """How often new ground may be claimed in vain."""
    reprobes: int
    """How often probes are made anew before a run ends by itself: where the space has no end, until the budget is spent."""
    fresh: int
    """Noise-free episodes a round by which a policy is judged: noise may change everything that follows."""
    rehearsal: int
    """Updates of a new policy before its first rollout."""
    imitation: float
    """How much an actor imitates its best episode, at first the probe it claims."""
    snap: float
    """Actions beyond this are executed at their bound."""


@runtime_checkable
class World(Protocol):
    """What every environment has, wherever it lives. Actions are in [-1, 1]^action_size."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def observation_size(self) -> int: ...

    @property
    def action_size(self) -> int: ...

    @property
    def space(self) -> Space: ...

    def reachable(self) -> np.ndarray | None:
        """Which buckets can be reached at all, as a boolean per flat bucket; None if unknown."""
        ...


@runtime_checkable
class Environment(World, Protocol):
    """A functional environment in JAX: `reset` and `step` are traced, vmapped and hold no state.

    `deterministic` says that `reset` and `step` ignore their key; the engine may then compute a
    parent's end state once per expansion instead of walking to it anew for every episode.
    """

    @property
    def deterministic(self) -> bool: ...

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, " obs"]]: ...

    def step(self, state: Any, action: Float[Array, " act"], key: PRNGKeyArray) -> Step: ...

    def features(self, obs: Float[Array, " obs"]) -> Float[Array, " feat"]:
        """What the discriminator sees of an observation (and what coverage is counted on)."""
        ...
