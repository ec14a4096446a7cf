"""One copy of a Gymnasium environment, played an episode at a time: somebody else's code, watched and checked."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upside.envs.features import said
from upside.types import UserError

if TYPE_CHECKING:
    import gymnasium

    from upside.envs.host import HostEnv

PATIENCE = 30.0
"""Seconds that a call may take before it is said that it does."""

Doing = Callable[[], tuple[float, str] | None]
"""Since when what is done, by the monotonic clock; None while nobody waits for it."""


class Told(NamedTuple):
    """What a simulator returns. Observation and features are those of the state that was reached."""

    obs: np.ndarray
    features: np.ndarray
    terminated: bool
    truncated: bool


class Simulator:
    """One episode at a time: what went wrong is said with the seed, the step and the value."""

    def __init__(self, env: HostEnv, simulated: gymnasium.Env, features: int | None = None) -> None:
        """There are so many `features`, if that is known already."""
        self._env, self.simulated, self._features = env, simulated, features
        self._seed, self._steps = 0, 0
        self._action = np.zeros(0)
        self._since: float | None = None

    def doing(self) -> tuple[float, str] | None:
        since = self._since
        return None if since is None else (since, f"{self._env.name}: {self._where()}")

    def _where(self) -> str:
        """The call that is under way, or was the last, so that it can be made again."""
        begun = f"reset(seed={self._seed})"
        if not self._steps:
            return begun
        return (
            f"step {self._steps} of an episode, action {words(self._action.ravel())}, after {begun}"
        )

    def _call(self, call: Callable[[], Any]) -> Any:
        """Somebody else's code: what it raises is said with what was asked."""
        self._since = time.monotonic()
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise UserError(f"{self._env.name}: {self._where()} failed: {said(error)}") from error
        finally:
            self._since = None

    def reset(self, seed: int) -> Told:
        self._seed, self._steps = seed, 0
        told = self._call(lambda: self.simulated.reset(seed=seed))
        if not (isinstance(told, tuple) and len(told) == 2 and isinstance(told[1], dict)):
            raise self._returned(told, "an observation and an info")
        return self._told(*told, False, False)

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
        stretched = self._env.middle + self._env.half * np.clip(action, -1.0, 1.0)
        space: Any = self.simulated.action_space
        shaped = stretched.reshape(space.shape).astype(space.dtype)
        return np.asarray(np.clip(shaped, space.low, space.high))

    def step(self, action: np.ndarray) -> Told:
        self._steps += 1
        self._action = stretched = self.stretched(action)
        told = self._call(lambda: self.simulated.step(stretched))
        if not (isinstance(told, tuple) and len(told) == 5 and isinstance(told[4], dict)):
            raise self._returned(
                told, "an observation, a reward, terminated, truncated and an info"
            )
        obs, _, terminated, truncated, info = told
        return self._told(obs, info, bool(terminated), bool(truncated))

    def _told(self, obs: Any, info: dict[str, Any], terminated: bool, truncated: bool) -> Told:
        with np.errstate(over="ignore"):  # too large is infinite, and refused below
            seen = self._understood(lambda: np.asarray(obs, np.float32).ravel(), "observation")
        size = self._env.observation_size
        if obs is None or seen.size != size:
            raise self._wrong(
                f"an observation of {seen.size if obs is not None else 0} numbers, not {size},"
            )
        features = self._understood(lambda: self._env.features_of(seen, info), "features")
        if self._features not in (None, features.size):
            raise self._wrong(f"{features.size} features, not {self._features},")
        for what, values in (("observation", seen), ("feature", features)):
            if not np.isfinite(values).all():
                where = int(np.flatnonzero(~np.isfinite(values))[0])
                wrong = self._wrong(f"{what} {where} is {values[where]}")
                raise UserError(f"{wrong}: mend the environment")
        return Told(seen, features, terminated, truncated)

    def _understood(self, read: Callable[[], np.ndarray], what: str) -> np.ndarray:
        try:
            return read()
        except UserError as error:
            raise self._wrong(f"{error},") from None
        except (Exception, SystemExit) as error:
            raise self._wrong(f"{what} cannot be understood: {said(error)},") from error

    def _returned(self, told: Any, right: str) -> UserError:
        kind = f"{len(told)} values" if isinstance(told, tuple) else type(told).__name__
        return UserError(f"{self._env.name}: {self._where()} returned {kind}, not {right}")

    def _wrong(self, what: str) -> UserError:
        return UserError(f"{self._env.name}: {what} after {self._where()}")


@contextlib.contextmanager
def watched(calls: Sequence[Doing]) -> Iterator[None]:
    """Whoever waits for an environment that does not come back is told for what.

    Nobody can end a call from outside, and it may only be slow: the rest is the user's to decide.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PATIENCE / 4):
            for doing in calls:
                now = doing()
                if now is not None and time.monotonic() - now[0] > PATIENCE:
                    said = f"upside: {now[1]}, has not come back for {PATIENCE:g} seconds"
                    print(f"{said}; Ctrl-C twice ends this", file=sys.stderr)
                    return

    threading.Thread(target=watch, daemon=True, name="watch").start()
    try:
        yield
    finally:
        ended.set()


def words(values: Any) -> str:
    """Numbers with commas between them."""
    return ",".join(f"{x:g}" for x in values)
