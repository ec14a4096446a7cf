"""The benchmark: what it counts, how it takes turns, what it says. Peers are not needed."""

import json
import os

import pytest

import upside
from upside import bench, timing
from upside.types import Environment, UserError


def test_operations_of_an_update_worked_by_hand():
    # One observation, one action, two hidden units, so weights of
    #   actor 1·2 + 2·2 + 2·1 = 8, critic 2·2 + 2·2 + 2·1 = 10 (without its first layer 6).
    # Critics: target actor 8, targets 2·10, critics forward 2·10, their weights 2·10, inputs 2·6: 80.
    # Actor: itself 8, critic 10, back to the action 6 + 1·2, weights 8, inputs 2·2 + 2·1: 40.
    # Half of the actor's per update, two operations a weight, 64 rows: 2 · 64 · (80 + 20).
    assert bench.flops(bench.Size(1, 1, 2, 1)) == 12_800


def test_the_operations_are_those_of_the_paper_sizes():
    assert bench.flops(bench.SIZES["maze"]) == 2 * 64 * 49_984
    assert bench.flops(bench.SIZES["control"]) == pytest.approx(1.06e8, rel=0.01)


def test_a_rate_is_units_per_second_and_at_least_one_call_is_made():
    calls: list[int] = []
    got = bench.timed(lambda: calls.append(1), 10.0, seconds=0.0)
    assert len(calls) == 1
    assert got["rate"] > 0
    assert got["busy"] >= 0


def test_the_blank_environment_is_an_environment():
    assert isinstance(bench.Blank(27, 8), Environment)


def raw(*rates: float) -> dict:
    return {
        "rates": list(map(float, rates)),
        "busy": [1.0] * 3,
        "compile_seconds": 1.0,
        "start_seconds": 2.0,
    }


def test_ratios_are_taken_within_a_turn():
    size = bench.SIZES["maze"]
    limit = [bench.flops(size) * rate for rate in (1000.0, 2000.0, 500.0)]
    peer = bench.PEERS[0]
    measured = {
        bench.OURS: raw(400, 800, 200),  # the machine drifts, all entries alike
        peer: raw(100, 200, 50),
        bench.LIMIT: raw(*limit),
        bench.TWICE: raw(800, 1600, 400),
    }
    entries = bench.summarise(measured, size)
    assert entries[bench.OURS]["median"] == 400
    assert entries[bench.OURS]["half_range"] == 300
    assert entries[peer]["upside_over_this"] == pytest.approx(4.0)
    assert entries[bench.OURS]["share_of_limit"] == pytest.approx(0.4)
    assert entries[bench.LIMIT]["rates"] == pytest.approx([1000.0, 2000.0, 500.0])
    assert entries[bench.TWICE]["share_of_limit"] == pytest.approx(0.4)  # of two cores


def test_the_report_names_every_entry_and_a_disturbed_core(capsys):
    measured = {bench.OURS: raw(5, 5, 5), bench.LIMIT: {**raw(1e9, 1e9, 1e9), "busy": [0.5] * 3}}
    bench.show("maze", bench.summarise(measured, bench.SIZES["maze"]))
    said = capsys.readouterr().out
    assert all(name in said for name in measured)
    assert "50%" in said


def test_a_worker_measures_on_its_core_whenever_it_is_told():
    worker = bench.Worker(bench.LIMIT, "maze", 8, bench.usable_cores()[0])
    if hasattr(os, "sched_getaffinity"):
        assert os.sched_getaffinity(worker.process.pid) == {bench.usable_cores()[0]}
    for _ in range(2):
        worker.go(0.01)
        assert worker.read()["rate"] > 1e8
    worker.process.communicate()
    assert worker.process.returncode == 0
    assert worker.start > 0


def test_a_worker_that_fails_is_an_error_of_one_line(capfd):
    with pytest.raises(UserError, match="no such entry"):
        bench.Worker("no such entry", "maze", 8, bench.usable_cores()[0])


def test_results_are_written_with_the_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda *_: {bench.OURS: raw(1), bench.LIMIT: raw(1e9)})
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    bench.main(bench.Bench(size="maze", json=tmp_path / "bench.json"))
    report = json.loads((tmp_path / "bench.json").read_text())
    assert report["machine"]["cores"] >= 1
    assert "jax" in report["machine"]["versions"]
    assert report["results"]["maze"][bench.OURS]["median"] == 1
    assert "pip install 'upside[bench]'" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [{"skills": 0}, {"repeats": 0}, {"seconds": 0.0}])
def test_what_cannot_be_measured_is_refused(wrong):
    with pytest.raises(UserError, match=f"--{next(iter(wrong))} 0"):
        bench.main(bench.Bench(**wrong))


def test_a_missing_directory_is_refused_before_any_work(tmp_path):
    with pytest.raises(UserError, match="make the directory"):
        bench.main(bench.Bench(json=tmp_path / "none" / "bench.json"))


def test_goals_at_once_one_after_another_and_by_commands_are_timed_and_give_the_same(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(timing, "GOALS", 2)
    monkeypatch.setattr(timing, "COMMANDS", 1)
    small = {"k_pol": 20, "probes": 8, "k_steps": 4000, "H_max": 60}
    run = upside.discover("upside", env="wall-free-maze", max_interactions=3000, **small)
    run.save(tmp_path / "run")
    found = timing.together(tmp_path / "run", interactions=1000)
    assert found["goals"] == 2
    assert len(found["seconds_of_commands"]) == 1
    assert found["same_results"]
    timing.show_goals(found)
    assert "one after another in one process" in capsys.readouterr().out
