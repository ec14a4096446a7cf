"""The command end to end: what a user types, what comes out, what is refused."""

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

import upside
from upside import cli, runs
from upside.methods import METHODS
from upside.run import Run
from upside.runs import FORMAT, RunDirectory
from upside.session import Interrupted, Interruptible, Session

# The shapes of `test_discovery.quick`: nothing is compiled twice.
QUICK = ["--max-interactions", "3000", "--k-pol", "10", "--probes", "8", "--k-steps", "4000"]


def train(run_dir: Path, *more: str) -> list[str]:
    where = ["--run-dir", str(run_dir)]
    return ["train", "upside", "--env", "wall-free-maze", *where, *QUICK, *more]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "quick"
    assert cli.main(train(path)) == 0
    return path


def test_a_run_leaves_everything_that_is_promised(run_dir):
    names = {p.relative_to(run_dir).parts[0] for p in run_dir.rglob("*")}
    assert names == {
        "config.json", "metrics.jsonl", "events", "tree.json", "tree.safetensors", "checkpoints",
        "figures", "lock", "coverage.json",
    }  # fmt: skip
    assert len(list((run_dir / "events").iterdir())) == 1
    assert {"policies.png", "growth.png", "curves.png", "discriminator.png"} <= {
        p.name for p in (run_dir / "figures").iterdir()
    }


def test_coverage_prints_the_promised_keys(run_dir, capsys):
    assert cli.main(["coverage", str(run_dir), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {
        "buckets", "buckets_with_diffusing", "reachable", "policies", "interactions",
        "interactions_without_prefix", "seconds", "core_seconds",
    } <= set(report)  # fmt: skip
    assert report["buckets"] <= report["buckets_with_diffusing"] <= report["reachable"] == 100
    assert report["interactions"] <= 3000
    assert report["core_seconds"] > 0
    assert json.loads((run_dir / "coverage.json").read_text()) == report


def test_a_loaded_run_can_be_inspected_rolled_out_and_saved_again(run_dir, tmp_path):
    run = Run.load(run_dir)
    assert len(run) > 1
    last = len(run) - 1
    path, diffused = run.rollout(last)
    assert path.shape == (run.tree[last].depth * 10 + 1, 2)
    assert diffused.shape == (run.method.plan.H, 2)
    assert run.actor(last)(path[0]).shape == (2,)
    run.save(tmp_path / "copy")
    assert Run.load(tmp_path / "copy").coverage() == run.coverage()


def test_lists(capsys):
    assert cli.main(["envs"]) == 0
    assert cli.main(["methods"]) == 0
    assert cli.main(["methods", "diayn"]) == 0
    out = capsys.readouterr().out
    for name in (
        "bottleneck-maze",
        "u-maze",
        "upside-paper",
        "VQ-VAE",
        "num_skills",
    ):
        assert name in out
    assert cli.main(["methods", "dyain"]) == 2


def test_a_drawn_maze_is_trained_on_and_its_run_outlives_the_file(tmp_path, capsys):
    drawn = tmp_path / "mine.txt"
    drawn.write_text("....\n.##.\nS...\n")
    arguments = ["train", "upside", "--env", str(drawn), "--run-dir", str(tmp_path / "run")]
    assert cli.main([*arguments, "--no-figures", *QUICK, "--max-interactions", "600"]) == 0
    drawn.unlink()
    capsys.readouterr()
    assert cli.main(["coverage", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reachable"] == 10


REFUSED = {
    "unknown method": (["train", "upsid", "--env", "u-maze"], "did you mean upside"),
    "no method": (["train"], "upside-paper"),
    "unknown environment": (["train", "upside", "--env", "u-mase"], "did you mean u-maze"),
    "unknown command": (["trian"], "did you mean train"),
    "unknown option": (["train", "upside", "--env", "u-maze", "--etta", "0.5"], "--etta"),
    "nothing to do": (["train", "diayn-curr", "--max-depth", "0"], "--max-depth 0"),
    "option without effect": (["train", "random", "--lr-pol", "0.1"], "--lr-pol"),
    "not a number": (["train", "upside", "--env", "u-maze", "--eta", "high"], "high"),
    "eta": (["train", "upside", "--env", "u-maze", "--eta", "1.0"], "(0, 1)"),
    "n-start": (["train", "upside", "--env", "u-maze", "--n-start", "9"], "--n-max 8"),
    "T": (["train", "upside", "--env", "u-maze", "--T", "0"], "--T 0"),
    "H": (["train", "upside", "--env", "u-maze", "--H", "0"], "--H 0"),
    "budget": (["train", "upside", "--env", "u-maze", "--max-interactions", "-1"], "-1"),
    "k-pol": (["train", "upside", "--env", "u-maze", "--k-pol", "15"], "multiple of 10"),
    "fresh": (["train", "upside", "--env", "u-maze", "--fresh", "11"], "--buffer-episodes 10"),
    "seed": (["train", "upside", "--env", "u-maze", "--seed", "-1"], "--seed -1"),
    "missing maze": (["train", "upside", "--env", "nowhere/maze.txt"], "nowhere/maze.txt"),
    "no run": (["coverage", "."], "not a run directory"),
    "no run to resume": (["resume", "nowhere"], "not a run directory"),
    "figure": (["plot", ".", "--figure", "polices"], "did you mean policies"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_get_one_line_and_exit_code_2(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, says = REFUSED[case]
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_an_existing_run_is_not_touched_unless_told_to(run_dir, capsys):
    before = (run_dir / "tree.json").read_bytes()
    assert cli.main(train(run_dir)) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (run_dir / "tree.json").read_bytes() == before


def test_a_directory_that_is_not_a_run_is_never_overwritten(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert cli.main(train(tmp_path, "--overwrite")) == 2
    assert "not a run directory" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_run_directory_has_one_writer_at_a_time(run_dir, tmp_path, capsys):
    shutil.copytree(run_dir, tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"event": "since the last checkpoint"}\n')
    written = (tmp_path / "run" / "metrics.jsonl").read_text()
    with RunDirectory(tmp_path / "run").alone():
        assert cli.main(["resume", str(tmp_path / "run"), "--no-figures"]) == 2
        assert "another process" in capsys.readouterr().err
        again = ["train", "upside", "--run-dir", str(tmp_path / "run"), "--overwrite"]
        assert cli.main(again) == 2
        assert "another process" in capsys.readouterr().err
        assert (tmp_path / "run" / "metrics.jsonl").read_text() == written
    spent = Run.load(run_dir).summary
    assert cli.main(["resume", str(tmp_path / "run"), "--no-figures"]) == 0
    assert "ended before" in capsys.readouterr().out
    assert Run.load(tmp_path / "run").summary == spent, "it took no more time"


@pytest.mark.parametrize(
    ("format", "said"), [(FORMAT + 1, "upgrade upside"), (FORMAT - 1, "use the version")]
)
def test_a_run_of_another_format_is_refused(format, said, run_dir, tmp_path, capsys):
    config = json.loads((run_dir / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "format": format}))
    for command in ("resume", "coverage"):
        assert cli.main([command, str(tmp_path)]) == 2
        assert said in capsys.readouterr().err


def test_an_unwritable_place_is_said_and_a_full_disk_leaves_the_last_checkpoint(
    run_dir, tmp_path, capsys, monkeypatch
):
    file = tmp_path / "file"
    file.write_text("")
    assert cli.main(train(file / "run")) == 2
    assert "cannot write" in capsys.readouterr().err
    directory = RunDirectory.open(run_dir)
    before = directory.load_checkpoint()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match=r"No space left.*upside resume"):
        directory.save_checkpoint({}, {})
    assert not list(run_dir.rglob("*.part"))
    monkeypatch.undo()
    after = directory.load_checkpoint()
    assert before is not None
    assert after is not None
    assert after[1] == before[1]


def test_a_damaged_checkpoint_is_passed_over(run_dir, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", RunDirectory.open(run_dir).config())
    for number in range(3):
        directory.save_checkpoint({"a": [float(number)]}, {"number": number})
    *_, before, newest = sorted((tmp_path / "run" / "checkpoints").iterdir())
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    assert directory.load_checkpoint()[1] == {"number": 1}
    before.write_bytes(before.read_bytes()[:-5])
    assert directory.load_checkpoint() is None


def test_a_film_shows_every_step_of_a_policy(run_dir, tmp_path, capsys):
    film = tmp_path / "one.gif"
    command = ["film", str(run_dir), "--policy", "1", "--output", str(film)]
    assert cli.main(command) == 0
    run = Run.load(run_dir)
    with Image.open(film) as pictures:
        assert pictures.n_frames == run.tree[1].depth * run.method.plan.T + 1 + run.method.plan.H
    assert cli.main([*command[:-1], "one.avi"]) == 2
    assert cli.main(["film", str(run_dir), "--policy", "99"]) == 2
    assert "neither .gif nor .mp4" in capsys.readouterr().err
    below_a_file = film / "two.gif"
    assert cli.main(["film", str(run_dir), "--output", str(below_a_file)]) == 2
    assert f"cannot write {below_a_file}" in capsys.readouterr().err


def test_killed_at_random_moments_and_resumed_it_ends_in_the_same_tree(run_dir, tmp_path):
    """Processes that are really killed; a checkpoint after every round, so writes are hit too."""
    program = [sys.executable, "-m", "upside.cli"]
    options = ["--checkpoint-seconds", "0", "--no-figures"]
    cut = tmp_path / "cut"
    moments = random.Random(0)
    process = subprocess.Popen([*program, *train(cut), *options])
    for _ in range(2):
        while process.poll() is None and not list((cut / "checkpoints").glob("*.safetensors")):
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        resume = [*program, "resume", str(cut), *options]
        process = subprocess.Popen(resume, stdout=subprocess.PIPE, text=True)
    said = process.communicate()[0]
    assert process.returncode == 0
    assert "going on at" in said or "ended before" in said
    name = "tree.safetensors"
    assert (cut / name).read_bytes() == (run_dir / name).read_bytes(), "as the run nobody killed"
    nodes = [json.loads((d / "tree.json").read_text())["nodes"] for d in (cut, run_dir)]
    assert nodes[0] == nodes[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_run_between_two_rounds_and_says_how_to_go_on(
    number, tmp_path, capsys, monkeypatch
):
    log, handler = Session._log, signal.getsignal(number)

    def interrupted(session, entry):
        log(session, entry)
        if len(session.history) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Session, "_log", interrupted)
    assert cli.main(train(tmp_path / "run")) == 130
    assert f"upside resume {tmp_path / 'run'}" in capsys.readouterr().err
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert signal.getsignal(number) is handler
    saved = RunDirectory.open(tmp_path / "run").load_checkpoint()
    assert saved is not None, "long before it was due"


def test_saving_takes_a_twentieth_of_the_time_at_most(monkeypatch):
    now, saved = [0.0], []
    monkeypatch.setattr(runs.time, "perf_counter", lambda: now[0])

    def save():
        saved.append(now[0])
        now[0] += 2.0

    pace = runs.Pace(5.0)
    while now[0] < 100:
        pace(save)
        now[0] += 1.0
    assert saved == [5, 47, 89], "after 5 seconds, then 40 after two that it took"
    often = runs.Pace(0.0)
    often(save)
    often(save)
    assert len(saved) == 5


def test_sac_takes_td3s_place_in_a_run_that_can_be_loaded(tmp_path):
    small = [
        "--num-skills",
        "2",
        "--T",
        "20",
        "--H-max",
        "20",
        "--k-pol",
        "10",
        "--k-initial",
        "40",
    ]
    where = ["--env", "wall-free-maze", "--run-dir", str(tmp_path / "sac"), "--no-figures"]
    command = ["train", "diayn", "--learner", "sac", *where, *small, "--max-interactions", "600"]
    assert cli.main(command) == 0
    run = Run.load(tmp_path / "sac")
    assert run.method.learner.alpha == 0.1, "the paper's action entropy"
    assert len(run) == 3
    path, _ = run.rollout(policy=1)
    assert len(path) == 21
    assert abs(run.actor(1)(path[0])).max() <= 1


@pytest.mark.parametrize(("method", "own", "others"), [
    ("diayn", "--num-skills", "--probes"), ("upside", "--probes", "--num-skills"),
    ("edl", "--beta", "--k-discr"), ("edl", "--batch-vqvae", "--code-size"), ("vic", "--prior", "--H "),
    ("diayn", "--learner", "--alpha"), ("random", "--H ", "--learner"),
])  # fmt: skip
def test_help_of_a_method_has_its_own_options_only(method, own, others, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", method, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert own in shown
    assert others not in shown


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_interactions": 0}, "max_interactions 0 is less than 1: try 1000000"),
        ({"eta": 2.0}, "eta 2.0 is outside (0, 1): try 0.8, the paper's value"),
        (
            {"method": "random", "learner": "sac"},
            "learner sac: random learns nothing; leave it out",
        ),
    ],
)
def test_in_python_mistakes_are_said_in_pythons_words(wrong, said):
    with pytest.raises(upside.UserError) as mistake:
        upside.discover(**wrong)
    assert str(mistake.value) == said


def test_a_budget_may_be_written_with_an_exponent(tmp_path):
    command = train(tmp_path / "run", "--no-figures", "--max-interactions", "1e3")
    assert cli.main(command) == 0
    assert Run.load(tmp_path / "run").config.max_interactions == 1000


def test_files_that_do_not_belong_together_are_refused(run_dir, tmp_path, capsys):
    Run.load(run_dir).save(tmp_path / "copy")
    tree = json.loads((tmp_path / "copy" / "tree.json").read_text())
    (tmp_path / "copy" / "tree.json").write_text(json.dumps({**tree, "arrays_sha256": "other"}))
    assert cli.main(["coverage", str(tmp_path / "copy")]) == 2
    assert "do not belong together" in capsys.readouterr().err


def test_a_torn_last_line_of_metrics_is_left_out(run_dir, tmp_path):
    run = Run.load(run_dir)
    run.save(tmp_path / "copy")
    with (tmp_path / "copy" / "metrics.jsonl").open("a") as file:
        file.write('{"event": "rou')
    assert Run.load(tmp_path / "copy").history == run.history


def test_a_saved_copy_says_that_it_cannot_be_resumed(run_dir, tmp_path, capsys):
    Run.load(run_dir).save(tmp_path / "copy")
    assert cli.main(["resume", str(tmp_path / "copy")]) == 2
    assert "saved copy" in capsys.readouterr().err


def test_settings_of_another_version_are_not_guessed(run_dir, tmp_path, capsys):
    config = json.loads((run_dir / "config.json").read_text())
    del config["settings"]["growth"]["eta"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert cli.main(["resume", str(tmp_path)]) == 2
    assert "eta" in capsys.readouterr().err


def test_ctrl_c_is_not_lost_inside_jaxs_callback(monkeypatch, capsys):
    """JAX runs one whenever garbage is collected; Python prints and discards what is raised there."""

    def _xla_gc_callback():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pytest.fail("raised where it is discarded")

    def work(arguments):
        _xla_gc_callback()
        time.sleep(10)

    monkeypatch.setattr(cli, "_dispatch", work)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind nohup
    begin = time.monotonic()
    try:
        assert cli.main(["train"]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 9
    assert "interrupted" in capsys.readouterr().err
    names = {getattr(one, "__name__", "") for one in gc.callbacks}
    assert "_xla_gc_callback" in names, "that is what JAX calls it"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diayn", "--glean", "3"], "diayn has no option --glean: it is one of upside"),
        (["diayn", "--alpha", "0.1"], "--alpha is an option of sac: give --learner sac"),
        (["diayn", "--learner", "sac", "--sigma", "1"], "--sigma is an option of td3"),
        (["diayn", "--learner", "sac", "--alpha", "-1"], "--alpha -1"),
        (["diayn", "--etta", "3"], "there is no option --etta here (see 'upside train diayn"),
        (
            ["upside", "--max-interactions", "60k"],
            "--max-interactions: '60k' is not a whole number",
        ),
        (["upside", "--gamma", "high"], "--gamma: 'high' is not a number"),
        (
            ["coverage-mazes", "--interactions", "1e6x"],
            "--interactions: '1e6x' is not a whole number",
        ),
        (["coverage-mazes", "--seeds", "1.5"], "--seeds: '1.5' cannot be read"),
        (["upside", "--learner", "sax"], "did you mean sac"),
    ],
)
def test_the_parsers_words_are_plain(words, said, capsys):
    assert cli.main(["train" if words[0] in METHODS else "reproduce", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_first_signal_of_each_kind_waits_for_the_round_whoever_listens(monkeypatch):
    """A terminal's Ctrl-C reaches a reproduction's runs, and then it ends them: that is no second Ctrl-C."""

    def broken(*_):
        raise BrokenPipeError

    stop = Interruptible(Path("run"))
    stop()
    monkeypatch.setattr(os, "write", broken)
    stop._ask(signal.SIGINT, None)
    stop._ask(signal.SIGTERM, None)
    with pytest.raises(Interrupted, match="upside resume run"):
        stop()
    with pytest.raises(KeyboardInterrupt):
        stop._ask(signal.SIGINT, None)
