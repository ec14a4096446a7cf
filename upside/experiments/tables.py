"""The paper's tables of coverage, row by row, ours beside the paper's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from upside.experiments.statistics import summary
from upside.experiments.tasks import Task, task
from upside.types import UserError, unknown
from upside.version import __version__

MAZES = ("bottleneck-maze", "u-maze")
BASELINES, UPSIDE = 10_000_000, 1_000_000  # interactions, as in App. C
RANDOM_EPISODES = 5000
"""Episodes that RANDOM's buckets are counted over: the number decides, so it is stated."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table: a method with settings, and what the paper calls it."""

    method: str
    interactions: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    paper: str | None = None
    """Its row in `paper.json`."""


def _numbers(method: str, paper: str) -> dict[str, Row]:
    return {
        f"{method}-{n}": Row(method, BASELINES, {"num_skills": n}, f"{paper}_{n}")
        for n in (10, 20, 50)
    }


COVERAGE_MAZES: dict[str, Row] = {
    "random": Row("random", BASELINES, paper="random"),
    **_numbers("diayn", "diayn"),
    "diayn-curr": Row("diayn-curr", BASELINES, paper="diayn_curr"),
    "diayn-hier": Row("diayn-hier", BASELINES, paper="diayn_hier"),
    **_numbers("edl", "edl"),
    **_numbers("smm", "smm"),
    **_numbers("flat-upside", "flat_upside"),
    "upside-paper": Row("upside-paper", UPSIDE, paper="upside"),
    "upside": Row("upside", UPSIDE, paper="upside"),
}

ABLATION_LENGTH: dict[str, Row] = {
    f"length-{n}": Row("upside", UPSIDE, {"T": n, "H": n}, str(n)) for n in (10, 20, 30, 40, 50)
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table by name."""

    about: str
    rows: dict[str, Row]
    published: str
    """Its table in `paper.json`."""


EXPERIMENTS: dict[str, Experiment] = {
    "coverage-mazes": Experiment(
        "Table 2: buckets covered on both mazes, every method", COVERAGE_MAZES, "coverage_mazes"
    ),
    "ablation-length": Experiment(
        "App. D: UPSIDE with T = H from 10 to 50 on both mazes",
        ABLATION_LENGTH,
        "ablation_skill_length_T_equals_H",
    ),
}


def get(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def tasks(
    experiment: Experiment,
    where: Path,
    rows: list[str] | None = None,
    seeds: list[int] | None = None,
    interactions: int | None = None,
) -> list[Task]:
    """The runs of a table, or of some of its rows, longest first so that no core waits at the end."""
    for name in rows or []:
        if name not in experiment.rows:
            raise unknown("row", name, experiment.rows)
    made = [
        task(
            name,
            where,
            env,
            seed,
            row.interactions if interactions is None else interactions,
            row.method,
            **row.settings,
        )
        for name, row in experiment.rows.items()
        if not rows or name in rows
        for env in MAZES
        for seed in seeds or [0, 1, 2]
    ]
    return sorted(made, key=lambda t: -t.config.max_interactions)


def measure(task: Task) -> dict[str, Any]:
    """The coverage of a finished run; measured once, then kept beside it."""
    from upside.run import Run
    from upside.runs import RunDirectory

    kept = task.path / "coverage.json"
    if kept.is_file():
        return json.loads(kept.read_text())
    run = Run.load(task.path)
    report = run.coverage()
    if len(run) == 1:  # nothing but a diffusing part: count what that reaches
        states = run.rollouts(RANDOM_EPISODES).diffusing
        reached = set(run.env.space.bucket(states[0]).ravel().tolist()) - {-1}
        report |= {"buckets": len(reached), "episodes": RANDOM_EPISODES}
    with RunDirectory(task.path).writing():
        kept.write_text(json.dumps(report, indent=1) + "\n")
    return report


def results(
    name: str, done: list[Task], report: Callable[[Task], dict[str, Any]] = measure
) -> dict[str, Any]:
    """The table as data: every run's numbers, and for each row and maze ours beside the paper's."""
    experiment = get(name)
    if not done:
        raise UserError("no run has ended yet: nothing to show")
    published = json.loads(resources.files(__package__).joinpath("paper.json").read_text())
    columns = published[experiment.published]["rows"]
    table: dict[str, dict[str, Any]] = {}
    for row_name, row in experiment.rows.items():
        for column, env in enumerate(MAZES):
            runs = [t for t in done if t.name == row_name and t.config.env == env]
            if not runs:
                continue
            reports = [report(t) for t in runs]
            paper = columns.get(row.paper, [None, None])[column]
            cell = {
                **summary([float(r["buckets"]) for r in reports]),
                "seeds": [t.config.seed for t in runs],
                "reachable": reports[0]["reachable"],
                "policies": [r["policies"] for r in reports],
                "interactions": [r["interactions"] for r in reports],
                "seconds_per_million": [
                    round(1e6 * r["seconds"] / r["interactions"], 2) for r in reports
                ],
                "paper": paper,
            }
            table.setdefault(row_name, {})[env] = cell
    return {
        "command": f"upside reproduce {name}",
        "version": __version__,
        "table": table,
        "configurations": {t.path.name: dataclasses.asdict(t.config) for t in done},
    }


def markdown(data: dict[str, Any]) -> str:
    """The table as text: mean ± spread, IQM with its interval, and the paper's figure."""
    lines = [
        "| row | " + " | ".join(f"{env}: ours | IQM [95 %] | paper" for env in MAZES) + " |",
        "|---" * (1 + 3 * len(MAZES)) + "|",
    ]
    for name, cells in data["table"].items():
        parts = [name]
        for env in MAZES:
            cell = cells.get(env)
            parts += _cell(cell) if cell else ["", "", ""]
        lines.append("| " + " | ".join(parts) + " |")
    return "\n".join(lines) + "\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    spread = f" ± {cell['spread']:.2f}" if cell["spread"] is not None else ""
    low_high = cell["interval"]
    interval = f" [{low_high[0]:.1f}, {low_high[1]:.1f}]" if low_high else ""
    paper = f"{cell['paper'][0]:.2f} ± {cell['paper'][1]:.2f}" if cell["paper"] else ""
    return [f"{cell['mean']:.2f}{spread}", f"{cell['iqm']:.1f}{interval}", paper]
