"""Unknown goals for the policies of many runs (Sect. 4, Figs. 5 and its U-Maze counterpart).

The space is cut into 4 x 4 regions; from each, three goals are drawn, one for each goal seed. All goals of a run
are one task, in a directory of its own that continues where it was interrupted.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upside import envs
from upside.downstream import request, select
from upside.downstream.request import Request
from upside.downstream.tune import RECIPE, Tuning
from upside.downstream.tunings import TUNINGS
from upside.experiments.statistics import summary
from upside.experiments.tables import about
from upside.experiments.tasks import Broken, Task
from upside.run import Run
from upside.runs import RunDirectory
from upside.types import UserError, World
from upside.version import __version__, commit

if TYPE_CHECKING:
    from upside.experiments.catalogue import Experiment

SIDE, GOAL_SEEDS = 4, 3
SCRATCH = "scratch"  # runs that nothing is taken from
WHEN = ("before", "finetuned", "stochastic")
"""A policy as it was found, after fine-tuning without noise, and with the noise of exploration."""
HORIZON = 200  # H_max on the mazes (App. C)


def sample(env: World, half: float | None = None) -> dict[tuple[int, int], list[float]]:
    """The goal of each region and goal seed; a region without free space has none.

    Regions are of the whole space, or of a square around the origin with half a side that long.
    """
    low, high = np.asarray(env.space.low), np.asarray(env.space.high)
    if half is not None:
        low, high = np.full_like(low, -half), np.full_like(high, half)
    contains = getattr(env, "contains", lambda place: True)
    size = (high - low) / SIDE
    goals = {}
    for region in range(SIDE**2):
        corner = low + size * np.divmod(region, SIDE)
        for seed in range(GOAL_SEEDS):
            draws = np.random.default_rng([seed, region]).uniform(size=(1000, len(low)))
            places = (corner + size * draws).astype(np.float32)
            free = next((p for p in places if contains(p)), None)
            if free is not None:
                goals[region, seed] = [round(float(x), 3) for x in free]
    return goals


Ask = Callable[[World], dict[str, Any]]
"""What is asked on an environment: `goals` of a request, and its other settings that are not the default."""


def everywhere(env: World) -> dict[str, Any]:
    """Goals in all regions of a maze."""
    return {"goals": list(sample(env).values()), "horizon": HORIZON}


@dataclasses.dataclass(frozen=True, eq=False)
class Goals:
    """All goals, for the policies of one run: a task like a run is one."""

    name: str
    path: Path
    run: Task
    tuning: str
    budget: int
    ask: Ask = everywhere

    def start(self) -> None:
        """Make the directory, unless there is one; it must hold this very request."""
        # The seed too: runs that nothing is taken from are all alike.
        settings: dict[str, Any] = {"budget": self.budget, "tuning": self.tuning}
        settings["seed"] = self.run.config.seed
        settings |= self.ask(self.run.config.environment())
        asked = request.ask(self.run.path, self.path, **settings)
        asked.check(self.path, overwrite=False)
        if Request.read(self.path) is None:
            self._afford(asked.horizon or self.run.config.build().plan.H_max)
            asked.start(self.path)

    def _afford(self, horizon: int) -> None:
        """A tree's policies are not known before it is made: the others need not wait for it."""
        try:
            afford(self.budget, len(select.candidates(Run.load(self.run.path))), horizon, self.name)
        except UserError as error:
            raise Broken(str(error)) from None

    def done(self) -> bool:
        return request.result(self.path) is not None

    def progress(self) -> float:
        return request.progress(self.path)


def afford(budget: int, policies: int, horizon: int, row: str) -> None:
    """Refuse a budget that is too little to try so many policies."""
    needed = policies * Tuning().n_explo * horizon
    if budget < needed:
        raise UserError(
            f"--goal-budget {budget} is too little to try the {policies} policies of {row} "
            f"{Tuning().n_explo} times: give at least {needed}, and some to fine-tune one"
        )


def check(experiment: Experiment, rows: Sequence[str], budget: int) -> None:
    """Refuse, before any run is made, a budget that is too little for as many policies as there will be."""
    for env in experiment.envs:
        horizon = experiment.ask(envs.make(env))["horizon"]
        for name in rows or experiment.rows:
            afford(budget, experiment.rows[name].settings.get("num_skills", 1), horizon, name)


def following(
    name: str,
    experiment: Experiment,
    done: list[Task],
    output: Path,
    budget: int,
) -> list[Goals]:
    """The tasks that begin when the runs are done: each row's tuning on each of its runs."""
    where = lambda row, run: output / name / f"{row}-{run.config.env}-{run.config.seed}"  # noqa: E731
    return [
        Goals(row, where(row, run), run, entry.tuning, budget, experiment.ask)
        for row, entry in experiment.rows.items()
        for run in done
        if run.name == (entry.run or row)
    ]


def report(name: str, experiment: Experiment, done: list[Goals], where: Path) -> str:
    """Numbers, heat maps and learning curves; rows that an earlier call has made stay."""
    from upside.figures import DPI
    from upside.figures import goal as figures

    directory, file = RunDirectory(where), where / "goals.json"
    before = json.loads(file.read_text()) if file.is_file() else {}
    data = added(experiment, before, results(experiment.command(name), done))
    for entry in data["table"].values():
        entry["regions_never_reached"] = _never(data, entry)
    text = markdown(data) + by_depth(data)
    directory.keep("goals.json", json.dumps(data) + "\n")
    directory.keep("goals.md", text)
    said = [text]
    goals, budget = len(data["goals"]), data["budget_per_goal"]
    title = f"{data['env']}: {goals} unknown goals, {budget:,} interactions each"
    run = Run.load(done[0].run.path)
    places = np.array([goal["place"] for goal in data["goals"]])
    maps = lambda when, how: figures.heat_maps(_maps(data, when), run, f"{title}, {how}", places)  # noqa: E731
    for kind, figure in (
        ("heat", maps("finetuned", "without noise")),
        ("noise", maps("stochastic", "fine-tuned policies with exploration noise")),
        ("curves", figures.learning_curves(_curves(data), title)),
    ):
        path = where / f"{name}-{kind}.png"
        figure.savefig(path, dpi=DPI)
        said.append(f"picture: {path}")
    return "\n".join(said)


def added(experiment: Experiment, before: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """With the rows of an earlier call that were asked the same: in the order of the experiment."""
    asked = ("env", "budget_per_goal", "goals", "recipe")
    if any(before.get(part) != data[part] for part in asked):
        return data
    rows = dict(before["table"])
    for row, entry in data["table"].items():
        rows[row] = _joined(rows[row], entry) if row in rows else entry
    return {
        **data,
        "command": "; ".join(dict.fromkeys([before["command"], data["command"]])),
        "table": {row: rows[row] for row in experiment.rows if row in rows},
    }


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A row with the seeds of an earlier call, where they were learned alike."""
    alike = old["tuning"] == json.loads(json.dumps(new["tuning"]))
    kept = [i for i, seed in enumerate(old["seeds"]) if alike and seed not in new["seeds"]]
    configurations = list(new["configurations"])
    for config in old["configurations"]:
        runs = [run for run in config["runs"] if run["seed"] in {old["seeds"][i] for i in kept}]
        configurations += [{**config, "runs": runs}] if runs else []
    parts = {
        part: [old[part][i] for i in kept] + new[part]
        for part in ("seeds", "unsupervised_interactions", "runs")
    }
    return _entry(configurations=configurations, tuning=new["tuning"], **parts)


def results(command: str, done: list[Goals]) -> dict[str, Any]:
    """Every goal's numbers, and means over goals for each row; the unsupervised seed is the unit of replication."""
    places = sample(done[0].run.config.environment())
    table: dict[str, Any] = {}
    for row in dict.fromkeys(task.name for task in done):
        runs = [task for task in done if task.name == row]
        table[row] = _entry(
            seeds=[task.run.config.seed for task in runs],
            configurations=about(command, [task.run for task in runs])["configurations"],
            tuning=tuning(runs[0]),
            unsupervised_interactions=[unsupervised(task) for task in runs],
            runs=[json.loads((task.path / "result.json").read_text()) for task in runs],
        )
    return {
        "command": command,
        "version": __version__,
        "commit": commit(),
        "recipe": RECIPE,
        "env": done[0].run.config.env,
        "budget_per_goal": done[0].budget,
        "goals": [{"region": r, "seed": s, "place": p} for (r, s), p in places.items()],
        "regions_without_free_space": sorted(set(range(SIDE**2)) - {r for r, _ in places}),
        "table": table,
    }


def _entry(**row: Any) -> dict[str, Any]:
    """A row: its runs, and what they come to."""
    found = row["runs"]
    means = {when: _mean(found, when) for when in WHEN}
    return {**row, **means, "steps": _steps(found), "depths": _depths(found)}


def tuning(task: Goals) -> dict[str, Any]:
    """How its chains are fine-tuned, in full."""
    return dataclasses.asdict(TUNINGS[task.tuning](Run.load(task.run.path)))


def unsupervised(task: Goals) -> int:
    """Interactions of the run whose policies are fine-tuned; none where nothing was learned before."""
    if task.run.name == SCRATCH:
        return 0
    return RunDirectory.open(task.run.path).load_tree()[0]["summary"]["interactions"]


def _mean(found: list[dict[str, Any]], when: str) -> dict[str, Any]:
    """Discounted reward and success, mean over goals, summarised over runs."""
    rewards = [float(np.mean([goal[when]["reward"] for goal in run["goals"]])) for run in found]
    success = [float(np.mean([goal[when]["success"] for goal in run["goals"]])) for run in found]
    return {**summary(rewards), "success": float(np.mean(success))}


def _steps(found: list[dict[str, Any]]) -> dict[str, Any]:
    """How the goals of all runs fared, one by one."""
    return _compared([goal for run in found for goal in run["goals"]])


def _compared(goals: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean τ before and after, over the goals that were reached both times; how many were lost, and how many are
    reached more rarely with noise than by the policy as it was."""
    before, after, noisy = ([goal[when] for goal in goals] for when in WHEN)
    pairs = list(zip(before, after, strict=True))
    both = [(a["steps"], b["steps"]) for a, b in pairs if a["success"] and b["success"]]
    first, then = np.mean(both, axis=0).tolist() if both else (None, None)
    lost = sum(a["success"] > 0 and b["success"] == 0 for a, b in pairs)
    rarer = sum(b["success"] < a["success"] for a, b in zip(before, noisy, strict=True))
    return {"goals": len(both), "before": first, "after": then, "lost": lost, "rarer": rarer}


def _depths(found: list[dict[str, Any]]) -> dict[str, Any]:
    """For each depth of the chosen policy: how many goals, how many were reached, and in how many steps."""
    every = [goal for run in found for goal in run["goals"]]
    depths: dict[str, Any] = {}
    for depth in sorted({goal["depth"] for goal in every}):
        these = [goal for goal in every if goal["depth"] == depth]
        success = {f"success_{w}": float(np.mean([g[w]["success"] for g in these])) for w in WHEN}
        depths[str(depth)] = {"chosen": len(these), **success, "steps": _compared(these)}
    return depths


def by_depth(data: dict[str, Any]) -> str:
    """How goals fare that chains of one skill, of two, and so on were chosen for; of rows that have chains."""
    lines = []
    for row, entry in data["table"].items():
        if len(entry["depths"]) < 3:
            continue
        lines += [
            f"\n{row}: goals by the depth of the policy that was chosen\n",
            "| depth | goals | success before, after, with noise | τ before, after |",
            "|---" * 4 + "|",
        ]
        for depth, of in entry["depths"].items():
            success = ", ".join(f"{of[f'success_{when}']:.0%}" for when in WHEN)
            lines.append(f"| {depth} | {of['chosen']} | {success} | {_shown(of['steps'])} |")
    return "\n".join([*lines, ""])


def _shown(steps: dict[str, Any]) -> str:
    return f"{steps['before']:.0f}, {steps['after']:.0f}" if steps["goals"] else "-"


def markdown(data: dict[str, Any]) -> str:
    """One line a row: means over goals and runs; the interval is of the IQM over runs."""
    lines = [
        "| row | runs | unsupervised | before | fine-tuned | IQM [95 %] | with noise "
        "| success before, after, with noise | τ before, after | goals lost, rarer with noise | regions never reached |",
        "|---" * 11 + "|",
    ]
    for row, entry in data["table"].items():
        after, steps = entry["finetuned"], entry["steps"]
        interval = after["interval"]
        cells = [
            row,
            str(len(entry["runs"])),
            f"{spent:,.0f}" if (spent := np.mean(entry["unsupervised_interactions"])) else "-",
            f"{entry['before']['mean']:.3f}",
            f"{after['mean']:.3f}",
            f"{after['iqm']:.3f}"
            + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""),
            f"{entry['stochastic']['mean']:.3f}",
            ", ".join(f"{entry[when]['success']:.0%}" for when in WHEN),
            _shown(steps),
            f"{steps['lost']}, {steps['rarer']} of {sum(len(r['goals']) for r in entry['runs'])}",
            ", ".join(map(str, _never(data, entry))) or "none",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _never(data: dict[str, Any], entry: dict[str, Any]) -> list[int]:
    """Regions no goal of which was reached after fine-tuning, by any run."""
    regions = np.array([goal["region"] for goal in data["goals"]])
    reached = np.array([[g["finetuned"]["success"] > 0 for g in r["goals"]] for r in entry["runs"]])
    return [int(r) for r in np.unique(regions) if not reached[:, regions == r].any()]


def _maps(data: dict[str, Any], after: str) -> dict[str, np.ndarray]:
    """γ^τ of every region, mean over runs and goal seeds: after fine-tuning, and before for the first row."""
    regions = np.array([goal["region"] for goal in data["goals"]])

    def one(entry: dict[str, Any], when: str) -> np.ndarray:
        rewards = np.array([[g[when]["reward"] for g in r["goals"]] for r in entry["runs"]])
        cells = [
            rewards[:, regions == r].mean() if (regions == r).any() else np.nan
            for r in range(SIDE**2)
        ]
        return np.reshape(cells, (SIDE, SIDE))

    maps: dict[str, np.ndarray] = {}
    for row, entry in data["table"].items():
        if not maps:
            maps[f"{row}, as discovered"] = one(entry, "before")
        maps[row] = one(entry, after)
    return maps


def _curves(data: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    """Best noise-free γ^τ over interactions, mean over goals: a curve for each run."""
    at = np.linspace(0, data["budget_per_goal"], 301)

    def one(rises: list[list[Any]]) -> np.ndarray:
        when, best = np.array([[0.0, 0.0], *rises]).T
        return best[np.searchsorted(when, at, side="right") - 1]

    return {
        row: [
            np.stack([at, np.mean([one(rises) for rises in run["curves"]], axis=0)])
            for run in entry["runs"]
        ]
        for row, entry in data["table"].items()
    }
