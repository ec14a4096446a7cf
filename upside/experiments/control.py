"""Coverage of bodies over interactions (Fig. 3): what the policies of a run cover, and what it visited to learn them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.evaluate import coverage
from upside.experiments import tables
from upside.experiments.statistics import summary
from upside.experiments.tasks import Task, kept

if TYPE_CHECKING:
    from upside.experiments.catalogue import Experiment

MARKS = 20
COUNTS = ("buckets", "noisy", "visited")


def curve(task: Task) -> dict[str, Any]:
    """Buckets that the policies pass, noise-free, and that were visited so far, at MARKS numbers of interactions;
    in the end also what the policies pass with noise, as the paper's figure counts.

    RANDOM has no policies: it only visits.
    """
    from upside.run import Run

    run, most = Run.load(task.path), task.config.max_interactions
    at = np.linspace(0, most, MARKS + 1)[1:]
    spent = np.array([entry["interactions"] for entry in run.history])
    last = np.clip(np.searchsorted(spent, at, side="right") - 1, 0, None)
    counted: dict[str, Any] = {
        name: np.array([entry[name] for entry in run.history])[last].tolist()
        for name in (("visited",) if run.method.growth.max_depth == 0 else ("buckets", "visited"))
        if name in run.history[0]  # runs that began before it was counted
    }
    if "buckets" in counted:
        counted["noisy"] = [len(coverage.with_noise(run))]
    return {"at": at.tolist(), **counted}


def report(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    """Curves, a table of what was covered in the end, and the configurations behind both."""
    from upside.figures.compare import coverage as picture

    curves: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for task in done:
        of_env = curves.setdefault(task.config.env, {})
        of_env.setdefault(task.name, []).append(kept(task, "curve.json", curve))
    lines = [
        "| environment | row | its policies | with noise and diffusing parts, ten episodes each | visited | seeds |",
        "|---" * 6 + "|",
    ]
    table: dict[str, Any] = {}
    for env, rows in curves.items():
        for row, runs in rows.items():
            ends: dict[str, Any] = {
                name: summary([float(r[name][-1]) for r in runs])
                for name in COUNTS
                if all(name in r for r in runs)
            }
            table.setdefault(env, {})[row] = ends | {"curves": runs}
            cells = [_cell(ends[name]) if name in ends else "-" for name in COUNTS]
            lines.append(f"| {env} | {row} | {' | '.join(cells)} | {len(runs)} |")
    data = {**tables.about(experiment.command(name), done), "table": table}
    (where / "curves.json").write_text(json.dumps(data, indent=1) + "\n")
    picture(curves).savefig(where / "coverage.png", dpi=130)
    text = "\n".join(lines) + "\n"
    (where / "table.md").write_text(text)
    return text + f"\npicture: {where / 'coverage.png'}\n"


def _cell(end: dict[str, Any]) -> str:
    return f"{end['mean']:.1f} ({', '.join(f'{v:.0f}' for v in end['values'])})"
