"""Figures of several runs. Matplotlib is imported when something is drawn, not before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from upside.experiments import tables
from upside.experiments.tasks import Task
from upside.runs import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from upside.experiments.catalogue import Experiment
    from upside.run import Run

DPI = 130


def _loaded(experiment: Experiment, done: list[Task]) -> dict[str, Run]:
    """The runs in the order of the experiment's rows, named by what tells them apart."""
    from upside.run import Run

    order = list(experiment.rows)
    ranked = sorted(done, key=lambda task: order.index(task.name))
    several = len({task.config.seed for task in done}) > 1
    return {
        f"{task.name}{f', seed {task.config.seed}' if several else ''} on {task.config.env}": Run.load(
            task.path
        )
        for task in ranked
    }


def _save(figure: Figure, path: Path) -> str:
    figure.savefig(path, dpi=DPI)
    return f"picture: {path}"


def policies(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    """The picture, and which runs it is of."""
    from upside.figures import compare

    about = tables.about(experiment.command(name), done)
    RunDirectory(where).keep(f"{name}.json", json.dumps(about, indent=1) + "\n")
    return _save(compare.policies(_loaded(experiment, done)), where / f"{name}.png")


def table_and_policies(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    """The table of all runs, and what those of the first seed look like."""
    first = min(task.config.seed for task in done)
    shown = [task for task in done if task.config.seed == first]
    table = tables.report(name, experiment, done, where)
    return f"{table}\n{policies(name, experiment, shown, where)}"


def discriminators(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    from upside.figures import compare

    return _save(compare.discriminators(_loaded(experiment, done)), where / f"{name}.png")


def discriminability(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    from upside.figures import compare
    from upside.run import Run

    groups = {
        row: [Run.load(task.path) for task in done if task.name == row] for row in experiment.rows
    }
    groups = {row: runs for row, runs in groups.items() if runs}
    curves = {}
    for row, runs in groups.items():
        at, lines = compare.over_interactions(runs)
        curves[row] = {"at": at.round().tolist(), "runs": lines.round(4).tolist()}
    data = {**tables.about(experiment.command(name), done), "curves": curves}
    (where / f"{name}.json").write_text(json.dumps(data) + "\n")
    return _save(compare.discriminability(groups), where / f"{name}.png")


def evolution(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    from upside.figures import compare
    from upside.run import Run

    return "\n".join(
        _save(compare.evolution(Run.load(task.path)), where / f"{name}-{task.path.name}.png")
        for task in done
    )
