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
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upside.envs.features import Features, said
from upside.types import Size, Space, UserError

if TYPE_CHECKING:
    import gymnasium

PATIENCE = 30.0
"""Seconds that a reset or a step may take before it is said that it does."""
MOST_BUCKETS = 2500  # in all, where nobody said how many there should be


class Told(NamedTuple):
    """What a simulator returns. Observation and features are those of the state that was reached."""

    obs: np.ndarray
    features: np.ndarray
    terminated: bool
    truncated: bool


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
        self.name, self._make, self.source, self.size = name, make, source, size
        self._make_drawn = make_drawn
        self._idle: list[gymnasium.Env] = []
        self._lock = threading.Lock()
        self._made: weakref.WeakValueDictionary[int, gymnasium.Env] = weakref.WeakValueDictionary()
        env = self._new()
        self.observation_size, self.action_size = _sizes(env, name)
        bounds: Any = env.action_space
        low, high = (side.ravel().astype(np.float64) for side in (bounds.low, bounds.high))
        self._middle, self._half = (high + low) / 2, (high - low) / 2
        if callable(features):
            self._features = Features("function", (getattr(features, "__name__", "own"),), features)
        else:
            self._features = Features.parse(
                _every_entry(env, name) if features is None else features
            )
        self.space = self._space(env, box, buckets)
        if self.source is not None:  # an id's own bounds may change with its version
            said_so = {
                "features": str(self._features),
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
        return hash((self.name, self.space, str(self._features)))

    def __repr__(self) -> str:
        return f"HostEnv({self.name!r}, {self._features}, {self.space})"

    def reachable(self) -> None:
        """Nobody knows."""

    @property
    def discriminator_features(self) -> str:
        return str(self._features)

    @property
    def feature_names(self) -> list[str]:
        """As a picture's axes have them."""
        kind, names = self._features.source, self._features.names
        if len(names) != len(self.space.low):
            return [f"{names[0]} {i}" for i in range(len(self.space.low))]
        return [f"observation {name}" for name in names] if kind == "obs" else list(names)

    def _new(self) -> gymnasium.Env:
        import gymnasium

        try:
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
        """The box of the features: as given, or the observation's bounds where it has them."""
        seen = Simulator(self, env).reset(0).features
        if box is None:
            box = self._bounds(env)
        if len(box) != 2 * seen.size:
            raise UserError(
                f"--box {_words(box)} has {len(box)} numbers, {self._features} needs {2 * seen.size}: "
                "low and high of each feature"
            )
        low, high = tuple(map(float, box[::2])), tuple(map(float, box[1::2]))
        if not all(
            math.isfinite(a) and math.isfinite(b) and a < b for a, b in zip(low, high, strict=True)
        ):
            raise UserError(
                f"--box {_words(box)}: every low must be below its high, and both finite"
            )
        if buckets is None:
            buckets = (min(50, int(MOST_BUCKETS ** (1 / seen.size))),) * seen.size
        if len(buckets) == 1:
            buckets = tuple(buckets) * seen.size
        if len(buckets) != seen.size or min(buckets) < 1:
            raise UserError(
                f"--buckets {_words(buckets)}: give {seen.size} numbers above 0, or one"
            )
        return Space(low, high, tuple(buckets))

    def _bounds(self, env: gymnasium.Env) -> tuple[float, ...]:
        space: Any = env.observation_space
        if self._features.source == "obs":
            entries = [int(name) for name in self._features.names]
            low, high = space.low.ravel()[entries], space.high.ravel()[entries]
            if np.all(np.isfinite(low)) and np.all(np.isfinite(high)):
                return tuple(float(x) for pair in zip(low, high, strict=True) for x in pair)
        raise UserError(
            f"{self._features} of {self.name} has no bounds of its own: say where coverage is counted, "
            "with --box low,high for each feature, such as --box=-10,10,-10,10"
        )

    def filmed(self, frames: list[np.ndarray]) -> HostEnv:
        """The same environment, which puts a picture of every state into `frames`."""

        def make() -> gymnasium.Env:
            camera = _camera(self._make_drawn() if self._make_drawn else self._make(), frames)
            if camera.render_mode != "rgb_array":
                raise UserError(f"{self.name} draws nothing: make it with render_mode='rgb_array'")
            return camera

        features = self._features.function or str(self._features)
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
        mine_now = [Simulator(self, env) for env in mine]
        try:
            with _watched(mine_now):
                yield mine_now
        except BaseException:
            for env in mine:  # in the middle of an episode: not to be used again
                env.close()
            raise
        with self._lock:
            self._idle += mine


class Simulator:
    """One episode at a time: what went wrong is said with the step and the value."""

    def __init__(self, env: HostEnv, simulated: gymnasium.Env) -> None:
        self._env, self.simulated = env, simulated
        self._steps, self._calls = 0, 0
        self._asked: np.ndarray | None = None

    @property
    def doing(self) -> tuple[int, str]:
        """How many calls there were, and in words the one that is under way."""
        asked = self._asked
        if asked is None:
            return self._calls, ""
        step = f"step {self._steps} of an episode, action {_words(asked.ravel())}"
        what = step if self._steps else f"reset(seed={asked[0]})"
        return self._calls, f"{self._env.name}: {what}"

    def _call(self, call: Callable[[], Any], action: np.ndarray) -> Any:
        """Somebody else's code: what it raises is said with what was asked."""
        self._calls, self._asked = self._calls + 1, action
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise UserError(f"{self.doing[1]} failed: {said(error)}") from error
        finally:
            self._asked = None

    def reset(self, seed: int) -> Told:
        self._steps = 0

        def reset() -> tuple[Any, Any]:
            obs, info = self.simulated.reset(seed=seed)
            return obs, info

        obs, info = self._call(reset, np.array([seed]))
        return self._told(obs, info, False, False)

    def save(self) -> tuple[np.ndarray, np.ndarray]:
        """The state of MuJoCo's simulator, all that its next step depends on.

        And the places of bodies, which Gymnasium looks at before it steps.
        """
        import mujoco

        inner: Any = self.simulated.unwrapped
        state = np.empty(mujoco.mj_stateSize(inner.model, mujoco.mjtState.mjSTATE_INTEGRATION))
        mujoco.mj_getState(inner.model, inner.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        return state, inner.data.xpos.copy()

    def restore(self, saved: tuple[np.ndarray, np.ndarray], steps: int) -> None:
        """Go on from a state that was saved after so many steps of an episode."""
        import mujoco

        self.reset(0)
        inner: Any = self.simulated.unwrapped
        self._steps, (state, places) = steps, saved
        mujoco.mj_setState(inner.model, inner.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        inner.data.xpos[:] = places

    def stretched(self, action: np.ndarray) -> np.ndarray:
        """As the environment itself wants it: rounding takes nothing beyond its bounds."""
        stretched = self._env._middle + self._env._half * np.clip(action, -1.0, 1.0)
        space: Any = self.simulated.action_space
        return np.clip(stretched.reshape(space.shape).astype(space.dtype), space.low, space.high)

    def step(self, action: np.ndarray) -> Told:
        self._steps += 1
        stretched = self.stretched(action)

        def step() -> tuple[Any, Any, bool, bool]:
            obs, _, terminated, truncated, info = self.simulated.step(stretched)
            return obs, info, bool(terminated), bool(truncated)

        return self._told(*self._call(step, stretched))

    def _told(self, obs: Any, info: dict[str, Any], terminated: bool, truncated: bool) -> Told:
        when = f"after step {self._steps} of an episode" if self._steps else "after a reset"
        name = self._env.name
        try:
            seen = np.asarray(obs, np.float32).ravel()
            if obs is None or seen.size != self._env.observation_size:
                raise UserError(
                    f"an observation of {0 if obs is None else seen.size} numbers, not "
                    f"{self._env.observation_size}"
                )
            features = self._env._features(seen, info)
        except UserError as error:
            raise UserError(f"{name}, {when}: {error}") from None
        except (Exception, SystemExit) as error:
            raise UserError(f"{name}, {when}: cannot be understood: {said(error)}") from error
        space = getattr(self._env, "space", None)  # not known yet when it is made
        if space is not None and features.size != len(space.low):
            raise UserError(f"{name}: {features.size} features {when}, not {len(space.low)}")
        for what, values in (("observation", seen), ("feature", features)):
            if not np.isfinite(values).all():
                where = int(np.flatnonzero(~np.isfinite(values))[0])
                raise UserError(
                    f"{name}: {what} {where} is {values[where]} {when}: mend the environment"
                )
        return Told(seen, features, terminated, truncated)


@contextlib.contextmanager
def _watched(simulators: list[Simulator]) -> Iterator[None]:
    """Whoever waits for an environment that does not come back is told for what.

    Nobody can end a step from outside, and it may only be slow: the rest is the user's to decide.
    """
    ended = threading.Event()

    def watch() -> None:
        before = None
        while not ended.wait(PATIENCE):
            now = [simulator.doing for simulator in simulators]
            if now == before:
                busy = next((doing for _, doing in now if doing), "")
                if busy:
                    said = f"upside: {busy} has not come back for {PATIENCE:g} seconds"
                    print(f"{said}; Ctrl-C twice ends this", file=sys.stderr)
                    return
            before = now

    threading.Thread(target=watch, daemon=True, name="watch").start()
    try:
        yield
    finally:
        ended.set()


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
        raise UserError(f"{name} has actions {done}: only continuous ones (a Box) can be learned")
    if not (np.isfinite(done.low).all() and np.isfinite(done.high).all()):
        raise UserError(f"{name} has actions without bounds, {done}: give its action_space some")
    width = done.high.astype(np.float64) - done.low.astype(np.float64)
    if (width > np.finfo(np.float32).max).any():
        raise UserError(
            f"{name} has actions in {done}: too wide to be searched, scale its action_space"
        )
    if not isinstance(seen, Box):
        raise UserError(f"{name} has observations {seen}: wrap it in FlattenObservation")
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


def _words(values: Any) -> str:
    return ",".join(f"{x:g}" for x in values)


def _quiet() -> None:
    """MuJoCo writes its warnings into a file in the working directory; ours go where Python's go.

    Gymnasium's own models use an attribute that MuJoCo has begun to deprecate: nothing a user can mend.
    """
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
