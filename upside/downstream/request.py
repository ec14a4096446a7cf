"""Goals asked of a run's policies, in a directory of their own: what was asked, checkpoints, what became of it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from upside.downstream import reach, tasks, tunings
from upside.downstream.reach import Finetuning
from upside.downstream.reached import Reached, Skills
from upside.downstream.tune import RECIPE
from upside.run import Run, saved_mlp
from upside.runs import Pace, RunDirectory, flatten, unflatten
from upside.types import UserError
from upside.version import __version__, commit

SAVE_SECONDS = 10.0
PROGRESS = "checkpoints/progress.json"
CONFIG = "config.json"
BEGUN = {
    "lock",
    "checkpoints",
    f"{CONFIG}.part",
}  # what there may be of a request that was cut off before it began
ARRAYS = "reached.safetensors"  # of a single task: its ways and the skills that were kept


@dataclasses.dataclass(frozen=True)
class Request:
    """What a result depends on."""

    run: str
    """The run directory, relative to the request's own."""
    tree: str
    """Which tree was in it."""
    goals: list[list[float]]
    kind: str = "goal"
    """What `goals` are: places to be reached ("goal"), or thresholds of the first feature ("beyond")."""
    radius: float = 1.0
    budget: int = 300_000
    """Interactions for each goal."""
    tuning: str = "default"
    """One of `tunings.TUNINGS`."""
    horizon: int | None = None
    """Steps of an episode; None: the run's H_max."""
    zero_shot: bool = False
    seed: int = 0
    version: str = __version__
    recipe: int = RECIPE

    @classmethod
    def read(cls, where: Path) -> Request | None:
        """The request that a directory holds, if it is one's."""
        try:
            return cls(**{"recipe": 1} | json.loads((where / CONFIG).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def check(self, where: Path, overwrite: bool) -> None:
        """Refuse a place that holds something else, or another request that is not to be replaced."""
        if where.exists() and not where.is_dir():
            raise UserError(f"{where} is a file: give another --output")
        if not where.exists() or all(child.name in BEGUN for child in where.iterdir()):
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
            where.mkdir(parents=True, exist_ok=True)
        with directory.alone():
            self.check(where, overwrite)  # once more: somebody may have been faster
            with directory.writing():
                if overwrite:
                    _empty(where)
                (where / "checkpoints").mkdir(exist_ok=True)
            directory.keep(CONFIG, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def prepare(self, where: Path, cores: int = 0) -> Job:
        """Load the run; everything that may be refused is refused here."""
        run_dir = (where / self.run).resolve()
        tree = RunDirectory.open(run_dir).load_tree()[0]["arrays_sha256"]
        if (tree, __version__, RECIPE) != (self.tree, self.version, self.recipe):
            raise UserError(
                f"{where} was asked of another tree than {run_dir} holds now, or of another version of "
                "upside: ask again with --overwrite"
            )
        run = Run.load(run_dir)
        places = [np.asarray(g, np.float32) for g in self.goals]
        if self.zero_shot:
            goals = [tasks.goal(run.env, place, self.radius) for place in places]
            return Job(self, where, run, goals, None)
        every: list[tasks.Task] = [self._task(run, place) for place in places]
        tuning = tunings.TUNINGS[self.tuning](run)
        tuned = Finetuning(run, every, self.budget, tuning, self.horizon, self.seed, cores)
        return Job(self, where, run, [], tuned)

    def _task(self, run: Run, place: np.ndarray) -> tasks.Task:
        if self.kind == "beyond":
            return tasks.Beyond(jnp.asarray(place))
        return tasks.goal(run.env, place, self.radius)


@dataclasses.dataclass
class Job:
    """A request that can be carried out."""

    asked: Request
    where: Path
    run: Run
    goals: list[tasks.Goal]
    """Where nothing is to be learned."""
    tuned: Finetuning | None
    """None if nothing is to be learned."""

    def perform(self, listen: Callable[[Finetuning], None] | None = None) -> list[Reached]:
        """From where the same request was interrupted, or from the start; the numbers are written.

        `listen` is called after some rounds, about once a second.
        """
        directory = RunDirectory(self.where)
        with directory.alone():
            if Request.read(self.where) != self.asked:
                raise UserError(f"{self.where} was asked something else meanwhile: ask again")
            return self._perform(directory, listen)

    def _perform(
        self, directory: RunDirectory, listen: Callable[[Finetuning], None] | None
    ) -> list[Reached]:
        curves: list[Any] = []
        if self.tuned is None:
            seed = self.asked.seed
            found = [reach.zero_shot(self.run, goal, seed=seed) for goal in self.goals]
        else:
            self._finetune(self.tuned, directory, listen or (lambda _: None))
            found, curves = self.tuned.results(), self.tuned.curves()
        said = {"goals": [one.numbers() for one in found], "curves": curves, "commit": commit()}
        if len(found) == 1:
            ways = {"before": found[0].path_before, "after": found[0].path_after}
            kept = {"way": ways, "skills": found[0].skills.actors}
            directory.keep_arrays(ARRAYS, flatten(kept))
        directory.keep("result.json", json.dumps(said, allow_nan=False) + "\n")
        shutil.rmtree(self.where / "checkpoints", ignore_errors=True)  # large, and of no use now
        return found

    def _finetune(
        self, tuned: Finetuning, directory: RunDirectory, listen: Callable[[Finetuning], None]
    ) -> None:
        saved = directory.load_checkpoint()
        if saved is not None:
            tuned.restore(saved[1], unflatten(tuned.chains, saved[0]))
        pace = Pace(SAVE_SECONDS)

        def save() -> None:
            directory.save_checkpoint(tuned.chains, tuned.state())
            directory.keep(PROGRESS, json.dumps({"share": tuned.progress}))

        while not tuned.done:
            tuned.advance()
            try:
                listen(tuned)
            except KeyboardInterrupt:
                save()
                raise
            pace(save)


def _empty(where: Path) -> None:
    """All but the lock; what says whose directory it is goes last."""
    for child in sorted(where.iterdir(), key=lambda child: child.name == CONFIG):
        if child.is_dir():
            shutil.rmtree(child)
        elif child.name != "lock":
            child.unlink()


def ask(run_dir: Path, where: Path, goals: list[list[float]], **settings: Any) -> Request:
    """A request for the tree that `run_dir` holds now, to be carried out at `where`."""
    tree = RunDirectory.open(run_dir).load_tree()[0]["arrays_sha256"]
    return Request(os.path.relpath(run_dir.resolve(), where.resolve()), tree, goals, **settings)


def progress(where: Path) -> float:
    """Share of the work that the last checkpoint holds."""
    try:
        return float(json.loads((where / PROGRESS).read_text())["share"])
    except (OSError, ValueError, KeyError):
        return 0.0


def ways(where: Path) -> dict[str, np.ndarray] | None:
    """The best episodes before and after that `perform` wrote of a single task."""
    try:
        arrays = safetensors.numpy.load((where / ARRAYS).read_bytes())
        return {when: arrays[f"way.{when}"] for when in ("before", "after")}
    except (OSError, SafetensorError, KeyError):
        return None


def load(where: Path) -> Skills:
    """The skills that were kept of a single task."""
    asked, found = Request.read(where), result(where)
    if asked is None or found is None or not (where / ARRAYS).is_file():
        raise UserError(f"{where} holds no goal that 'upside reach' is done with")
    run = Run.load((where / asked.run).resolve())
    arrays = safetensors.numpy.load((where / ARRAYS).read_bytes())
    center, scale = (jnp.asarray(arrays[f"skills.{name}"]) for name in ("center", "scale"))
    learner = tunings.like(run, tunings.TUNINGS[asked.tuning](run)).learner
    actors = learner.acts(saved_mlp(arrays, "skills.mlp"), center, scale)
    diffuses = not found["goals"][0]["tuned"] and run.method.plan.H > 0
    return Skills(actors, run.method.plan.T, run.env.action_size, diffuses)


def result(where: Path) -> dict[str, Any] | None:
    """What `perform` wrote, if it is done."""
    try:
        return json.loads((where / "result.json").read_text())
    except (OSError, ValueError):
        return None
