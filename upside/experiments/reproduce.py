"""`upside reproduce NAME`: every run of a table or figure, then that; interrupted, it goes on where it was."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table

from upside.experiments import catalogue, executor, goals
from upside.experiments.tasks import Broken, Work
from upside.runs import RunDirectory
from upside.types import UserError, flag, usable_cores
from upside.version import __version__

W = TypeVar("W", bound=Work)
GOAL_BUDGET = 300_000


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Which part of a table or figure, where, and by whom."""

    output: Path = Path("reproduction")
    """Where run directories and what they show are written; a second call goes on from there."""
    rows: tuple[str, ...] = ()
    """Only these rows."""
    envs: tuple[str, ...] = ()
    """Only these environments."""
    seeds: tuple[int, ...] = ()
    """Seeds of every row (default: the experiment's own, three for a table)."""
    interactions: int | None = None
    """Budget of every run (default: the experiment's own; in the paper's table 1e7, for UPSIDE 1e6)."""
    goal_budget: int | None = None
    """Interactions for each goal of goals-... and finetune-..., the selection of a policy included (default: 300000)."""
    workers: int = dataclasses.field(default_factory=lambda: len(usable_cores()))
    """Runs at a time on this machine, one core each; a Ray cluster has as many as it has cores."""
    ray: str | None = None
    """Address of a Ray cluster to run on instead; 'auto' starts one here."""

    def check(self) -> None:
        """Refuse what cannot work, before any work."""
        if self.workers < 1:
            raise UserError(f"--workers {self.workers} is less than 1: give at least 1")
        if self.interactions is not None and self.interactions < 1:
            raise UserError(f"--interactions {self.interactions} is less than 1: try 1000000")
        if self.goal_budget is not None and self.goal_budget < 1:
            raise UserError(f"--goal-budget {self.goal_budget} is less than 1: try {GOAL_BUDGET}")
        if self.ray and not importlib.util.find_spec("ray"):
            raise UserError("--ray needs Ray: pip install 'upside[ray]'")
        if self.ray and self.ray != "auto":
            executor.answers(self.ray)

    def command(self, name: str) -> str:
        """What results say that made them: what was asked, not where or by whom it was done."""
        said = ["upside", "reproduce", name]
        for part in ("rows", "envs", "seeds", "interactions", "goal_budget"):
            value = getattr(self, part)
            if value:
                said += [flag(part), *map(str, value if isinstance(value, tuple) else (value,))]
        return " ".join(said)


def reproduce(name: str, options: Reproduce) -> int:
    """Do what is left to do, say what failed, show what is done."""
    options.check()
    experiment = dataclasses.replace(catalogue.get(name), asked=options.command(name))
    budget = options.goal_budget or GOAL_BUDGET
    for written in {name, experiment.runs_of or name}:
        _of_this_version(options.output / written)
    every = catalogue.tasks(
        name,
        options.output,
        list(options.rows),
        list(options.seeds),
        options.interactions,
        list(options.envs),
    )
    for task in every:
        episode = task.config.build().plan.H_max
        if task.config.max_interactions < episode:
            raise UserError(
                f"--interactions {task.config.max_interactions} is less than an episode of {task.name}, "
                f"{episode} steps: its row would say nothing"
            )
    if experiment.following is not None:
        goals.check(experiment, options.rows, budget)
    elif options.goal_budget is not None:
        raise UserError(f"--goal-budget is for goals: {name} has none, leave it out")
    runs, failed = _complete(every, options)
    done: Sequence[Work] = runs
    if experiment.following is not None:
        after = experiment.following(name, experiment, runs, options.output, budget)
        chosen = [task for task in after if not options.rows or task.name in options.rows]
        done, more = _complete(chosen, options)
        failed += more
    if done:
        where = options.output / name
        with RunDirectory(where).writing():
            where.mkdir(parents=True, exist_ok=True)
            said = experiment.report(name, experiment, list(done), where)
        print(f"{said}\nwritten to {where}")
    return 1 if failed else 0


def _of_this_version(where: Path) -> None:
    """Refuse to write over, or add to, what another version has written."""
    for file in where.glob("*.json"):
        try:
            found = json.loads(file.read_text())["version"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} is no result of ours ({error!r}): remove it") from None
        if found != __version__:
            raise UserError(
                f"{file} was written by version {found}, this is {__version__}: give another --output"
            )


def _complete(every: Sequence[W], options: Reproduce) -> tuple[list[W], int]:
    """Do what is left of these; what is done, and how many failed."""
    failed: dict[Work, str] = {}
    for task in every:
        try:
            task.start()
        except Broken as error:  # the others need not wait for it
            failed[task] = str(error)
    left = [task for task in every if task not in failed and not task.done()]
    failed |= _run(every, left, options)
    for one, reason in failed.items():
        print(f"failed: {one.path.name}: {reason}")
    return [task for task in every if task not in failed and task.done()], len(failed)


def _run(every: Sequence[Work], left: Sequence[Work], options: Reproduce) -> dict[Work, str]:
    failed: dict[Work, str] = {}
    work = executor.ray(left, options.ray) if options.ray else executor.local(left, options.workers)
    with _display(every, left) as display:
        for number, (task, reason) in enumerate(work, len(every) - len(left) + 1):
            if reason:
                failed[task] = f"{reason} (the next call tries it again)"
            display.said(f"{number} of {len(every)}: {task.path.name} {reason or 'done'}")
    return failed


class _display:
    """How far all runs are: in a terminal a line for each that is under way, elsewhere one when each has ended."""

    def __init__(self, every: Sequence[Work], left: Sequence[Work]):
        self.every, self.left = every, left
        self.live = Live(console=Console(), refresh_per_second=1, transient=True)
        self.ended = threading.Event()

    def __enter__(self) -> _display:
        if self.live.console.is_terminal:
            self.live.start()
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def said(self, line: str) -> None:
        if not self.live.console.is_terminal:
            print(line, flush=True)

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.live.stop()

    def _watch(self) -> None:
        while not self.ended.wait(1.0):
            self.live.update(self._table())

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        done = sum(task.done() for task in self.left) + len(self.every) - len(self.left)
        table.add_row("runs", f"{done} of {len(self.every)} done")
        for name, share in self._under_way():
            table.add_row(name, f"{share:.0%}")
        return table

    def _under_way(self) -> Iterator[tuple[str, float]]:
        for task in self.left:
            share = task.progress()
            if share and not task.done():
                yield task.path.name, share
