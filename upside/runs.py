"""The run directory: the only interface between discovering, measuring and showing.

    config.json          what was run: method, settings, environment, seed, budget, version
    metrics.jsonl        one line a round
    events/              the same for TensorBoard
    tree.json            the tree, counters, whether the run has ended
    tree.safetensors     skills, state buffers and discriminator behind it
    checkpoints/         the two newest states of the run, to resume from
    figures/             pictures

Nothing is pickled. A checkpoint is one file whose name carries its own digest, written aside and
renamed, so that it is either whole or not there; the one before is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree

from upside import envs
from upside.engine.method import Method
from upside.envs.host import registered
from upside.envs.layouts import Layout
from upside.envs.maze import Maze
from upside.types import UserError, World
from upside.version import __version__

FORMAT = 4
"""Version of the run directory's format; a newer one is refused."""
KEPT = 2
COVERAGE = "coverage.json"  # what `upside train` says of a run when it has ended
GIVEN = "given in Python"


@dataclasses.dataclass(frozen=True)
class Config:
    """What was asked for; with the package's version it determines the run."""

    method: str
    settings: dict[str, dict[str, Any]]
    env: str
    seed: int
    max_interactions: int
    layout: dict[str, Any] | None = None
    """The maze itself, so that a run outlives the text file it was drawn in."""
    simulated: dict[str, Any] | None = None
    """What a Gymnasium environment is made of, or what is known of one that was given in Python."""
    version: str = __version__
    format: int = FORMAT

    def environment(self, env: World | None = None) -> World:
        """What was explored; `env` is it, where it was given in Python and only its maker can make it."""
        if env is not None:
            env = envs.given(env)
            for kind, now in _description(env).items():
                if self.simulated != {} and _tuples(now) != _tuples(getattr(self, kind)):
                    then = self.simulated or self.layout
                    raise UserError(f"env= is not what this run explored: {_differing(now, then)}")
            return env
        if self.simulated and GIVEN not in self.simulated:
            return registered(**{k: _tuples(v) for k, v in self.simulated.items()})
        if self.simulated is not None:
            raise UserError(
                f"this run explored {self.env}, which was given in Python: give it again, "
                "upside.load(run_dir, env=...) or upside.resume(run_dir, env=...)"
            )
        if self.layout is None:
            return envs.make(self.env)
        fields = {k: _tuples(v) for k, v in self.layout.items()}
        return Maze(Layout(**fields))

    def build(self) -> Method:
        """The method with these settings; a configuration of another version is not guessed at."""
        try:
            return Method.from_json(self.settings)
        except (ValueError, TypeError) as error:
            raise UserError(
                f"this run has other settings than upside {__version__} knows ({error}): use what made "
                f"it, upside {self.version}"
            ) from None


def configure(
    method: str,
    value: Method,
    env: str | World,
    seed: int,
    max_interactions: int,
    called: str | None = None,
) -> Config:
    """A checked configuration; everything a user can get wrong is refused here, before any work."""
    value.check()
    if seed < 0:
        raise UserError(f"--seed {seed} is negative: give 0 or more")
    if max_interactions < 1:
        raise UserError(f"--max-interactions {max_interactions} is less than 1: try 1000000")
    environment = envs.given(env)
    value.judge.suits(environment)
    name = called or (env if isinstance(env, str) else env.name)
    what = _description(environment)
    return Config(method, value.to_json(), name, seed, max_interactions, **what)


def _description(env: World) -> dict[str, Any]:
    """What an environment can be made of again."""
    if isinstance(env, Maze):
        return {"layout": dataclasses.asdict(env.layout)}
    if getattr(env, "source", None):
        return {"simulated": env.source}  # type: ignore[attr-defined]
    known = {
        "observation_size": env.observation_size,
        "action_size": env.action_size,
        "features": getattr(env, "discriminator_features", None),
        "space": dataclasses.asdict(env.space),
    }
    return {"simulated": {GIVEN: env.name, **known}}


def _differing(now: Any, then: Any) -> str:
    """Only what is not the same in two descriptions, in words."""
    now, then = (_tuples(said) if isinstance(said, dict) else {} for said in (now, then))
    parts = [part for part in {**now, **then} if now.get(part) != then.get(part)]
    return "; ".join(f"{part} is {now.get(part)} here, {then.get(part)} there" for part in parts)


def _tuples(value: Any) -> Any:
    """As it was before it became JSON."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


class RunDirectory:
    """Reads and writes one run directory."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, config: Config, overwrite: bool = False) -> RunDirectory:
        """A new directory with its configuration; never touches an existing run unless told to."""
        run = cls(path)
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            if not (run.path / "config.json").is_file():
                raise UserError(
                    f"{path} exists and is not a run directory: choose another --run-dir"
                )
            if not overwrite:
                raise UserError(
                    f"{path} already holds a run: continue it with 'upside resume {path}', "
                    "or start anew with --overwrite"
                )
            with run.alone():
                pass
        with run.writing():
            if run.path.exists():
                shutil.rmtree(run.path)
            run.path.mkdir(parents=True)
            run._write(
                "config.json", _json(dataclasses.asdict(config))
            )  # first: whose directory it is
            (run.path / "checkpoints").mkdir()
            (run.path / "figures").mkdir()
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """An existing directory, or a clear refusal."""
        run = cls(path)
        if not (run.path / "config.json").is_file():
            raise UserError(f"{path} is not a run directory: it has no config.json")
        found = run._read_json("config.json").get("format")
        if not isinstance(found, int):
            raise UserError(f"{path} is not a run directory: its config.json has no format number")
        if found > FORMAT:
            raise UserError(
                f"{path} has format {found}, newer than the {FORMAT} that upside {__version__} "
                "reads: upgrade upside"
            )
        if found < FORMAT:
            raise UserError(
                f"{path} has format {found}, older than the {FORMAT} that upside {__version__} "
                "reads: use the version of upside that its config.json names"
            )
        return run

    def config(self) -> Config:
        try:
            return Config(**self._read_json("config.json"))
        except TypeError as error:
            raise UserError(f"{self.path}/config.json cannot be understood: {error}") from None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A full disk or a read-only directory is the user's to mend; what was saved stays whole."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            saved = (self.path / "checkpoints").is_dir()
            then = (
                f", then run 'upside resume {self.path}'" if saved else ", or choose another place"
            )
            raise UserError(
                f"cannot write to {self.path}: {reason}. What was saved before is intact; mend it{then}"
            ) from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes here meanwhile; the system forgets the lock when its process ends, however it does."""
        try:
            import fcntl
        except ImportError:  # not on this system
            yield
            return
        with self.writing():
            lock = (self.path / "lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{self.path} is being written by another process: wait until it ends, or end it"
                ) from None
            except OSError:
                pass  # a file system without locks
            yield

    def keep(self, name: str, text: str) -> None:
        """Put a file of somebody else's beside the run's own."""
        with self.writing():
            self._write(name, text.encode())

    def keep_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Likewise, of arrays."""
        with self.writing():
            self._write(name, safetensors.numpy.save(arrays))

    def _write(self, name: str, data: bytes) -> None:
        """Atomic and durable: aside, flushed to the disk, renamed."""
        target = self.path / name
        aside = target.with_name(target.name + ".part")
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(target)
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the renaming itself
            finally:
                os.close(folder)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / name} cannot be read: {error}") from None

    # ---------------------------------------------------------------- tree

    def save_tree(self, tree: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """The tree for those who measure, show and use it. One digest ties the two files together."""
        data = safetensors.numpy.save(arrays)
        with self.writing():
            self._write("tree.safetensors", data)
            self._write("tree.json", _json({**tree, "arrays_sha256": _digest(data)}))

    def load_tree(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if not (self.path / "tree.json").is_file():
            raise UserError(
                f"{self.path} has no tree yet: let it run for a while ('upside resume')"
            )
        tree = self._read_json("tree.json")
        try:
            data = (self.path / "tree.safetensors").read_bytes()
        except OSError as error:
            raise UserError(f"{self.path}/tree.safetensors cannot be read: {error}") from None
        if _digest(data) != tree.get("arrays_sha256"):
            raise UserError(
                f"{self.path}: tree.json and tree.safetensors do not belong together (a write was cut "
                f"short, or the run is going on): try again, or 'upside resume {self.path}'"
            )
        return tree, safetensors.numpy.load(data)

    def load_metrics(self) -> list[dict[str, Any]]:
        """Every whole line of metrics; a kill may have torn the last."""
        path = self.path / "metrics.jsonl"
        entries = []
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
        return entries

    def save_metrics(self, entries: list[dict[str, Any]]) -> None:
        """All of them anew."""
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        with self.writing():
            self._write("metrics.jsonl", lines.encode())

    # ---------------------------------------------------------------- checkpoints

    def save_checkpoint(self, arrays: PyTree, state: dict[str, Any]) -> None:
        """The whole state of a run in one file; older ones than the last KEPT are removed."""
        data = safetensors.numpy.save(flatten(arrays), metadata={"state": json.dumps(state)})
        newest = self.checkpoints()[-1:]
        number = int(newest[0].stem.partition("-")[0]) + 1 if newest else 1
        with self.writing():
            self._write(f"checkpoints/{number:06d}-{_digest(data)}.safetensors", data)
            for old in self.checkpoints()[:-KEPT]:
                old.unlink()

    def began(self) -> bool:
        """Whether a checkpoint was ever written, whole or not."""
        return bool(self.checkpoints())

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.path / "checkpoints").glob("*.safetensors"))

    def load_checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest whole checkpoint, or None; a damaged one is reported and passed over."""
        for path in reversed(self.checkpoints()):
            data = path.read_bytes()
            if path.stem.partition("-")[2] != _digest(data):
                print(f"upside: {path} is damaged: using the one before it", file=sys.stderr)
                continue
            with safetensors.safe_open(path, framework="numpy") as file:
                state = json.loads(file.metadata()["state"])
            return safetensors.numpy.load(data), state
        return None


class Pace:
    """When to save: `seconds` after the last time, but only a twentieth of the time may go into it.

    A replay buffer of a million transitions takes a second to write. 0 seconds: whenever asked.
    """

    def __init__(self, seconds: float):
        self.seconds, self.wait, self.last = seconds, seconds, time.perf_counter()

    def __call__(self, save: Callable[[], Any]) -> None:
        """Save, if it is time to."""
        begin = time.perf_counter()
        if begin - self.last < self.wait:
            return
        save()
        self.last = time.perf_counter()
        self.wait = max(self.seconds, 20 * (self.last - begin)) if self.seconds else 0.0


def flatten(tree: PyTree) -> dict[str, np.ndarray]:
    """A pytree of arrays as named arrays."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): np.array(leaf, order="C") for path, leaf in leaves}


def unflatten(template: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """The inverse: `template` with its leaves replaced. NumPy leaves stay NumPy, others go to the device."""

    def fill(path: Any, leaf: Any) -> Any:
        if _name(path) not in arrays:
            raise UserError(f"saved arrays have no {_name(path)}: another version wrote them")
        value = arrays[_name(path)]
        if value.shape != leaf.shape:
            raise UserError(f"saved array {_name(path)} has shape {value.shape}, not {leaf.shape}")
        return value.copy() if isinstance(leaf, np.ndarray) else jax.numpy.asarray(value)

    return jax.tree_util.tree_map_with_path(fill, template)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()
