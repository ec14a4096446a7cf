"""Fine-tuning on bodies: Ant's unknown goals (Fig. 4c), Half-Cheetah and Walker2d beyond a threshold (App. D)."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.downstream.tune import RECIPE
from upside.envs.bodies import CONTROL
from upside.experiments import tables
from upside.experiments.goals import WHEN, Goals, sample, tuning, unsupervised
from upside.experiments.statistics import summary
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
    """What every result says of itself, and how chains were fine-tuned."""
    head = tables.about(command, list(dict.fromkeys(task.run for task in done)))
    tunings = {f"{row} on {env}": tuning(tasks[0]) for (env, row), tasks in _groups(done).items()}
    return {**head, "recipe": RECIPE, "budget_per_goal": done[0].budget, "tuning": tunings}


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

    budget = done[0].budget
    table: dict[str, dict[str, Any]] = {}
    curves: dict[str, list[np.ndarray]] = {}
    at = np.linspace(0, budget, 201)
    lines = [
        "| row | unsupervised | success before | fine-tuned | with noise | γ^τ before | fine-tuned | seeds |",
        "|---" * 8 + "|",
    ]
    for (_, row), tasks in _groups(done).items():
        found = [_found(task) for task in tasks]
        first = [[_reached(rises) for rises in run["curves"]] for run in found]
        curves[row] = [np.stack([at, [np.mean(np.array(f) <= a) for a in at]]) for f in first]
        entry: dict[str, Any] = {
            "seeds": [task.run.config.seed for task in tasks],
            "unsupervised_interactions": [unsupervised(task) for task in tasks],
            "runs": found,
        }
        for when in WHEN:
            for what in ("success", "reward"):
                each = [
                    float(np.mean([goal[when][what] for goal in run["goals"]])) for run in found
                ]
                entry[f"{what}_{when}"] = summary(each)
        table[row] = entry
        cells = [f"{np.mean(entry['unsupervised_interactions']):,.0f}"]
        cells += [_seeds(entry[f"success_{when}"], ".0%") for when in WHEN]
        cells += [_seeds(entry[f"reward_{when}"], ".3f") for when in WHEN[:2]]
        lines.append(f"| {row} | {' | '.join(cells)} | {', '.join(map(str, entry['seeds']))} |")
    lines += ["", f"{budget:,} interactions for each goal, the selection of a policy included."]
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
    lines = [
        "| body | row | unsupervised | before | fine-tuned | with noise | paper | seeds |",
        "|---" * 8 + "|",
    ]
    for (env, row), tasks in _groups(done).items():
        found = [_found(task)["goals"][0] for task in tasks]
        theirs = paper["rows"][env.replace("-", "_")]
        cell = theirs[paper["columns"].index(experiment.rows[row].paper)]
        entry = {
            "seeds": [task.run.config.seed for task in tasks],
            "unsupervised_interactions": [unsupervised(task) for task in tasks],
            **{when: summary([one[when]["total"] for one in found]) for when in WHEN},
            "paper": cell,
            "runs": found,
        }
        table.setdefault(env, {})[row] = entry
        cells = [f"{np.mean(entry['unsupervised_interactions']):,.0f}"]
        cells += [_seeds(entry[when], ".1f") for when in WHEN]
        cells += [f"{cell[0]:.1f} ± {cell[1]:.1f}", ", ".join(map(str, entry["seeds"]))]
        lines.append(f"| {env} | {row} | {' | '.join(cells)} |")
    beyond = ", ".join(f"x > {at:g} ({env})" for env, at in THRESHOLDS.items())
    lines += [
        "",
        f"Steps of an episode with {beyond}; {done[0].budget:,} interactions to select a policy and to fine-tune it.",
    ]
    data = {**_data(experiment.command(name), done), "thresholds": THRESHOLDS, "table": table}
    (where / "finetune.json").write_text(json.dumps(data, indent=1) + "\n")
    text = "\n".join(lines) + "\n"
    (where / "finetune.md").write_text(text)
    return text
