"""What `upside reproduce` knows: the paper's tables and figures, as rows of runs and a report of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from upside.envs.bodies import CONTROL as CONTROL_SIZE
from upside.experiments import control, finetune, goals, pictures, selection, tables
from upside.experiments.goals import SCRATCH
from upside.experiments.tasks import Task, task
from upside.types import unknown

MAZES = ("bottleneck-maze", "u-maze")
BASELINES, UPSIDE = 10_000_000, 1_000_000  # interactions, as in App. C


@dataclasses.dataclass(frozen=True)
class Row:
    """A method with settings, and what the paper calls it."""

    method: str
    interactions: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    paper: str | None = None
    """Its row in `paper.json`."""
    run: str | None = None
    """Whose runs it goes on from, where that is another row's."""
    tuning: str = "default"
    """How goals are learned, one of `downstream.tunings.TUNINGS`."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure by name."""

    about: str
    rows: dict[str, Row]
    report: Callable[[str, Experiment, list[Any], Path], str]
    """Writes what the runs show into a directory; returns what to print."""
    envs: tuple[str, ...] = MAZES
    spaces: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What is discriminated and covered on an environment, where it does not say so itself."""
    seeds: tuple[int, ...] = (0, 1, 2)
    published: str | None = None
    """Its table in `paper.json`."""
    runs_of: str | None = None
    """The experiment whose runs it shows: none is made twice."""
    following: Callable[[str, Experiment, list[Task], Path, int], list[goals.Goals]] | None = None
    """Tasks that begin when the runs are done; the report is of them."""
    ask: goals.Ask = goals.everywhere
    """What these tasks ask of the policies."""
    asked: str = ""
    """The call that is answered, where it is more than the name."""

    def command(self, name: str) -> str:
        """What results say that made them."""
        return self.asked or f"upside reproduce {name}"

    def size(self) -> str:
        """How many runs of how many interactions."""
        learned = {name: row for name, row in self.rows.items() if row.run != SCRATCH}
        runs = {row.run or name: row.interactions for name, row in learned.items()}
        times = len(self.envs) * len(self.seeds)
        whose = f" of {self.runs_of}" if self.runs_of else ""
        return f"{len(runs) * times} runs{whose}, {sum(runs.values()) * times / 1e6:,.1f}M interactions"

    def task(
        self, name: str, where: Path, env: str, seed: int, interactions: int | None = None
    ) -> Task:
        """A run of the row of that name, with its own budget or another one."""
        row = self.rows[name]
        return task(
            row.run or name,
            where,
            env,
            seed,
            row.interactions if interactions is None or row.run == SCRATCH else interactions,
            row.method,
            self.spaces.get(env),
            **row.settings,
        )


AFFORDED: dict[str, dict[str, Any]] = {
    **{name: {"k_pol": 10} for name in ("diayn", "vic", "smm", "edl", "flat-upside")},
    "diayn-sac": {"learner": "sac", "k_pol": 10},
    "diayn-curr": {},
    "diayn-hier": {},
    "upside-paper": {},
}
"""Ten million interactions of DIAYN, SMM or EDL with K_pol = 100 would take an hour a run, of flat UPSIDE with J = 10
twelve minutes: 10 is App. C's other value."""

CHOSEN: dict[str, dict[str, Any]] = {
    "diayn": {**AFFORDED["diayn"], "j": 10},
    "vic": {**AFFORDED["vic"], "lr_pol": 1e-4},
    "smm": {**AFFORDED["smm"], "k_discr": 10},
    "edl": {**AFFORDED["edl"], "beta": 0.5},
    "flat-upside": {**AFFORDED["flat-upside"], "j": 10},
    "diayn-curr": {**AFFORDED["diayn-curr"], "sigma": 0.1},
    "diayn-hier": {**AFFORDED["diayn-hier"], "k_pol": 10},
    "upside-paper": AFFORDED["upside-paper"],
}
"""Settings of the methods that are compared, where they differ from what is declared.

As `selection-mazes` has chosen them by the paper's rule (docs/baselines.md): results/selection-present.json; of
flat-upside, diayn-curr and diayn-hier results/selection-again.json (flat-upside's K_pol = 100 scores a little more,
results/selection-flat-upside.json, for five times the cost: not taken), of upside-paper
results/selection-upside-paper.json; of smm and edl after all 1e7 interactions, results/selection-smm-edl.json; of
vic results/selection-vic.json. DIAYN with SAC has what DIAYN has, not what the rule prefers for it, which covers less
(results/selection-sac.json).
"""


SELECTION: dict[str, int] = {"smm": BASELINES, "edl": BASELINES}
"""What a candidate is scored after, where half a million interactions do not tell settings apart."""


def _numbers(method: str) -> dict[str, Row]:
    paper = method.replace("-", "_")
    return {
        f"{method}-{n}": Row(method, BASELINES, {"num_skills": n, **CHOSEN[method]}, f"{paper}_{n}")
        for n in (10, 20, 50)
    }


COVERAGE_MAZES: dict[str, Row] = {
    "random": Row("random", BASELINES, paper="random"),
    **_numbers("diayn"),
    "diayn-sac-10": Row(
        "diayn",
        BASELINES,
        {"num_skills": 10, "learner": "sac", **CHOSEN["diayn"]},
        "diayn_sac_10",
    ),
    "diayn-curr": Row("diayn-curr", BASELINES, CHOSEN["diayn-curr"], "diayn_curr"),
    "diayn-hier": Row("diayn-hier", BASELINES, CHOSEN["diayn-hier"], "diayn_hier"),
    # In none of the paper's tables.
    "vic-20": Row("vic", BASELINES, {"num_skills": 20, **CHOSEN["vic"]}),
    **_numbers("edl"),
    **_numbers("smm"),
    **_numbers("flat-upside"),
    "upside-paper": Row("upside-paper", UPSIDE, CHOSEN["upside-paper"], "upside"),
    "upside": Row("upside", UPSIDE, paper="upside"),
}


def _some(*names: str) -> dict[str, Row]:
    return {name: COVERAGE_MAZES[name] for name in names}


WITHOUT: dict[str, dict[str, Any]] = {
    "recipe": {},
    "no-learning": {"lr_pol": 0.0},
    "order-by-discriminability": {"order": "discriminability"},
    "no-claims-nor-rehearsal": {"claim": False},
    "gate-at-1": {"reach": 1.0},
    "loose-probes": {"spread": False},
    "no-gleaning": {"glean": False},
    "one-look": {"looks": 1},
    "no-reprobes": {"reprobes": 0},
    "arrive-when-confirmed": {"arrive": 1.0},
    "no-trend": {"smooth": 1.0},
    "no-doubt": {"doubt": 0.0},
    "any-harm": {"harm": 0.0},
    "no-margin": {"margin": 0.0},
    "no-critic-warmup": {"critic_warmup": 0},
    "no-reuse": {"reuse": False},
    "noise-free-rounds": {"fresh": 1},
    "one-try": {"tries": 1},
    "no-gaps": {"relax": 1.0},
    "no-check": {"check_consolidated": False},
    "check-on-states": {"check_blur": 0.0},
    "no-jitter": {"jitter": 0.0},
    "no-self-imitation": {"self_imitation": False},
    "slow-targets": {"tau": 0.005},
    "no-rehearsal": {"rehearsal": 0},
    "judge-afresh": {"keep_discriminator": False},
    "no-patience": {"patience": 0},
    "H-10": {"H": 10},
}
"""Our default without one of its parts, or with the paper's value in its place."""


FOREIGN: dict[str, dict[str, Any]] = {
    "gymnasium:MountainCarContinuous-v0": {},
    "gymnasium:Swimmer-v5": {
        "features": "info:x_position,y_position",
        "box": (-3.0, 3.0, -3.0, 3.0),
        "buckets": (30,),
    },
    "gymnasium:Pusher-v5": {
        "features": "obs:14,15,16",
        "box": (-1.0, 1.0, -1.5, 0.5, -0.5, 0.5),
        "buckets": (10,),
    },
}
"""A car (place and velocity), a swimmer (its place), the fingertip of an arm of seven joints."""


BODY: dict[str, dict[str, Any]] = {"diayn": {"num_skills": 20, "k_pol": 100}}
"""What model selection on bodies begins with: K_pol = 100 can be afforded in a million interactions."""

CONTROL: dict[str, Row] = {
    "upside": Row("upside", UPSIDE, paper="upside"),
    "diayn-20": Row("diayn", UPSIDE, {**BODY["diayn"], "lr_pol": 1e-4}, "diayn"),
    "random": Row("random", UPSIDE),
}
"""Bodies: the same budget for every method; DIAYN as results/selection-control.json has chosen."""


def _control(*names: str) -> dict[str, Row]:
    return {name: CONTROL[name] for name in names}


def _from_scratch(paper: str | None = None, tuning: str = "td3", **settings: Any) -> Row:
    """A run without policies, and as short as can be: what is fine-tuned knows nothing."""
    return Row("random", 3000, settings, run=SCRATCH, paper=paper, tuning=tuning)


def _goals(env: str, figure: str) -> Experiment:
    rows = _some("upside", "diayn-20", "smm-20", "edl-20")
    rows |= {name: _from_scratch(tuning=name) for name in ("td3", "sac", "icm")}
    return Experiment(
        f"{figure}: 48 unknown goals, fine-tuned from discovered policies or learned from scratch",
        rows,
        goals.report,
        envs=(env,),
        runs_of="coverage-mazes",
        following=goals.following,
    )


EXPERIMENTS: dict[str, Experiment] = {
    "coverage-mazes": Experiment(
        "Table 2: buckets covered on both mazes, every method",
        COVERAGE_MAZES,
        tables.report,
        published="coverage_mazes",
    ),
    "ablation-length": Experiment(
        "App. D: UPSIDE with T = H from 10 to 50 on both mazes",
        {
            f"length-{n}": Row("upside", UPSIDE, {"T": n, "H": n}, str(n))
            for n in (10, 20, 30, 40, 50)
        },
        pictures.table_and_policies,
        published="ablation_skill_length_T_equals_H",
    ),
    "ablation-recipe": Experiment(
        "ours: the default without one of its parts, at 0.3M interactions",
        {name: Row("upside", 300_000, settings) for name, settings in WITHOUT.items()},
        tables.report,
        envs=("bottleneck-maze",),
    ),
    "selection-mazes": Experiment(
        "App. C: the paper's model selection, one value of its ranges changed at a time",
        {
            name: Row(method, SELECTION.get(method, 500_000), settings)
            for name, (method, settings) in selection.candidates(AFFORDED).items()
        },
        selection.report,
        seeds=(0,),
    ),
    "policies-mazes": Experiment(
        "Fig. 2: the policies of every method, side by side",
        _some(
            "upside",
            "flat-upside-20",
            "diayn-hier",
            "diayn-curr",
            "diayn-20",
            "vic-20",
            "smm-20",
            "edl-20",
        ),
        pictures.policies,
        seeds=(0,),
        runs_of="coverage-mazes",
    ),
    "discriminator-maps": Experiment(
        "App. D: the most likely policy of every place, for UPSIDE, DIAYN and EDL",
        _some("upside", "diayn-20", "edl-20"),
        pictures.discriminators,
        seeds=(0,),
        runs_of="coverage-mazes",
    ),
    "goals-bottleneck": _goals("bottleneck-maze", "Fig. 5"),
    "goals-u-maze": _goals("u-maze", "App. D"),
    "discriminability-diayn": Experiment(
        "App. D: discriminability over training for N_Z = 10, 20, 50",
        _some("diayn-10", "diayn-20", "diayn-50"),
        pictures.discriminability,
        envs=("bottleneck-maze",),
        runs_of="coverage-mazes",
    ),
    "coverage-control": Experiment(
        "Fig. 3: buckets covered over interactions on Ant, Half-Cheetah and Walker2d",
        CONTROL,
        control.report,
        envs=("ant", "half-cheetah", "walker2d"),
        seeds=(0, 1, 2, 3),
    ),
    "selection-control": Experiment(
        "App. C: the same model selection for DIAYN on a body, the one that is simulated fastest",
        {
            name: Row(method, 500_000, settings)
            for name, (method, settings) in selection.candidates(
                BODY, selection.ON_BODIES, selection.TOGETHER_ON_BODIES
            ).items()
        },
        selection.report,
        envs=("half-cheetah",),
        seeds=(0,),
    ),
    "policies-ant": Experiment(
        "Fig. 4: traces of the policies of UPSIDE and DIAYN on Ant",
        _control("upside", "diayn-20"),
        pictures.policies,
        envs=("ant",),
        seeds=(0,),
        runs_of="coverage-control",
    ),
    "finetune-ant": Experiment(
        "Fig. 4: 48 unknown goals in [-8, 8]², fine-tuned or learned from scratch",
        {**_control("upside", "diayn-20"), "td3": _from_scratch("td3", snap=CONTROL_SIZE.snap)},
        finetune.goals,
        envs=("ant",),
        seeds=(0, 1),
        runs_of="coverage-control",
        following=goals.following,
        ask=finetune.around,
    ),
    "finetune-control": Experiment(
        "App. D: Half-Cheetah beyond x = 15 and Walker2d beyond x = 4",
        {**_control("upside", "diayn-20"), "td3": _from_scratch("td3", snap=CONTROL_SIZE.snap)},
        finetune.beyond,
        envs=("half-cheetah", "walker2d"),
        seeds=(0, 1, 2, 3),
        runs_of="coverage-control",
        following=goals.following,
        ask=finetune.farther,
    ),
    "coverage-foreign": Experiment(
        "ours: buckets covered over interactions on environments that come with Gymnasium",
        {
            "upside": Row("upside", 200_000),
            # What a swimmer can do in ten steps ends in nearly the same place (docs/environments.md).
            "upside-T-50": Row("upside", 200_000, {"T": 50}),
            "random": Row("random", 200_000),
        },
        control.report,
        envs=tuple(FOREIGN),
        spaces=FOREIGN,
    ),
    "growth-wall-free": Experiment(
        "App. B: the tree's evolution in the wall-free maze, N_start = 4 and N_max = 8",
        {
            "upside": Row("upside", 100_000),
            "upside-paper": Row("upside-paper", 300_000, CHOSEN["upside-paper"]),
        },
        pictures.evolution,
        envs=("wall-free-maze",),
        seeds=(0,),
    ),
}


def get(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def tasks(
    name: str,
    output: Path,
    rows: list[str] | None = None,
    seeds: list[int] | None = None,
    interactions: int | None = None,
    envs: list[str] | None = None,
) -> list[Task]:
    """The runs of an experiment, or of some of its rows, longest first so that no core waits at the end."""
    experiment = get(name)
    for row in rows or []:
        if row not in experiment.rows:
            raise unknown("row", row, experiment.rows)
    for env in envs or []:
        if env not in experiment.envs:
            raise unknown("environment", env, experiment.envs)
    made = [
        experiment.task(row_name, output / (experiment.runs_of or name), env, seed, interactions)
        for row_name in experiment.rows
        if not rows or row_name in rows
        for env in envs or experiment.envs
        for seed in seeds or experiment.seeds
    ]
    made = list({t.path: t for t in made}.values())  # rows may share runs
    return sorted(made, key=lambda t: -t.config.max_interactions)
