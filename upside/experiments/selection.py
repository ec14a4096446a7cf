"""Model selection by the paper's rule (App. C), which never looks at coverage.

Baselines by cumulated intrinsic reward; methods that decide on their number of policies by that number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.experiments import tables
from upside.experiments.tasks import Task, kept

if TYPE_CHECKING:
    from upside.experiments.catalogue import Experiment

POLICY_RANGES: dict[str, tuple[Any, ...]] = {"sigma": (0.1,), "lr_pol": (1e-4,)}
JUDGE_RANGES: dict[str, tuple[Any, ...]] = {"lr_discr": (1e-4,), "k_discr": (10,), "j": (10,)}
VQVAE_RANGES: dict[str, tuple[Any, ...]] = {"beta": (0.5,), "lr_vqvae": (1e-4,)}
RANGES: dict[str, dict[str, tuple[Any, ...]]] = {
    "diayn": {**POLICY_RANGES, **JUDGE_RANGES},
    "diayn-sac": {"alpha": (0.01, 0.001), "lr_pol": (1e-4,), **JUDGE_RANGES},
    "vic": {**POLICY_RANGES, **JUDGE_RANGES},
    "smm": {**POLICY_RANGES, **JUDGE_RANGES},
    "edl": {**POLICY_RANGES, **VQVAE_RANGES},
    "flat-upside": {"k_pol": (100,), **POLICY_RANGES, **JUDGE_RANGES},
    "diayn-curr": {"k_pol": (10,), **POLICY_RANGES, **JUDGE_RANGES},
    "diayn-hier": {"k_pol": (10,), **POLICY_RANGES, **JUDGE_RANGES},
    "upside-paper": {"k_pol": (10,), **POLICY_RANGES, **JUDGE_RANGES},
}
"""Other values of App. C's ranges, each tried by itself: all combinations would be 96 runs a method and maze.

Of SAC the paper says that it was tuned over a larger range, not which: ours is of the entropy's weight."""

ON_BODIES: dict[str, dict[str, tuple[Any, ...]]] = {
    "diayn": {"k_pol": (10,), **RANGES["diayn"], "snap": (0.9,)}
}
"""The same on bodies, and whether actions beyond 0.9 are executed at their bound, as UPSIDE's are there."""

TOGETHER: dict[str, dict[str, Any]] = {"smm": {"sigma": 0.1, "j": 10}}
"""Two values at a time, where each by itself has been the better one."""
TOGETHER_ON_BODIES: dict[str, dict[str, Any]] = {"diayn": {"sigma": 0.1, "lr_pol": 1e-4}}


def candidates(
    base: dict[str, dict[str, Any]],
    every: dict[str, dict[str, tuple[Any, ...]]] = RANGES,
    together: dict[str, dict[str, Any]] = TOGETHER,
) -> dict[str, tuple[str, dict[str, Any]]]:
    """A row for each candidate: the method as it is with `base`, and with one setting or two changed."""
    rows: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, ranges in every.items():
        method = name.removesuffix("-sac")  # the learner is a setting
        changes = [{setting: value} for setting, values in ranges.items() for value in values]
        for change in [{}, *changes, *([together[name]] if name in together else [])]:
            label = "".join(f"+{setting}={value:g}" for setting, value in change.items())
            rows[name + label] = (method, {**base[name], **change})
    return rows


def score(task: Task) -> dict[str, Any]:
    """What a run is chosen by."""
    from upside.evaluate.intrinsic import intrinsic_reward
    from upside.run import Run
    from upside.skills.growth import Fixed

    run = Run.load(task.path)
    if isinstance(run.method.growth, Fixed):
        return {"by": "intrinsic reward", "score": intrinsic_reward(run)}
    return {"by": "policies", "score": float(len(run) - 1)}


def report(name: str, experiment: Experiment, done: list[Task], where: Path) -> str:
    """Scores of all candidates, the best of each method marked; mean over environments and seeds."""
    found = {task: kept(task, "selection.json", score) for task in done}
    lines = ["| method | interactions | candidate | chosen by | score | |", "|---" * 6 + "|"]
    data: dict[str, Any] = {}
    for method in RANGES:
        means: dict[str, float] = {}
        by, spent = "", 0
        for row in experiment.rows:
            runs = [t for t in done if t.name == row and row.partition("+")[0] == method]
            if runs:
                means[row] = float(np.mean([found[t]["score"] for t in runs]))
                by, spent = found[runs[0]]["by"], runs[0].config.max_interactions
        if not means:
            continue
        best = max(means, key=lambda row: means[row])
        data[method] = {"by": by, "interactions": spent, "scores": means, "chosen": best}
        for row, mean in means.items():
            candidate = row.partition("+")[2] or "as it is"
            mark = "chosen" if row == best else ""
            lines.append(f"| {method} | {spent:,} | {candidate} | {by} | {mean:.2f} | {mark} |")
    runs_made = {t.path.name: found[t] for t in done}
    everything = {
        **tables.about(experiment.command(name), done),
        "methods": data,
        "runs": runs_made,
    }
    (where / "selection.json").write_text(json.dumps(everything, indent=1) + "\n")
    text = "\n".join(lines) + "\n"
    (where / "selection.md").write_text(text)
    return text
