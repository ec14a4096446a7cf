"""Fine-tuning on bodies: Ant's unknown goals (Fig. 4c), Half-Cheetah and Walker2d beyond a threshold (App. D)."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.envs.bodies import CONTROL
from upside.experiments.goals import Goals, sample, unsupervised
from upside.experiments.statistics import summary
from upside.types import World
from upside.version import __version__, commit

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


def _found(task: Goals) -> dict[str, Any]:
    return json.loads((task.path / "result.json").read_text())


def _reached(rises: list[list[float]]) -> float:
    """Interactions after which a noise-free episode was paid for the first time."""
    return next((spent for spent, best in rises if best > 0), np.inf)


def _groups(done: list[Goals]) -> dict[tuple[str, str], list[Goals]]:
    """Tasks by body and row."""
    groups: dict[tuple[str, str], list[Goals]] = {}
    for task in done:
        groups.setdefault((task.run.config.env, task.name), []).append(task)
    return groups


def _data(command: str, done: list[Goals]) -> dict[str, Any]:
    return {
        "command": command,
        "version": __version__,
        "commit": commit(),
        "budget_per_goal": done[0].budget,
    }


def goals(name: str, experiment: Experiment, done: list[Goals], where: Path) -> str:
    """The share of goals that are reached, over interactions and in the end."""
    from upside.figures import DPI
    from upside.figures.goal import learning_curves

    budget = done[0].budget
    table: dict[str, dict[str, Any]] = {}
    curves: dict[str, list[np.ndarray]] = {}
    at = np.linspace(0, budget, 201)
    lines = ["| row | unsupervised | goals reached before | after | γ^τ after |", "|---" * 5 + "|"]
    for (_, row), tasks in _groups(done).items():
        found = [_found(task) for task in tasks]
        first = [[_reached(rises) for rises in run["curves"]] for run in found]
        curves[row] = [np.stack([at, [np.mean(np.array(f) <= a) for a in at]]) for f in first]
        entry: dict[str, Any] = {
            "seeds": [task.run.config.seed for task in tasks],
            "unsupervised_interactions": [unsupervised(task) for task in tasks],
            "runs": found,
        }
        for when, what in (("before", "success"), ("after", "success"), ("after", "reward")):
            each = [float(np.mean([goal[when][what] for goal in run["goals"]])) for run in found]
            entry[f"{what}_{when}"] = summary(each)
        table[row] = entry
        spent = np.mean(entry["unsupervised_interactions"])
        before, after = entry["success_before"]["mean"], entry["success_after"]["mean"]
        reward = entry["reward_after"]["mean"]
        lines.append(f"| {row} | {spent:,.0f} | {before:.0%} | {after:.0%} | {reward:.3f} |")
    (where / "goals.json").write_text(
        json.dumps({**_data(experiment.command(name), done), "table": table}, indent=1) + "\n"
    )
    text = "\n".join(lines) + "\n"
    (where / "goals.md").write_text(text)
    title = f"Ant: 48 unknown goals in [-8, 8]², {budget:,} interactions each"
    figure = learning_curves(curves, title, "goals reached by a noise-free episode so far (share)")
    figure.savefig(where / f"{name}.png", dpi=DPI)
    return f"{text}\npicture: {where / f'{name}.png'}"


def beyond(name: str, experiment: Experiment, done: list[Goals], where: Path) -> str:
    """Steps of an episode beyond the threshold, ours beside the paper's."""
    published = json.loads(resources.files(__package__).joinpath("paper.json").read_text())
    paper = published["finetuning_control"]
    table: dict[str, dict[str, Any]] = {}
    lines = ["| body | row | before | fine-tuned | paper |", "|---" * 5 + "|"]
    for (env, row), tasks in _groups(done).items():
        found = [_found(task)["goals"][0] for task in tasks]
        theirs = paper["rows"][env.replace("-", "_")]
        cell = theirs[paper["columns"].index(experiment.rows[row].paper)]
        entry = {
            "seeds": [task.run.config.seed for task in tasks],
            "unsupervised_interactions": [unsupervised(task) for task in tasks],
            "before": summary([one["before"]["total"] for one in found]),
            "fine-tuned": summary([one["finetuned"]["total"] for one in found]),
            "paper": cell,
            "runs": found,
        }
        table.setdefault(env, {})[row] = entry
        ours = [f"{entry[w]['mean']:.1f}" for w in ("before", "fine-tuned")]
        lines.append(f"| {env} | {row} | {' | '.join(ours)} | {cell[0]:.1f} ± {cell[1]:.1f} |")
    data = {**_data(experiment.command(name), done), "thresholds": THRESHOLDS, "table": table}
    (where / "finetune.json").write_text(json.dumps(data, indent=1) + "\n")
    text = "\n".join(lines) + "\n"
    (where / "finetune.md").write_text(text)
    return text
