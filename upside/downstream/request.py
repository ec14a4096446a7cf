"""Goals asked of a run's policies, in a directory of their own: what was asked, checkpoints, what became of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from upside.downstream import reach, tasks
from upside.downstream.reach import Finetuning, Reached
from upside.run import Run
from upside.runs import RunDirectory, unflatten
from upside.types import UserError
from upside.version import __version__

SAVE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Request:
    """What a result depends on."""

    run: str
    """The run directory, relative to the request's own."""
    tree: str
    """Which tree was in it."""
    goals: list[list[float]]
    radius: float = 1.0
    budget: int = 300_000
    """Interactions for each goal."""
    tuning: str = "as found"
    """One of `reach.TUNINGS`."""
    zero_shot: bool = False
    seed: int = 0
    version: str = __version__

    @classmethod
    def read(cls, where: Path) -> Request | None:
        """The request that a directory holds, if it is one's."""
        try:
            return cls(**json.loads((where / "config.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def check(self, where: Path, overwrite: bool) -> None:
        """Refuse a place that holds something else, or another request that is not to be replaced."""
        if where.exists() and not where.is_dir():
            raise UserError(f"{where} is a file: give another --output")
        if not where.exists() or not any(where.iterdir()):
            return
        found = Request.read(where)
        if found is None:
            raise UserError(f"{where} exists and holds something else: give another --output")
        asked, there = dataclasses.asdict(self), dataclasses.asdict(found)
        other = [name for name in asked if asked[name] != there[name]]
        if other and not overwrite:
            raise UserError(
                f"{where} holds a request with another {' and '.join(other)}: "
                "give --overwrite, or another --output"
            )

    def start(self, where: Path, overwrite: bool = False) -> None:
        """Its configuration first: a directory that has one is to be continued."""
        directory = RunDirectory(where)
        with directory.writing():
            if overwrite and where.exists():
                shutil.rmtree(where)
            (where / "checkpoints").mkdir(parents=True, exist_ok=True)
        directory.keep("config.json", json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def prepare(self, where: Path) -> Finetuning | None:
        """Everything that may be refused is refused here; None if nothing is to be learned."""
        run, goals = self.load(where), self._goals(where)
        if self.zero_shot:
            return None
        tuning = reach.TUNINGS[self.tuning](run)
        return Finetuning(run, list(goals), self.budget, tuning, seed=self.seed)

    def load(self, where: Path) -> Run:
        return Run.load((where / self.run).resolve())

    def _goals(self, where: Path) -> list[tasks.Goal]:
        env = self.load(where).env
        return [tasks.goal(env, np.asarray(g, np.float32), self.radius) for g in self.goals]

    def perform(self, where: Path, tuned: Finetuning | None) -> list[Reached]:
        """From where the same request was interrupted, or from the start; the numbers are written."""
        if tuned is None:
            run = self.load(where)
            found = [reach.zero_shot(run, goal, seed=self.seed) for goal in self._goals(where)]
            curves = []
        else:
            found, curves = _finetune(tuned, RunDirectory(where)), tuned.curves()
        said = {"goals": [one.numbers() for one in found], "curves": curves}
        RunDirectory(where).keep("result.json", json.dumps(said) + "\n")
        return found


def result(where: Path) -> dict[str, Any] | None:
    """What `perform` wrote, if it is done."""
    try:
        return json.loads((where / "result.json").read_text())
    except (OSError, ValueError):
        return None


def _finetune(tuned: Finetuning, directory: RunDirectory) -> list[Reached]:
    saved = directory.load_checkpoint()
    if saved is not None:
        tuned.restore(saved[1], unflatten(tuned.chains, saved[0]))
    last = time.perf_counter()
    while not tuned.done:
        tuned.step()
        if time.perf_counter() - last > SAVE_SECONDS:
            directory.save_checkpoint(tuned.chains, tuned.state())
            last = time.perf_counter()
    directory.save_checkpoint(tuned.chains, tuned.state())
    return tuned.results()
