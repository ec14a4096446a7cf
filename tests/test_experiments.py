"""The paper's protocol: rows, tasks that are done once, tables beside the paper's, honest statistics."""

import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from upside import cli, envs, methods
from upside.experiments import catalogue, executor, finetune, goals, pictures, selection, tables
from upside.experiments.statistics import iqm, summary
from upside.experiments.tasks import Broken, perform, perform_here, task
from upside.run import Run
from upside.runs import RunDirectory
from upside.types import UserError
from upside.version import commit


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_row_can_be_run_and_names_a_row_of_the_paper(name, tmp_path):
    experiment = catalogue.get(name)
    rows = {row.run or name for name, row in experiment.rows.items()}
    runs = len(rows) * len(experiment.envs) * len(experiment.seeds)
    assert len(catalogue.tasks(name, tmp_path)) == runs
    if not experiment.published:
        return
    published = json.loads((tables.resources.files(tables.__package__) / "paper.json").read_text())
    table = published[experiment.published]
    rows = {*table["rows"], *table.get("footnote", {})}
    named = {row.paper for row in experiment.rows.values() if row.paper}
    assert named == rows, "all of the paper's, no others"


def test_a_result_names_every_run_and_each_configuration_once(tmp_path):
    done = catalogue.tasks("coverage-mazes", tmp_path, rows=["diayn-10", "upside"])
    told = tables.about("coverage-mazes", done)
    assert len(told["configurations"]) == 2
    assert set(told["environments"]) == set(catalogue.MAZES)
    named = {entry["run"] for same in told["configurations"] for entry in same["runs"]}
    assert named == {one.path.name for one in done}


def test_statistics_of_seeds():
    # the middle half of 1, 2, 3, 100 is 2, 3
    assert iqm(np.array([1.0, 2.0, 3.0, 100.0])) == 2.5
    three = summary([10.0, 12.0, 17.0])
    assert three["mean"] == 13.0
    assert three["spread"] == pytest.approx(3.6056, 1e-4)
    low, high = three["interval"]
    assert 10.0 <= low <= three["iqm"] <= high <= 17.0
    assert summary([3.0])["interval"] is None
    assert summary([3.0])["spread"] is None
    assert summary([5.0, 5.0, 5.0])["interval"] is None


def test_candidates_differ_from_what_is_declared_in_the_settings_that_they_are_named_after():
    rows = catalogue.get("selection-mazes").rows
    assert "diayn" in rows
    for name, row in rows.items():
        base = catalogue.AFFORDED[name.partition("+")[0]]
        changed = {k for k in row.settings if row.settings[k] != base.get(k)}
        assert changed == {part.partition("=")[0] for part in name.split("+")[1:]}
        settings = dict(row.settings)
        methods.get(row.method, settings.pop("learner", None)).replace(settings).check()


RESULTS = Path(__file__).parents[1] / "results"
RULE_BROKEN = {"flat-upside"}  # for their cost, and in their favour: docs/baselines.md


@pytest.mark.parametrize("method", sorted(catalogue.CHOSEN.keys() - RULE_BROKEN))
def test_what_is_compared_was_chosen_by_the_rule(method):
    """By the selection that docs/baselines.md names for it."""
    files = {"diayn": "present", "vic": "vic", "smm": "smm-edl", "edl": "smm-edl"}
    file = {**files, "upside-paper": "upside-paper"}.get(method, "again")
    data = json.loads((RESULTS / f"selection-{file}.json").read_text())
    mazes = catalogue.tasks("coverage-mazes", RESULTS, rows=["random"], seeds=[0])
    present = json.loads(json.dumps(tables.about("", mazes)["environments"]))
    assert data["environments"] == present, "on the mazes of the table"
    scores = data["methods"][method]["scores"]
    best = max(scores, key=scores.get)
    rows = catalogue.get("selection-mazes").rows
    assert rows[best].settings == catalogue.CHOSEN[method]


def test_what_is_compared_on_bodies_was_chosen_by_the_rule():
    data = json.loads((RESULTS / "selection-control.json").read_text())["methods"]["diayn"]
    rows = catalogue.get("selection-control").rows
    assert set(data["scores"]) == set(rows), "every candidate was scored"
    best = max(data["scores"], key=data["scores"].get)
    assert rows[best].settings == catalogue.CONTROL["diayn-20"].settings


def tiny(tmp_path, seed=0, interactions=1500):
    """The shapes of `test_discovery.quick`: nothing is compiled twice."""
    small = {"k_pol": 10, "probes": 8, "k_steps": 4000}
    return task("row", tmp_path, "wall-free-maze", seed, interactions, "upside", **small)


def here(path, under_way):
    """As `perform`, without a process of its own."""
    return perform_here(path)


def test_whoever_ends_a_reproduction_ends_its_runs_and_they_are_saved(tmp_path):
    bad, endless = tiny(tmp_path, 2), tiny(tmp_path, 3, 10**8)
    bad.start()
    endless.start()
    (bad.path / "config.json").write_text("{")
    work = executor.local([bad, endless], 2)
    assert next(work)[0] is bad
    while not endless.progress():
        time.sleep(0.05)
    work.close()
    assert not endless.done()
    assert RunDirectory.open(endless.path).load_checkpoint() is not None, "long before it was due"
    with RunDirectory(endless.path).alone():
        """Nobody else writes to it."""


def test_a_run_that_is_killed_is_reported_and_the_next_call_goes_on_with_it(tmp_path, monkeypatch):
    killed = tiny(tmp_path, 5, 4000)
    killed.start()

    def watched(path, under_way):
        """As `perform`, but somebody kills the process as soon as it has done something."""
        with ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(perform, path, under_way)
            while not killed.progress() and not outcome.done():
                time.sleep(0.01)
            for process in list(under_way):
                process.kill()
        return outcome.result()

    with monkeypatch.context() as patched:
        patched.setattr(executor, "perform", watched)
        ((one, said),) = executor.local([killed], 1)
    assert one is killed
    assert said == "ended with code -9"
    assert not killed.done()
    monkeypatch.setattr(executor, "perform", here)
    assert dict(executor.local([killed], 1)) == {killed: ""}
    assert killed.done()


def test_a_difference_is_marked_where_it_exceeds_what_seeds_differ_by():
    cell = {"mean": 30.0, "spread": 2.0, "paper": [27.5, 0.5]}
    assert tables.compared(cell) == {"difference": 2.5, "beyond_spread": True}
    assert not tables.compared({**cell, "spread": 3.0})["beyond_spread"]
    assert not tables.compared({**cell, "paper": [27.5, 2.6]})["beyond_spread"]
    assert not tables.compared({**cell, "spread": None})["beyond_spread"], "one seed says nothing"
    assert tables.compared({**cell, "paper": None}) == {}


def test_a_task_is_not_done_twice_and_one_that_fails_does_not_lose_the_others(tmp_path):
    one, bad = tiny(tmp_path), tiny(tmp_path, 2)
    one.start()
    bad.start()
    assert not one.done()
    (bad.path / "config.json").write_text("{")
    outcome = dict(executor.local([bad, one], 2))
    assert outcome[one] == ""
    assert "config.json" in outcome[bad]
    assert one.done()
    assert one.progress() > 0.5
    assert selection.score(one)["by"] == "policies", "as the paper selects a tree"
    before = (one.path / "tree.safetensors").stat().st_mtime_ns
    one.start()
    assert one.done()
    assert (one.path / "tree.safetensors").stat().st_mtime_ns == before
    other = tiny(tmp_path, interactions=1600)
    with pytest.raises(UserError, match="other settings"):
        other.start()


def test_the_command_makes_a_table_and_a_second_call_repeats_nothing(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(executor, "perform", here)  # processes of their own: see above
    command = ["reproduce", "coverage-mazes", "--output", str(tmp_path), "--rows", "random"]
    command += ["--seeds", "3", "--interactions", "40000", "--workers", "1"]
    assert cli.main(command) == 0
    out = capfd.readouterr().out
    assert "29.17 ± 0.57" in out, "the paper's figure stands beside ours"
    assert "1 of 2: random-" in out, "a line when each has ended"
    assert "2 of 2: random-" in out
    assert "difference" in out
    data = json.loads((tmp_path / "coverage-mazes" / "table.json").read_text())
    cell = data["table"]["random"]["bottleneck-maze"]
    asked = "upside reproduce coverage-mazes --rows random --seeds"
    assert data["command"] == f"{asked} 3 --interactions 40000"
    assert {run["commit"] for run in data["configurations"][0]["runs"]} == {commit()}
    assert cell["seeds"] == [3]
    assert all(15 <= value <= 40 for value in cell["values"])
    assert cell["interactions"] == [40_000], "random actions use up their budget"
    trees = sorted(tmp_path.rglob("tree.json"))
    before = [tree.stat().st_mtime_ns for tree in trees]
    assert cli.main(command) == 0
    assert [tree.stat().st_mtime_ns for tree in trees] == before
    assert json.loads((tmp_path / "coverage-mazes" / "table.json").read_text()) == data
    command[command.index("3")] = "4"
    assert cli.main(command) == 0
    more = json.loads((tmp_path / "coverage-mazes" / "table.json").read_text())
    cell = more["table"]["random"]["bottleneck-maze"]
    assert more["command"] == f"{data['command']}; {asked} 4 --interactions 40000"
    assert cell["seeds"] == [3, 4], "a table is added to"
    assert len(more["configurations"]) == 1
    assert len(more["configurations"][0]["runs"]) == len(more["runs"]) == 4
    again = [*command, "--interactions", "50000", "--output", str(tmp_path)]
    again[again.index("4")] = "5"
    assert cli.main(again) == 0
    table = tmp_path / "coverage-mazes" / "table.json"
    other = json.loads(table.read_text())["table"]["random"]["bottleneck-maze"]
    assert other["seeds"] == [5], "runs with another budget are not averaged with these"
    broken = tmp_path / "coverage-mazes" / "random-u-maze-5"
    (broken / "config.json").write_text("{")
    capfd.readouterr()
    assert cli.main(again) == 1
    out = capfd.readouterr().out
    assert "failed: random-u-maze-5" in out
    assert "random | " in out, "the other one's table is there"
    shutil.rmtree(broken)
    assert cli.main(again) == 0
    table.write_text(json.dumps({**more, "version": "0.0.1"}))
    assert cli.main(command) == 2
    assert "version 0.0.1" in capfd.readouterr().err
    shows = ["reproduce", "policies-mazes", "--output", str(tmp_path), "--rows", "diayn-20"]
    assert cli.main(shows) == 2, "it shows runs of that table"
    assert "version 0.0.1" in capfd.readouterr().err


def test_rows_of_an_earlier_table_stay_if_they_had_the_same_budget(tmp_path):
    made = lambda row, budget=None: catalogue.tasks(  # noqa: E731
        "coverage-mazes", tmp_path, [row], interactions=budget
    )
    experiment, earlier = catalogue.get("coverage-mazes"), made("diayn-10", 1000)
    runs = {one.path.name: {"row": one.name} for one in earlier}
    before = {**tables.about("coverage-mazes", earlier), "runs": runs}
    assert tables._still_valid(experiment, made("smm-10", 1000), before) == set(runs)
    assert tables._still_valid(experiment, made("smm-10"), before) == set()
    one_maze = [one for one in made("smm-10", 1000) if one.config.env == "bottleneck-maze"]
    assert tables._still_valid(experiment, one_maze, before) == set(runs), "the other maze's stay"
    before["environments"]["u-maze"]["layout"]["start"] = (7.5, 2.5)
    left = tables._still_valid(experiment, made("smm-10", 1000), before)
    assert left == {name for name in runs if "bottleneck" in name}, "the other maze has changed"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two small runs of DIAYN, as two candidates, done in this process."""
    small = {"num_skills": 2, "T": 20, "H_max": 20, "k_pol": 10, "k_initial": 40}
    where = tmp_path_factory.mktemp("pair")
    rows = {"diayn": small, "diayn+other": small}
    done = [task(name, where, "u-maze", i, 1500, "diayn", **small) for i, name in enumerate(rows)]
    for one in done:
        one.start()
        assert perform_here(one.path) == ""
    experiment = dataclasses.replace(
        catalogue.get("selection-mazes"),
        rows={name: catalogue.Row("diayn", 1500, settings) for name, settings in rows.items()},
    )
    return experiment, done


def test_runs_are_selected_by_intrinsic_reward_and_drawn_from_their_directories(pair, tmp_path):
    experiment, done = pair
    text = experiment.report("selection-mazes", experiment, done, tmp_path)
    found = json.loads((tmp_path / "selection.json").read_text())["methods"]["diayn"]
    assert found["by"] == "intrinsic reward"
    assert set(found["scores"]) == {"diayn", "diayn+other"}
    assert found["scores"][found["chosen"]] == max(found["scores"].values())
    assert max(found["scores"].values()) <= 20 * np.log(2), "20 steps of log q - log 1/2 at most"
    assert text.count("chosen |") == 1
    for picture in (pictures.policies, pictures.discriminators, pictures.discriminability):
        name = picture.__name__
        assert "picture" in picture(name, experiment, done, tmp_path)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_figures_that_show_the_tables_runs_share_them(tmp_path):
    shown = {task.path for task in catalogue.tasks("discriminator-maps", tmp_path)}
    assert shown <= {task.path for task in catalogue.tasks("coverage-mazes", tmp_path)}


@pytest.mark.parametrize("env", ["bottleneck-maze", "u-maze"])
def test_three_goals_are_drawn_from_each_region_where_there_is_room(env):
    maze = envs.make(env)
    found = goals.sample(maze)
    assert len(found) == 48
    assert found == goals.sample(maze)
    assert len({tuple(place) for place in found.values()}) == 48
    for (region, _), place in found.items():
        assert maze.contains(np.float32(place))
        assert (np.asarray(place) // 12.5 == np.divmod(region, 4)).all()


def test_a_region_without_room_has_no_goals(tmp_path):
    """The lower left quarter is solid."""
    (tmp_path / "maze.txt").write_text("....\n....\n##S.\n##..\n")
    regions = {region for region, _ in goals.sample(envs.make(str(tmp_path / "maze.txt")))}
    assert regions == set(range(16)) - {0, 1, 4, 5}


def measured(reward, success, steps):
    return {"reward": reward, "success": success, "steps": steps}


def test_means_over_goals_and_runs_by_hand():
    """Two runs, two regions of two goals each: one goal is lost, one found, one region is never reached."""
    never = measured(0.0, 0.0, None)
    half, near, far = measured(0.3, 0.5, 60), measured(0.6, 1.0, 50), measured(0.4, 1.0, 90)
    goals_of = lambda *pairs: [  # noqa: E731
        {"depth": d, "before": a, "finetuned": b, "stochastic": b}
        for d, (a, b) in zip((1, 2, 3, 3), pairs, strict=True)
    ]
    runs = [
        {"goals": goals_of((half, near), (half, never), (never, never), (never, never))},
        {"goals": goals_of((near, near), (never, far), (never, never), (never, never))},
    ]
    data = {"goals": [{"region": region} for region in (3, 3, 7, 7)]}
    entry = goals._entry(runs=runs, unsupervised_interactions=[10, 10])
    assert entry["before"]["values"] == pytest.approx([0.15, 0.15])
    assert entry["finetuned"]["values"] == pytest.approx([0.15, 0.25])
    assert entry["finetuned"]["mean"] == pytest.approx(0.2)
    assert entry["before"]["success"] == pytest.approx((0.25 + 0.25) / 2)
    assert entry["steps"] == {"goals": 2, "before": 55.0, "after": 50.0, "lost": 1, "rarer": 1}
    assert goals._never(data, entry) == [7]
    cells = goals._maps({**data, "table": {"row": entry}}, "finetuned")
    assert cells["row, as discovered"][0, 3] == pytest.approx(0.3)
    assert cells["row"][0, 3] == pytest.approx(0.4)
    assert cells["row"][1, 3] == 0
    assert np.isnan(cells["row"]).sum() == 14, "no goals there"
    table = {**data, "table": {"row": entry}}
    assert "| row | 2 | 10 | " in goals.markdown(table)
    assert "| 55, 50 | 1, 1 of 8 | 7 |" in goals.markdown(table)
    depths = goals.by_depth(table)
    assert "| 1 | 2 | 75%, 100%, 100% | 55, 50 |" in depths
    assert "| 2 | 2 | 25%, 50%, 50% | - |" in depths
    assert "| 3 | 4 | 0%, 0%, 0% | - |" in depths


def test_goals_of_an_earlier_call_stay_if_they_were_asked_the_same():
    experiment = catalogue.get("goals-u-maze")
    asked = {"env": "u-maze", "budget_per_goal": 300, "goals": [{"place": [1.0, 2.0]}], "recipe": 4}
    goal = {w: measured(0.5, 1.0, 50) for w in goals.WHEN} | {"depth": 1}

    def row(*seeds, tuning="same"):
        config = {"runs": [{"seed": seed} for seed in seeds], "method": "random"}
        runs = [{"goals": [goal], "seed": seed} for seed in seeds]
        spent = [0] * len(seeds)
        return goals._entry(
            seeds=list(seeds), configurations=[config], tuning=tuning, runs=runs,
            unsupervised_interactions=spent,
        )  # fmt: skip

    before = {**asked, "command": "a", "table": {"icm": row(0), "td3": row(0, 1), "sac": row(0)}}
    now = {**asked, "command": "b"}
    now["table"] = {"td3": row(1, 2), "upside": row(0), "sac": row(1, tuning="other")}
    together = goals.added(experiment, before, now)
    assert list(together["table"]) == ["upside", "td3", "sac", "icm"]
    td3 = together["table"]["td3"]
    assert td3["seeds"] == [run["seed"] for run in td3["runs"]] == [0, 1, 2], "seeds are added"
    assert [[r["seed"] for r in c["runs"]] for c in td3["configurations"]] == [[1, 2], [0]]
    assert together["table"]["sac"]["seeds"] == [1], "not to those that were learned otherwise"
    assert together["command"] == "a; b"
    for other in ({**before, "budget_per_goal": 600}, {**before, "recipe": 3}, {}):
        assert goals.added(experiment, other, now)["table"] == now["table"]


def test_a_learning_curve_is_the_mean_of_steps_up():
    """One goal reached at 0.5 after 100 interactions, better at 200; the other never."""
    runs = [{"curves": [[[100.0, 0.5], [200.0, 0.75]], [[150.0, 0.0]]]}]
    ((at, best),) = goals._curves({"budget_per_goal": 300, "table": {"row": {"runs": runs}}})["row"]
    assert [best[at == x][0] for x in (99, 100, 199, 200, 300)] == [0, 0.25, 0.25, 0.375, 0.375]


def test_coverage_over_interactions_is_what_the_run_has_written(tmp_path, monkeypatch):
    monkeypatch.setattr(executor, "perform", here)
    car = "gymnasium:MountainCarContinuous-v0"
    command = ["reproduce", "coverage-foreign", "--output", str(tmp_path), "--rows", "random"]
    command += ["--envs", car, "--seeds", "0", "--interactions", "4000", "--workers", "1"]
    assert cli.main(command) == 0
    where = tmp_path / "coverage-foreign"
    data = json.loads((where / "curves.json").read_text())
    ((name, curve),) = data["runs"].items()
    assert name.startswith("random")
    (run,) = (Run.load(path.parent) for path in where.rglob("tree.json"))
    seen = {entry["interactions"]: entry["visited"] for entry in run.history}
    assert curve["at"] == pytest.approx(np.linspace(200, 4000, 20))
    seen[0] = 0  # nobody knows what was covered before the first line
    assert curve["visited"] == [seen[max(i for i in seen if i <= at)] for at in curve["at"]]
    assert len(set(curve["visited"])) > 1
    assert "buckets" not in curve, "it has no policies to cover any with"
    assert "coverage.png" in {path.name for path in where.iterdir()}
    text = (where / "table.md").read_text()
    assert f"{car}: 2,500 buckets of obs:0,1 in [-1.2, 0.6] x [-0.07, 0.07]" in text
    command[command.index("0")] = "1"
    assert cli.main(command) == 0
    both = json.loads((where / "curves.json").read_text())
    assert both["table"][car]["random"]["seeds"] == [0, 1], "runs of earlier calls stay"
    assert both["runs"][name] == curve


def test_goals_from_scratch_by_the_command_and_a_second_call_repeats_nothing(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(executor, "perform", here)  # processes of their own: see above
    monkeypatch.setattr(goals, "GOAL_SEEDS", 1)
    command = ["reproduce", "goals-u-maze", "--output", str(tmp_path), "--rows", "td3"]
    command += ["--seeds", "1", "--goal-budget", "3000", "--workers", "1"]
    assert cli.main(command) == 0
    out = capfd.readouterr().out
    assert out.count("picture") == 3
    where = tmp_path / "goals-u-maze"
    data = json.loads((where / "goals.json").read_text())
    assert set(data["table"]) == {"td3"}
    assert data["table"]["td3"]["tuning"]["rollouts"] == 2
    assert data["table"]["td3"]["configurations"][0]["method"] == "random"
    for entry in data["table"].values():
        rewards = [goal["finetuned"]["reward"] for goal in entry["runs"][0]["goals"]]
        assert len(rewards) == 16
        assert entry["finetuned"]["mean"] == pytest.approx(np.mean(rewards))
        assert entry["finetuned"]["mean"] < 0.5, "far goals are never reached"
        assert all(a["tuning"] + a["selection"] <= 3000 for a in entry["runs"][0]["goals"])
    assert [path.name for path in (tmp_path / "coverage-mazes").iterdir()] == ["scratch-u-maze-1"]
    asked = json.loads((where / "td3-u-maze-1" / "config.json").read_text())
    assert asked["seed"] == 1, "else all seeds from scratch would be the same"
    results = sorted(where.rglob("result.json"))
    before = [path.stat().st_mtime_ns for path in results]
    assert cli.main(command) == 0
    assert [path.stat().st_mtime_ns for path in results] == before
    assert cli.main([*command, "--goal-budget", "5000"]) == 2
    assert "another budget" in capfd.readouterr().err
    (run,) = catalogue.tasks("goals-u-maze", tmp_path, ["td3"], [1])
    (poor,) = goals.following("poor", catalogue.get("goals-u-maze"), [run], tmp_path, 500)[:1]
    with pytest.raises(Broken, match="--goal-budget 500 is too little"):
        poor.start()
    assert data["table"]["td3"]["unsupervised_interactions"] == [0]
    assert (
        data["command"] == "upside reproduce goals-u-maze --rows td3 --seeds 1 --goal-budget 3000"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["coverage-maze"], "did you mean coverage-mazes"),
        (["coverage-mazes", "--rows", "diyan-10"], "diayn-10"),
        (["coverage-mazes", "--envs", "u-mase"], "u-maze"),
        (["coverage-mazes", "--workers", "0"], "--workers 0"),
        (["coverage-mazes", "--interactions", "0"], "0"),
        (["coverage-mazes", "--rows", "random", "--interactions", "100"], "episode of random, 201"),
        (["--rows", "diayn-10"], "which?"),
        (["coverage-mazes", "--rows"], "--rows needs a value"),
        (["coverage-mazes", "--seeds", "--workers", "2"], "--seeds needs a value"),
        (["coverage-mazes", "--row", "random"], "no option --row here: did you mean --rows?"),
        (["coverage-mazes", "--goal-budget", "9"], "coverage-mazes has none"),
        (["goals-u-maze", "--rows", "diayn-20", "--goal-budget", "9999"], "give at least 40000"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize(
    ("address", "said"),
    [("foo", "is no address"), ("foo:bar", "is no address"), ("127.0.0.1:9", "nobody answers")],
)
def test_a_ray_cluster_that_is_not_there_is_refused_at_once(address, said):
    """Before Ray itself is asked, which would wait for minutes."""
    with pytest.raises(UserError, match=f"--ray {address}.*{said}"):
        executor.answers(address)


def test_reproduce_alone_lists_what_it_knows():
    done = subprocess.run(
        [sys.executable, "-m", "upside.cli", "reproduce"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in catalogue.EXPERIMENTS:
        assert name in done.stdout


def test_a_goal_counts_as_reached_from_its_first_payment_on():
    assert finetune._reached([[500.0, 0.0], [900.0, 0.3], [1500.0, 0.4]]) == 900.0
    assert finetune._reached([[500.0, 0.0]]) == np.inf
    assert finetune._reached([]) == np.inf


def test_finetuning_of_bodies_keeps_the_runs_of_earlier_calls(tmp_path, capfd):
    asked = ["reproduce", "finetune-control", "--output", str(tmp_path), "--rows", "td3"]
    asked += ["--envs", "half-cheetah", "--goal-budget", "3000", "--workers", "1"]
    for seed in ("0", "1"):
        assert cli.main([*asked, "--seeds", seed]) == 0
    said = json.loads((tmp_path / "finetune-control" / "finetune.json").read_text())
    assert said["table"]["half-cheetah"]["td3"]["seeds"] == [0, 1]
    assert set(said["tuning"]) == {"td3 on half-cheetah"}
    assert said["command"].count("upside reproduce finetune-control") == 2
    for run in said["runs"].values():
        (goal,) = run["goals"]
        assert goal["selection"] == 2500, "a random walk, ten times: no budget is left to learn in"
        assert goal["tuning"] == 0


def test_a_body_that_is_run_by_itself_leaves_the_others_in_the_table(tmp_path):
    """Their settings differ: what suits a plane does not suit a line."""
    experiment = catalogue.get("coverage-control")
    data: dict = {}
    for env in ("ant", "half-cheetah", "walker2d"):
        (one,) = catalogue.tasks("coverage-control", tmp_path, ["upside"], [0], envs=[env])
        new = {one.path.name: {"row": "upside", "env": env, "seed": 0}}
        data = json.loads(json.dumps(tables.joined("", experiment, [one], new, data)))
    assert {run["env"] for run in data["runs"].values()} == {"ant", "half-cheetah", "walker2d"}
    configs = data["configurations"]
    assert [{run["env"] for run in config["runs"]} for config in configs[::-1]] == [
        {"ant"},
        {"half-cheetah"},
        {"walker2d"},
    ]
    first = configs[0]["settings"]
    for config, following in itertools.pairwise(configs):
        config["settings"] = following["settings"]
    configs[-1]["settings"] = first
    (one,) = catalogue.tasks("coverage-control", tmp_path, ["random"], [0], envs=["ant"])
    new = {one.path.name: {"row": "random", "env": "ant", "seed": 0}}
    data = tables.joined("", experiment, [one], new, data)
    assert {run["row"] for run in data["runs"].values()} == {"random"}, (
        "one body's do not suit another"
    )
