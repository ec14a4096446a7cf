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
from upside.runs import RunDirectory

if TYPE_CHECKING:
    from upside.experiments.catalogue import Experiment

MARKS = 20
COUNTS = ("buckets", "noisy", "visited")


def curve(task: Task) -> dict[str, Any]:
    """Buckets that the policies pass, noise-free, and that were visited so far, at MARKS numbers of interactions;
    in the end also what the policies pass with noise, as the paper's figure counts.

    RANDOM has no policies: it only visits. What a run had covered before its first line of metrics nobody knows: 0.
    """
    from upside.run import Run

    run, most = Run.load(task.path), task.config.max_interactions
    at = np.linspace(0, most, MARKS + 1)[1:]
    spent = np.array([entry["interactions"] for entry in run.history])
    last = np.searchsorted(spent, at, side="right")
    counted: dict[str, Any] = {
        name: np.array([0, *(entry[name] for entry in run.history)])[last].tolist()
        for name in (("visited",) if run.method.growth.max_depth == 0 else ("buckets", "visited"))
    }
    if "buckets" in counted:
        counted["noisy"] = [len(coverage.with_noise(run))]
    said = {"env": task.config.env, "seed": task.config.seed, "policies": len(run) - 1}
    total = int(np.prod(run.env.space.buckets))
    spent_in_all = run.summary["interactions"]
    costs = {name: run.summary.get(name) for name in ("seconds", "core_seconds")}
    return {
        **said,
        "of": total,
        "interactions": spent_in_all,
        **costs,
        "at": at.tolist(),
        **counted,
    }


def report(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    """Curves, a table of what was covered in the end, and the configurations behind both; runs of earlier calls stay."""
    from upside.figures.compare import coverage as picture

    file = where / "curves.json"
    before = json.loads(file.read_text()) if file.is_file() else {}
    new = {one.path.name: {"row": one.name, **kept(one, "curve.json", curve)} for one in done}
    data = tables.joined(experiment.command(name), experiment, done, new, before)
    found = {
        env: {
            row: same for row in experiment.rows if (same := tables.of_row(data["runs"], row, env))
        }
        for env in experiment.envs
    }
    found = {env: rows for env, rows in found.items() if rows}
    data["table"] = {
        env: {row: _ends(runs) for row, runs in rows.items()} for env, rows in found.items()
    }
    directory = RunDirectory(where)
    directory.keep("curves.json", json.dumps(data, indent=1) + "\n")
    text = markdown(data) + tables.left_out(before, data)
    directory.keep("table.md", text)
    picture(found).savefig(where / "coverage.png", dpi=130)
    return text + f"\npicture: {where / 'coverage.png'}\n"


def _ends(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What was covered in the end."""
    ends: dict[str, Any] = {
        name: summary([float(r[name][-1]) for r in runs])
        for name in COUNTS
        if all(name in r for r in runs)
    }
    each = {name: [r[name] for r in runs] for name in ("policies", "interactions", "core_seconds")}
    return {**ends, **each, "of": runs[0]["of"], "seeds": [r["seed"] for r in runs]}


def markdown(data: dict[str, Any]) -> str:
    """One line a row: means, and every seed's number; an interval of the IQM where there are seeds enough."""
    lines = [
        "| environment | row | its policies | with noise and diffusing parts, ten episodes each | visited "
        "| policies | interactions | seeds |",
        "|---" * 8 + "|",
    ]
    for env, rows in data["table"].items():
        for row, ends in rows.items():
            cells = [_cell(ends[name]) if name in ends else "-" for name in COUNTS]
            policies = ", ".join(map(str, ends["policies"])) if "buckets" in ends else "-"
            spent = ", ".join(f"{n / 1e6:.2f}M" for n in ends["interactions"])
            seeds = ", ".join(map(str, ends["seeds"]))
            lines.append(
                f"| {env} | {row} | {' | '.join(cells)} | {policies} | {spent} | {seeds} |"
            )
    lines.append("")
    for env, rows in data["table"].items():
        total = next(iter(rows.values()))["of"]
        box, features = (
            data["environments"][env]["simulated"][part] for part in ("box", "features")
        )
        sides = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(box[::2], box[1::2], strict=True))
        lines.append(f"{env}: {total:,} buckets of {features} in {sides}.")
    return "\n".join(lines) + "\n"


def _cell(end: dict[str, Any]) -> str:
    interval = end["interval"]
    within = f" [{interval[0]:.0f}, {interval[1]:.0f}]" if interval else ""
    return f"{end['mean']:.1f}{within} ({', '.join(f'{v:.0f}' for v in end['values'])})"
