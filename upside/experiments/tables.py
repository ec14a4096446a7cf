"""A table of coverage: ours beside the paper's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.engine.method import Method
from upside.experiments.statistics import summary
from upside.experiments.tasks import Task, kept
from upside.runs import COVERAGE, RunDirectory
from upside.version import __version__, commit

if TYPE_CHECKING:
    from upside.experiments.catalogue import Experiment


def measure(task: Task) -> dict[str, Any]:
    """The coverage of a finished run."""
    from upside.run import Run

    return Run.load(task.path).coverage()


def report(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    """Write the table as data and as text; returns the text.

    A table that is there already is added to: rows may be made one call after another.
    """
    new = {one.path.name: {"row": one.name, **kept(one, COVERAGE, measure)} for one in done}
    file = where / "table.json"
    before = json.loads(file.read_text()) if file.is_file() else {}
    data = joined(experiment.command(name), experiment, done, new, before)
    data = {**data, "table": tabled(experiment, data["runs"])}
    text = markdown(data) + left_out(before, data)
    directory = RunDirectory(where)
    directory.keep("table.json", json.dumps(data, indent=1) + "\n")
    directory.keep("table.md", text)
    return text


def tabled(experiment: Experiment, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """For each row and maze ours beside the paper's."""
    published = json.loads(resources.files(__package__).joinpath("paper.json").read_text())
    figures = published.get(experiment.published, {"rows": {}})
    columns = {**figures["rows"], **figures.get("footnote", {})}
    table: dict[str, dict[str, Any]] = {}
    for row_name, row in experiment.rows.items():
        for column, env in enumerate(experiment.envs):
            same = of_row(runs, row_name, env)
            if same:
                cell = _summarised(same)
                cell["paper"] = columns.get(row.paper, [None, None])[column]
                cell |= compared(cell)
                table.setdefault(row_name, {})[env] = cell
    return table


def left_out(before: dict[str, Any], data: dict[str, Any]) -> str:
    """Which runs of an earlier result are not among those of this one."""
    lost = sorted(set(before.get("runs", {})) - set(data["runs"]))
    said = f"\nLeft out, made with other settings or another budget: {', '.join(lost)}.\n"
    return said if lost else ""


def of_row(runs: dict[str, dict[str, Any]], row: str, env: str) -> list[dict[str, Any]]:
    """All seeds of a row on an environment."""
    same = [run for run in runs.values() if (run["row"], run["env"]) == (row, env)]
    return sorted(same, key=lambda run: run["seed"])


def joined(
    command: str,
    experiment: Experiment,
    done: list[Task],
    new: dict[str, dict[str, Any]],
    before: dict[str, Any],
) -> dict[str, Any]:
    """What is said of the runs that are done, and of those of an earlier result `before` that had the configuration
    which their row has now. Each run says its row, environment and seed."""
    head = about(command, done)
    old = _still_valid(experiment, done, before)
    for config in before.get("configurations", []):
        others = [run for run in config["runs"] if run["run"] in old - set(new)]
        alike = [c for c in head["configurations"] if _setting(c) == _setting(config)]
        if alike:
            alike[0]["runs"] += others
        elif others:
            head["configurations"].append({**config, "runs": others})
    if old - set(new):
        head["command"] = "; ".join(dict.fromkeys([before["command"], command]))
    environments = {**before.get("environments", {}), **head["environments"]}
    runs = {**{run: before["runs"][run] for run in old}, **new}
    return {**head, "environments": environments, "runs": runs}


def _setting(config: dict[str, Any]) -> str:
    """A configuration without the runs that had it; one of an earlier version says what it did not say then."""
    said = {part: value for part, value in config.items() if part != "runs"}
    with contextlib.suppress(ValueError):  # of settings that are no more: like no other
        said["settings"] = Method.from_json(said["settings"]).to_json()
    return json.dumps(said)


def _still_valid(experiment: Experiment, done: list[Task], before: dict[str, Any]) -> set[str]:
    """Runs of an earlier table whose configuration is that of their row, on an environment that is still the same.

    A row's configuration is as done now, or as declared.

    Where runs were done now with a budget that was given (`--interactions`), others must have had it too.
    """
    again = {(one.name, one.config.env) for one in done}  # a row's settings suit its environment
    rows = {row for row, _ in again}
    runs = {name: row.run or name for name, row in experiment.rows.items()}
    given = {one.config.max_interactions for one in done}
    given -= {row.interactions for name, row in experiment.rows.items() if runs[name] in rows}
    declared = [
        experiment.task(name, Path(), env, 0, interactions)
        for name in experiment.rows
        for env in experiment.envs
        if (runs[name], env) not in again
        for interactions in given or (None,)
    ]
    now = {
        (one.name, one.config.env, _setting(config))
        for one in [*declared, *done]
        for config in about("", [one])["configurations"]
    }
    anything = next(iter(experiment.rows))
    every = [experiment.task(anything, Path(), env, 0) for env in experiment.envs]
    worlds = about("", every)["environments"]
    return {
        run["run"]
        for config in before.get("configurations", [])
        for run in config["runs"]
        if (before["runs"][run["run"]]["row"], run["env"], _setting(config)) in now
        and json.dumps(before["environments"][run["env"]]) == json.dumps(worlds.get(run["env"]))
    }


def _summarised(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A cell of the table: one row on one maze, all seeds."""
    return {
        **summary([float(run["buckets"]) for run in runs]),
        "seeds": [run["seed"] for run in runs],
        "reachable": runs[0]["reachable"],
        "policies": [run["policies"] for run in runs],
        "above_eta_on_fresh_states": [run["share_above_eta_on_fresh_states"] for run in runs],
        "interactions": [run["interactions"] for run in runs],
        "seconds_per_million": [_per_million(run, "seconds") for run in runs],
        "core_seconds_per_million": [_per_million(run, "core_seconds") for run in runs],
    }


def compared(cell: dict[str, Any]) -> dict[str, Any]:
    """How far ours is from the paper's figure, and whether that is more than either varies between seeds."""
    if not cell["paper"]:
        return {}
    (mean, spread), own = cell["paper"], cell["spread"]
    gap = cell["mean"] - mean  # of one seed nobody knows the spread
    return {"difference": gap, "beyond_spread": own is not None and abs(gap) > max(spread, own)}


def _per_million(run: dict[str, Any], cost: str) -> float | None:
    """What a million interactions of a run cost, where that is known."""
    spent = run.get(cost)
    return None if spent is None else round(1e6 * spent / max(1, run["interactions"]), 2)


def about(command: str, done: list[Task]) -> dict[str, Any]:
    """What every result says of itself: configurations once each, with the runs that had them and their commits."""
    configurations: dict[str, dict[str, Any]] = {}
    environments: dict[str, dict[str, Any]] = {}
    for one in done:
        config = dataclasses.asdict(one.config)
        env, seed = config.pop("env"), config.pop("seed")
        environments[env] = {part: config.pop(part) for part in ("layout", "simulated")}
        same = configurations.setdefault(json.dumps(config), {"runs": [], **config})
        made = {"run": one.path.name, "env": env, "seed": seed, "commit": one.commit()}
        same["runs"].append(made)
    return {
        "command": command,
        "version": __version__,
        "commit": commit(),
        "configurations": list(configurations.values()),
        "environments": environments,
    }


def markdown(data: dict[str, Any]) -> str:
    """The table as text: mean ± spread, IQM with its interval, policies; the paper's figure and how ours differs."""
    envs = list(dict.fromkeys(env for cells in data["table"].values() for env in cells))
    published = any(cell["paper"] for cells in data["table"].values() for cell in cells.values())
    columns = ["ours", "runs × interactions", "IQM [95 %]", "policies"]
    columns += ["paper", "difference"] if published else []
    heads = [f"{env}: {columns[0]} | " + " | ".join(columns[1:]) for env in envs]
    lines = [f"| row | {' | '.join(heads)} |", "|---" * (1 + len(columns) * len(envs)) + "|"]
    for name, cells in data["table"].items():
        parts = [name]
        for env in envs:
            cell = cells.get(env)
            parts += _cell(cell)[: len(columns)] if cell else [""] * len(columns)
        lines.append("| " + " | ".join(parts) + " |")
    every = [cell for cells in data["table"].values() for cell in cells.values()]
    most = max(max(cell["interactions"]) for cell in every)
    seeds = sorted({seed for cell in every for seed in cell["seeds"]})
    few = " The IQM of fewer than four is their mean." if len(seeds) < 4 else ""
    bold = " Differences in bold are larger than the spread." if published else ""
    ran = f"\nSeeds {', '.join(map(str, seeds))}; at most {most:,} interactions a run."
    lines.append(f"{ran}{few}{bold}")
    return "\n".join(lines) + "\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    spread = f" ± {cell['spread']:.2f}" if cell["spread"] is not None else ""
    low_high = cell["interval"]
    interval = f" [{low_high[0]:.1f}, {low_high[1]:.1f}]" if low_high else ""
    policies = f"{sum(cell['policies']) / len(cell['policies']):.1f}"
    paper = f"{cell['paper'][0]:.2f} ± {cell['paper'][1]:.2f}" if cell["paper"] else ""
    used = f"{len(cell['values'])} × {np.mean(cell['interactions']) / 1e6:.2g}M"
    differs = f"{cell['difference']:+.1f}" if cell["paper"] else ""
    if cell.get("beyond_spread"):
        differs = f"**{differs}**"
    ours = f"{cell['mean']:.2f}{spread}"
    return [ours, used, f"{cell['iqm']:.1f}{interval}", policies, paper, differs]
