"""Environments that live on the host: any Gymnasium environment with continuous actions.

An episode begins with `reset(seed=...)` and is executed to its planned end, or to the goal that it was for, so
nothing of a simulator has to be saved on disk: a run that resumes does the same episodes again (bodies that start
alike may begin where an episode before them was, in memory). Autoreset is never used;
the last observation of an episode is the true one. The time limit of an id is lifted.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.envs.features import Features, said
from upside.envs.simulator import Simulator, watched, words
from upside.types import Size, Space, UserError

if TYPE_CHECKING:
    import gymnasium

MOST_BUCKETS = 2500  # in all, where nobody said how many there should be
TOO_MANY = 10**7  # in all, whoever said so


class HostEnv:
    """A Gymnasium environment, as many copies of it as episodes run side by side.

    `make` builds one; `features` and the box say what is discriminated and covered. Actions are in
    [-1, 1], stretched to the environment's own bounds.
    """

    episodes = 10
    """As many of each policy measure a run: in JAX a hundred take no longer."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env],
        name: str,
        features: str | Callable[..., Any] | None = None,
        box: tuple[float, ...] | None = None,
        buckets: tuple[int, ...] | None = None,
        source: dict[str, Any] | None = None,
        size: Size | None = None,
        make_drawn: Callable[[], gymnasium.Env] | None = None,
        repeats: bool = False,
    ) -> None:
        """`source` is what `registered` was given, if it was made so; `size` asks for other settings.

        `make_drawn` builds one that can be rendered, where `make` does not. `repeats` is a promise: every episode
        starts alike, and MuJoCo's state is all that its next step depends on.
        """
        if not callable(make):
            raise UserError(
                f"{name}: give the class, or a function that makes one, in place of {make!r}: several "
                "episodes run side by side"
            )
        if not isinstance(name, str) or not name:
            raise UserError(f"the name of an environment is a word, not {name!r}")
        self.name, self._make, self.source, self.size = name, make, source, size
        self._make_drawn = make_drawn
        self._idle: list[gymnasium.Env] = []
        self._lock = threading.Lock()
        self._made: weakref.WeakValueDictionary[int, gymnasium.Env] = weakref.WeakValueDictionary()
        env = self._new()
        self.observation_size, self.action_size = _sizes(env, name)
        bounds: Any = env.action_space
        low, high = (side.ravel().astype(np.float64) for side in (bounds.low, bounds.high))
        self.middle, self.half = (high + low) / 2, (high - low) / 2
        if callable(features):
            self.features_of = Features(
                "function", (getattr(features, "__name__", "own"),), features
            )
        else:
            self.features_of = Features.parse(
                _every_entry(env, name) if features is None else features
            )
        self.space = self._space(env, box, buckets)
        if self.source is not None:  # an id's own bounds may change with its version
            said_so = {
                "features": str(self.features_of),
                "box": self.space.box,
                "buckets": self.space.buckets,
            }
            self.source = {**self.source, **said_so}
        self.repeats = repeats
        """Whether every episode starts alike in a MuJoCo simulator, whose state can be saved and put back."""
        self._idle.append(env)

    def __eq__(self, other: object) -> bool:
        same = (
            isinstance(other, HostEnv) and self.source is not None and self.source == other.source
        )
        return self is other or same

    def __hash__(self) -> int:
        return hash((self.name, self.space, str(self.features_of)))

    def __repr__(self) -> str:
        return f"HostEnv({self.name!r}, {self.features_of}, {self.space})"

    def reachable(self) -> None:
        """Nobody knows."""

    @property
    def discriminator_features(self) -> str:
        return str(self.features_of)

    @property
    def feature_names(self) -> list[str]:
        """As a picture's axes have them."""
        kind, names = self.features_of.source, self.features_of.names
        if len(names) != len(self.space.low):
            return [f"{names[0]} {i}" for i in range(len(self.space.low))]
        return [f"observation {name}" for name in names] if kind == "obs" else list(names)

    def _new(self) -> gymnasium.Env:
        import gymnasium

        begin = time.monotonic()
        try:
            with watched([lambda: (begin, f"{self.name}: to make one")]):
                env = self._make()
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(f"{self.name} cannot be made: {said(error)}") from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{self.name}: {env!r} was made, which is no gymnasium.Env")
        inner = env.unwrapped  # under new wrappers there may be an old one
        if self._made.get(id(inner)) is inner:
            raise UserError(
                f"{self.name}: the same object was made twice: make a new one each time"
            )
        self._made[id(inner)] = inner
        return env

    def _space(
        self,
        env: gymnasium.Env,
        box: tuple[float, ...] | None,
        buckets: tuple[int, ...] | None,
    ) -> Space:
        """The box of the features: as given, or the observation's bounds where it has them.

        One step is tried too: what cannot be played is refused before anything is written.
        """
        tried = Simulator(self, env)
        with watched([tried.doing]):
            seen = tried.reset(0).features
            tried.step(np.zeros(self.action_size, np.float32))
        if box is None:
            box = self._bounds(env)
        if len(box) != 2 * seen.size:
            raise UserError(
                f"--box {words(box)} has {len(box)} numbers, {self.features_of} needs {2 * seen.size}: "
                "low and high of each feature"
            )
        low, high = tuple(map(float, box[::2])), tuple(map(float, box[1::2]))
        if not all(
            math.isfinite(a) and math.isfinite(b) and a < b for a, b in zip(low, high, strict=True)
        ):
            raise UserError(
                f"--box {words(box)}: every low must be below its high, and both finite"
            )
        if not np.all((np.asarray(low) <= seen) & (seen <= np.asarray(high))):
            raise UserError(
                f"--box {words(box)}: an episode starts at {words(seen)}, outside it; low and high of each "
                "feature must be around what is to be covered"
            )
        if buckets is None:
            buckets = (min(50, int(MOST_BUCKETS ** (1 / seen.size))),) * seen.size
        each = tuple(buckets) * (seen.size if len(buckets) == 1 else 1)
        if len(each) != seen.size or min(each) < 1:
            raise UserError(f"--buckets {words(buckets)}: give {seen.size} numbers above 0, or one")
        if math.prod(each) > TOO_MANY:
            raise UserError(
                f"--buckets {words(buckets)} are {math.prod(each):,} in all: give fewer, at most {TOO_MANY:,}"
            )
        return Space(low, high, each)

    def _bounds(self, env: gymnasium.Env) -> tuple[float, ...]:
        space: Any = env.observation_space
        if self.features_of.source == "obs":
            entries = [int(name) for name in self.features_of.names]
            low, high = space.low.ravel()[entries], space.high.ravel()[entries]
            if np.all(np.isfinite(low)) and np.all(np.isfinite(high)):
                return tuple(float(x) for pair in zip(low, high, strict=True) for x in pair)
        raise UserError(
            f"{self.features_of} of {self.name} has no bounds of its own: say where coverage is counted, "
            "with --box low,high for each feature, such as --box=-10,10,-10,10"
        )

    def filmed(self, frames: list[np.ndarray]) -> HostEnv:
        """The same environment, which puts a picture of every state into `frames`."""

        def make() -> gymnasium.Env:
            camera = _camera(self._make_drawn() if self._make_drawn else self._make(), frames)
            if camera.render_mode != "rgb_array":
                how = (
                    "its id has no render_mode 'rgb_array'"
                    if self.source
                    else "make it with render_mode='rgb_array'"
                )
                raise UserError(f"{self.name} draws nothing: {how}")
            return camera

        features = self.features_of.function or str(self.features_of)
        twin = HostEnv(make, self.name, features, self.space.box, self.space.buckets)
        frames.clear()
        return twin

    def close(self) -> None:
        """End the copies that are idle."""
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def simulators(self, number: int) -> Iterator[list[Simulator]]:
        """So many copies for a while. One that failed is not used again."""
        with self._lock:
            mine = [self._idle.pop() for _ in range(min(number, len(self._idle)))]
        mine += [self._new() for _ in range(number - len(mine))]
        mine_now = [Simulator(self, env, len(self.space.low)) for env in mine]
        try:
            with watched([one.doing for one in mine_now]):
                yield mine_now
        except BaseException:
            for env in mine:  # in the middle of an episode: not to be used again
                env.close()
            raise
        with self._lock:
            self._idle += mine


def _camera(env: gymnasium.Env, frames: list[np.ndarray]) -> gymnasium.Env:
    """An environment that is looked at after its reset and every step."""
    import gymnasium

    class Camera(gymnasium.Wrapper):
        def reset(self, **options: Any) -> Any:
            told = self.env.reset(**options)
            frames[:] = [self._look()]
            return told

        def step(self, action: Any) -> Any:
            told = self.env.step(action)
            frames.append(self._look())
            return told

        def _look(self) -> np.ndarray:
            return np.asarray(self.env.render())

    return Camera(env)


def _sizes(env: gymnasium.Env, name: str) -> tuple[int, int]:
    """Numbers in an observation and in an action; anything but boxes of numbers is refused."""
    from gymnasium.spaces import Box

    seen, done = env.observation_space, env.action_space
    if not isinstance(done, Box) or not np.issubdtype(done.dtype, np.floating):
        raise UserError(
            f"{name} has actions {done}: only continuous ones (a Box of floats) can be learned; wrap it "
            "so that it has such, or choose another environment"
        )
    if not np.prod(done.shape):
        raise UserError(
            f"{name} has actions {done} without a number in them: nothing can be learned"
        )
    if not (np.isfinite(done.low).all() and np.isfinite(done.high).all()):
        raise UserError(f"{name} has actions without bounds, {done}: give its action_space some")
    width = done.high.astype(np.float64) - done.low.astype(np.float64)
    if (width > np.finfo(np.float32).max).any():
        raise UserError(
            f"{name} has actions in {done}: too wide to be searched, scale its action_space"
        )
    if not isinstance(seen, Box):
        raise UserError(
            f"{name} has observations {seen}: wrap it in gymnasium.wrappers.FlattenObservation, in what its id "
            "makes or in what upside.environment is given"
        )
    return int(np.prod(seen.shape)), int(np.prod(done.shape))


def _every_entry(env: gymnasium.Env, name: str) -> str:
    """All of a small observation. Of a large one, somebody has to say what matters."""
    size = int(np.prod(env.observation_space.shape))  # type: ignore[arg-type]
    if size > 3:
        raise UserError(
            f"{name} has observations of {size} numbers: say which of them tell places apart, with "
            "--discriminator-features obs:0,1 or info:x_position,y_position"
        )
    return "obs:" + ",".join(map(str, range(size)))


def _quiet() -> None:
    """MuJoCo writes its warnings into a file in the working directory; ours go where Python's go.

    Gymnasium's own models use an attribute that MuJoCo has begun to deprecate: nothing a user can mend. And
    Gymnasium warns of ids that have a newer version: the user has asked for this one.
    """
    import gymnasium

    gymnasium.logger.min_level = max(gymnasium.logger.min_level, gymnasium.logger.ERROR)
    try:
        import mujoco
    except ImportError:  # said when the environment is made
        return

    def heard(message: str) -> None:
        if "deprecated" not in message:
            warnings.warn(f"MuJoCo: {message}", stacklevel=2)

    mujoco.set_mju_user_warning(heard)


def registered(
    gym_id: str,
    features: str | None = None,
    box: tuple[float, ...] | None = None,
    buckets: tuple[int, ...] | None = None,
    name: str | None = None,
    size: Size | None = None,
    repeats: bool = False,
    **options: Any,
) -> HostEnv:
    """An environment by its Gymnasium id, `module:Env-v0` included; `options` go to its constructor."""
    import gymnasium

    _quiet()

    def make(**more: Any) -> gymnasium.Env:
        try:
            return gymnasium.make(
                gym_id, max_episode_steps=-1, disable_env_checker=True, **options, **more
            )
        except (gymnasium.error.Error, ImportError) as error:
            raise UserError(f"{name or gym_id} cannot be made: {said(error)}") from None

    name = name or f"gymnasium:{gym_id}"
    given = {"features": features, "box": box, "buckets": buckets}
    source = {"gym_id": gym_id, **given, "name": name, "repeats": repeats, **options}
    drawn = functools.partial(make, render_mode="rgb_array")
    return HostEnv(make, name, features, box, buckets, source, size, drawn, repeats)
