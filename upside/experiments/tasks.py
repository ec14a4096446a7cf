"""A run as a task: what it is, whether it is done, and how to do or continue it.

A task is done when its run directory says that the run has ended. Whoever is interrupted starts
again where the run directory was left, so a reproduction resumes run by run and inside runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from upside import envs, methods, runs
from upside.runs import Config, RunDirectory
from upside.types import UserError

FLAGS = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
ENVIRONMENT = {"XLA_FLAGS": FLAGS, "OMP_NUM_THREADS": "1"}
"""One core a run: as many runs as there are cores share them without getting in each other's way."""


class Broken(UserError):
    """A run directory that cannot be gone on from."""


@runtime_checkable
class Work(Protocol):
    """Something to be done once, in a directory of its own, by `perform`."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    def start(self) -> None: ...
    def done(self) -> bool: ...
    def progress(self) -> float: ...


@dataclasses.dataclass(frozen=True, eq=False)  # a task is itself: its configuration has no hash
class Task:
    """One run of one row of a table."""

    name: str
    path: Path
    config: Config

    def done(self) -> bool:
        """Whether the run has ended."""
        return self._summary().get("ended", "running") != "running"

    def commit(self) -> str | None:
        """The commit at which the run was last worked on, where that is known."""
        return self._summary().get("commit")

    def _summary(self) -> dict[str, Any]:
        try:
            return json.loads((self.path / "tree.json").read_text())["summary"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def progress(self) -> float:
        """Share of the budget that is spent, by the last line of metrics."""
        try:
            with (self.path / "metrics.jsonl").open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - 4000))
                last = json.loads(file.read().splitlines()[-1])
            return min(1.0, last["interactions"] / self.config.max_interactions)
        except (OSError, ValueError, IndexError, KeyError):
            return 0.0

    def start(self) -> None:
        """Make the run directory, unless there is one; it must hold this very configuration."""
        if self.path.is_dir() and any(self.path.iterdir()):
            try:
                found = RunDirectory.open(self.path).config()
            except UserError as error:
                raise Broken(f"{error}; remove {self.path} to make it anew") from None
            if _plain(found) != _plain(self.config):
                raise UserError(
                    f"{self.path} holds a run of another version or with other settings: "
                    "give another --output, or remove it"
                )
        else:
            RunDirectory.create(self.path, self.config)


def _plain(config: Config) -> dict[str, Any]:
    """As it is written and read by this version: lists instead of tuples, every setting."""
    whole = dataclasses.replace(config, settings=config.build().to_json())
    return json.loads(json.dumps(dataclasses.asdict(whole)))


def perform(path: Path, under_way: set[subprocess.Popen]) -> str:
    """Continue the run at `path` in a process of its own; returns what went wrong, or nothing.

    While it is `under_way`, others may end it.
    """
    options = ["--no-figures", "--cores", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "upside.cli", "resume", str(path.absolute()), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    under_way.add(process)
    _, said = process.communicate()
    under_way.discard(process)
    if not process.returncode:
        return ""
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"ended with code {process.returncode}"


def perform_here(path: Path) -> str:
    """The same in this very process, so that it ends when the process is ended."""
    from upside.downstream.request import Request
    from upside.session import Session

    try:
        if asked := Request.read(path):
            asked.prepare(path, cores=1).perform()
            return ""
        Session.resume(RunDirectory.open(path), cores=1).run()
    except UserError as error:
        return str(error)
    return ""


def kept(task: Task, name: str, compute: Callable[[Task], dict[str, Any]]) -> dict[str, Any]:
    """What `compute` says of a finished run: computed once, then kept beside it."""
    file = task.path / name
    if file.is_file():
        return json.loads(file.read_text())
    found = compute(task)
    RunDirectory(task.path).keep(name, json.dumps(found, indent=1) + "\n")
    return found


def task(
    name: str,
    where: Path,
    env: str,
    seed: int,
    interactions: int,
    method: str,
    space: dict[str, Any] | None = None,
    **settings: Any,
) -> Task:
    """The run of a row: a method with some settings on an environment, whose features `space` may say."""
    world = envs.make(env, **space or {})
    value = methods.get(method, settings.pop("learner", None), world).replace(settings)
    config = runs.configure(method, value, world, seed, interactions, env)
    return Task(name, where / f"{name}-{env.replace(':', '-')}-{seed}", config)
