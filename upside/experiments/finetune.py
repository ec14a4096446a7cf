"""Fine-tuning on bodies: Ant's unknown goals (Fig. 4c), Half-Cheetah and Walker2d beyond a threshold (App. D)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside import envs
from upside.downstream.tune import RECIPE
from upside.envs.bodies import CONTROL
from upside.experiments import tables
from upside.experiments.goals import WHEN, Goals, sample, tuning, unsupervised
from upside.experiments.statistics import summary
from upside.runs import RunDirectory
from upside.types import World

if TYPE_CHECKING:
    from upside.experiments.catalogue import Experiment

HALF_SIDE = 8.0
"""Ant's goals are in [-8, 8]²."""
THRESHOLDS = {"half-cheetah": 15.0, "walker2d": 4.0}


def around(env: World) -> dict[str, Any]:
    """48 goals around Ant's start."""
    return {"goals": list(sample(env, HALF_SIDE).values()), "horizon": CONTROL.episode}


def farther(env: World) -> dict[str, Any]:
    """A reward at every step beyond the body's threshold."""
    return {"goals": [[THRESHOLDS[env.name]]], "kind": "beyond", "horizon": CONTROL.episode}


def _reached(rises: list[list[float]]) -> float:
    """Interactions after which a noise-free episode was paid for the first time."""
    return next((spent for spent, best in rises if best > 0), np.inf)


def _joined(
    name: str, experiment: Experiment, done: list[Goals], file: Path
) -> tuple[dict[str, Any], str]:
    """What every result says of itself, what was asked, and what became of every run's goals; and in words which
    runs were left out.

    Runs of earlier calls stay, where they were asked the same: bodies and seeds may be done one by one.
    """
    asked = {
        env: {"recipe": RECIPE, "budget_per_goal": done[0].budget, **experiment.ask(envs.make(env))}
        for env in experiment.envs
    }
    ways = {_way(task): tuning(task) for task in done}
    asked, ways = json.loads(json.dumps([asked, ways]))
    new = {
        task.run.path.name: {
            "row": task.run.name,
            "env": task.run.config.env,
            "seed": task.run.config.seed,
            "way": _way(task),
            "unsupervised_interactions": unsupervised(task),
            **json.loads((task.path / "result.json").read_text()),
        }
        for task in done
    }
    before = json.loads(file.read_text()) if file.is_file() else {}
    alike = _asked_alike(before, asked, ways)
    data = tables.joined(experiment.command(name), experiment, [t.run for t in done], new, alike)
    ways = {**before.get("tuning", {}), **ways}
    tunings = {run["way"]: ways[run["way"]] for run in data["runs"].values()}
    said = {"asked": asked, "budget_per_goal": done[0].budget, "tuning": tunings}
    return {**data, **said}, tables.left_out(before, data)


def _way(task: Goals) -> str:
    return f"{task.name} on {task.run.config.env}"


def _asked_alike(
    before: dict[str, Any], asked: dict[str, Any], ways: dict[str, Any]
) -> dict[str, Any]:
    """Those runs of an earlier result that had the same goals, budget and tuning."""
    alike = {
        name
        for name, run in before.get("runs", {}).items()
        if before["asked"][run["env"]] == asked.get(run["env"])
        and before["tuning"][run["way"]] == ways.get(run["way"], before["tuning"][run["way"]])
    }
    kept = [
        {**config, "runs": [run for run in config["runs"] if run["run"] in alike]}
        for config in before.get("configurations", [])
    ]
    return {**before, "configurations": kept} if alike else {}


def _rows(
    experiment: Experiment, data: dict[str, Any]
) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Every body and row that has runs, with these."""
    for env in experiment.envs:
        for name, row in experiment.rows.items():
            if found := tables.of_row(data["runs"], row.run or name, env):
                yield env, name, found


def _cells(runs: list[dict[str, Any]], ends: list[str]) -> str:
    """A line of a table: what was spent before, what came of it, and whose it is."""
    spent = np.mean([run["unsupervised_interactions"] for run in runs])
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return " | ".join([f"{spent:,.0f}" if spent else "-", *ends, seeds])


def _seeds(each: dict[str, Any], form: str) -> str:
    """The mean, and every seed's number."""
    return f"{each['mean']:{form}} ({', '.join(f'{v:{form}}' for v in each['values'])})"


def goals(name: str, experiment: Experiment, done: list[Goals], where: Path) -> str:
    """The share of goals that are reached, over interactions and in the end.

    The curve counts a goal from the first noise-free episode on that reached it; the table has what the best actors
    do in the end, without noise and in ten episodes with it.
    """
    from upside.figures import DPI
    from upside.figures.goal import learning_curves

    data, left_out = _joined(name, experiment, done, where / "goals.json")
    budget, data["table"] = data["budget_per_goal"], {}
    curves: dict[str, list[np.ndarray]] = {}
    at = np.linspace(0, budget, 201)
    lines = [
        "| row | unsupervised | success before | fine-tuned | with noise | γ^τ before | fine-tuned | seeds |",
        "|---" * 8 + "|",
    ]
    for _, row, runs in _rows(experiment, data):
        first = [[_reached(rises) for rises in run["curves"]] for run in runs]
        curves[row] = [np.stack([at, [np.mean(np.array(f) <= a) for a in at]]) for f in first]
        mean = lambda run, when, what: float(np.mean([g[when][what] for g in run["goals"]]))  # noqa: E731
        entry = {
            f"{what}_{when}": summary([mean(run, when, what) for run in runs])
            for what in ("success", "reward")
            for when in WHEN
        }
        data["table"][row] = {"seeds": [run["seed"] for run in runs], **entry}
        ends = [_seeds(entry[f"success_{when}"], ".0%") for when in WHEN]
        ends += [_seeds(entry[f"reward_{when}"], ".3f") for when in WHEN[:2]]
        lines.append(f"| {row} | {_cells(runs, ends)} |")
    lines += ["", f"{budget:,} interactions for each goal, the selection of a policy included."]
    lines += [left_out] if left_out else []
    text = _written("goals", data, lines, where)
    title = f"Ant: 48 unknown goals in [-8, 8]², {budget:,} interactions each"
    figure = learning_curves(curves, title, "goals reached by a noise-free episode so far (share)")
    figure.savefig(where / f"{name}.png", dpi=DPI)
    return f"{text}\npicture: {where / f'{name}.png'}"


def beyond(name: str, experiment: Experiment, done: list[Goals], where: Path) -> str:
    """Steps of an episode beyond the threshold, ours beside the paper's."""
    published = json.loads(resources.files(__package__).joinpath("paper.json").read_text())
    paper = published["finetuning_control"]
    data, left_out = _joined(name, experiment, done, where / "finetune.json")
    data["table"] = {}
    lines = [
        "| body | row | unsupervised | before | fine-tuned | with noise | paper | seeds |",
        "|---" * 8 + "|",
    ]
    for env, row, runs in _rows(experiment, data):
        theirs = paper["rows"][env.replace("-", "_")]
        cell = theirs[paper["columns"].index(experiment.rows[row].paper)]
        entry = {when: summary([run["goals"][0][when]["total"] for run in runs]) for when in WHEN}
        seeds = [run["seed"] for run in runs]
        data["table"].setdefault(env, {})[row] = {"seeds": seeds, **entry, "paper": cell}
        ends = [_seeds(entry[when], ".1f") for when in WHEN]
        ends.append(f"{cell[0]:.1f} ± {cell[1]:.1f}")
        lines.append(f"| {env} | {row} | {_cells(runs, ends)} |")
    beyond = ", ".join(f"x > {at:g} ({env})" for env, at in THRESHOLDS.items())
    budget = f"{data['budget_per_goal']:,} interactions to select a policy and to fine-tune it"
    lines += ["", f"Steps of an episode with {beyond}; {budget}."]
    lines += [left_out] if left_out else []
    return _written("finetune", data, lines, where)


def _written(file: str, data: dict[str, Any], lines: list[str], where: Path) -> str:
    """The numbers as data and as text, which is returned."""
    text = "\n".join(lines) + "\n"
    directory = RunDirectory(where)
    directory.keep(f"{file}.json", json.dumps(data, indent=1) + "\n")
    directory.keep(f"{file}.md", text)
    return text
