"""A whole discovery: what holds of every run, however short."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest

from upside import envs, methods, runs
from upside.engine import compiled, learning, probing, rollouts
from upside.engine import round as engine_round
from upside.engine.collect import RANDOM
from upside.engine.consolidation import discriminabilities
from upside.engine.discovery import Discovery
from upside.engine.method import Method
from upside.engine.train import rounds
from upside.session import Session
from upside.skills.growth import Fixed, Growth

BUDGET = 8000


def quick(method: Method) -> Method:
    """The method with small numbers: the same code, a run of seconds."""
    k_initial = min(method.practice.k_initial, 100)
    smaller = {"practice": dataclasses.replace(method.practice, k_pol=10, k_initial=k_initial)}
    if isinstance(method.growth, Growth):
        smaller["growth"] = dataclasses.replace(method.growth, k_steps=4000, eta=0.5)
    else:
        smaller["growth"] = Fixed(num_skills=3)
    if method.gate:
        smaller["gate"] = dataclasses.replace(method.gate, probes=8)
    return dataclasses.replace(method, **smaller)


def discover(name: str, seed: int = 0, budget: int = BUDGET, cores: int = 1) -> Discovery:
    return Discovery(envs.make("wall-free-maze"), quick(methods.get(name)), seed, budget, cores)


def bits(run: Discovery) -> list[bytes]:
    """Everything a run has learnt, bit by bit."""
    leaves = jax.tree.leaves(jax.tree.map(np.asarray, run.arrays))
    return [leaf.tobytes() for leaf in leaves] + [json.dumps(run.state()).encode()]


@pytest.fixture(scope="module", params=["upside", "upside-paper"])
def finished(request: pytest.FixtureRequest) -> tuple[Discovery, list[str]]:
    run = discover(request.param)
    return run, list(rounds(run))


def test_what_was_visited_is_all_that_a_run_has_seen_not_only_where_its_policies_go(finished):
    run, _ = finished
    buffers = [run.arrays.buffers[z, : run.arrays.counts[z]] for z in range(len(run.tree))]
    assert run.buckets <= run.visited
    assert run.env.space.covered(np.concatenate(buffers)) <= run.visited
    assert len(run.visited) > len(run.buckets)


def test_a_run_finds_policies_and_stays_within_its_budget(finished):
    run, events = finished
    assert len(run.tree) > 1
    assert run.counters.interactions <= BUDGET
    assert events[0] == "root"
    assert events[-1] in ("budget spent", "nothing left to expand")


def test_every_step_is_counted_along_parents_skills_too(finished):
    run, _ = finished
    counters = run.counters
    deep = any(node.depth > 1 for node in run.tree.nodes) or run.tree[0].expansions > 1
    assert counters.interactions_without_prefix <= counters.interactions
    assert counters.interactions > counters.interactions_without_prefix or not deep


def test_the_tree_is_a_tree_and_its_policies_satisfied_eta(finished):
    run, _ = finished
    for z, node in itertools.islice(enumerate(run.tree.nodes), 1, None):
        assert node.parent is not None
        assert node.parent < z
        assert node.depth == run.tree[node.parent].depth + 1
        assert node.discriminability > run.method.growth.eta
        assert run.tree[node.parent].born <= node.born <= run.counters.interactions
        assert run.arrays.counts[z] == run.method.plan.buffer_episodes * run.method.plan.H


def test_state_buffers_hold_states_that_the_policy_itself_diffused_over(finished):
    """The buffer of a node lies within H steps of where its chain of skills ends."""
    run, _ = finished
    for z in range(1, len(run.tree)):
        run.go_to(z)
        end = np.asarray(run.starts[1])[0]
        gaps = np.abs(run.arrays.buffers[z] - end).max(axis=-1)
        assert gaps.max() <= run.method.plan.H + 1e-4


def test_growing_compiles_nothing_and_each_program_once():
    before = dict(compiled.TRACES)
    engine_round.programs.cache_clear()
    rollouts._device.cache_clear()
    run = discover("upside", seed=1, budget=15_000, cores=2)
    sizes = {len(run.tree) for _ in rounds(run)}
    traced = {k: v - before.get(k, 0) for k, v in compiled.TRACES.items()}
    assert len(sizes) > 3, "the run was meant to grow"
    once = dict.fromkeys(("walk", "pay", "update", "merge", "judge", "score"), 1)
    # one width for training episodes, one for state buffers and probes
    assert {k: v for k, v in traced.items() if v} == {**once, "collect": 2, "remember": 2}


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    first, second, other = (discover("upside", seed) for seed in (5, 5, 6))
    for run in (first, second, other):
        list(rounds(run))
    assert bits(first) == bits(second)
    assert bits(first) != bits(other)


def test_the_number_of_cores_changes_no_bit():
    """Skills that train side by side on three cores learn what they learn one after another."""
    alone, shared = discover("upside", cores=1), discover("upside", cores=3)
    for run in (alone, shared):
        list(rounds(run))
    assert bits(alone) == bits(shared)


@pytest.fixture
def cell(tmp_path):
    """A maze so small that its free space is soon used up."""
    path = tmp_path / "cell.txt"
    path.write_text("..\nS.\n")
    return str(path)


def test_new_ground_comes_before_gaps_and_the_search_for_gaps_ends(cell):
    """When nothing is free, the gate is relaxed; then nodes are probed again, twice; then the run gives up."""
    method = quick(methods.get("upside")).replace({"give_up": 2, "reprobes": 2, "looks": 2})
    run = Discovery(envs.make(cell), method, 0, 200_000)
    events, seen = [], []
    for event in rounds(run):
        events.append(event)
        seen.append((run.looks, -run.reach))
    assert events[-1] == "nothing left to expand"
    relaxed = [(looks, reach) for looks, reach in seen if reach > -method.gate.reach]
    assert {looks for looks, _ in relaxed} == {0, 2, 4}, "before any look, after two, and two more"
    assert relaxed == sorted(relaxed), "step by step after each"
    assert run.looks == 4
    assert run.counters.interactions < 200_000


def test_a_training_episode_that_ended_on_new_ground_becomes_a_probe():
    """It takes the place of the one nearest to what is taken, once, with all that an expansion needs."""
    run = discover("upside")
    gate, T = run.method.gate, run.method.plan.T
    probing.plant(run)
    probing.measure(run)
    learning.begin(run, 0, probing.claims(run, gate, 0))
    before = run.arrays.probes.features.copy()
    probing.glean(run, gate, 0)
    np.testing.assert_array_equal(run.arrays.probes.features, before)  # its own probes are no news
    run.tree[0].tried = list(range(gate.probes))
    wants = run.spread(1)
    stray = run.episodes(0, wants, RANDOM, 0.0)
    stray = stray._replace(features=stray.features + 40.0)
    run.remember(stray, wants)
    probing.glean(run, gate, 0)
    (slot,) = np.flatnonzero((run.arrays.probes.features[0] != before[0]).any((1, 2)))
    for name, steps in (("obs", slice(T + 1)), ("action", slice(T)), ("features", slice(T, None))):
        kept = getattr(run.arrays.probes, name)[0, slot, steps]
        np.testing.assert_array_equal(kept, getattr(stray, name)[0, 0, steps])
    assert slot not in run.tree[0].tried
    assert len(run.tree[0].tried) == gate.probes - 1
    after = run.arrays.probes.features.copy()
    probing.glean(run, gate, 0)
    np.testing.assert_array_equal(run.arrays.probes.features, after)


@pytest.mark.parametrize(
    ("name", "maze", "budget"),
    [
        ("upside", "cell", 6000),
        ("upside-paper", "u-maze", 6000),
        ("random", "u-maze", 60_000),
    ],
)
def test_a_run_cut_after_any_round_and_resumed_gives_the_same_bits(
    name, maze, budget, tmp_path, cell
):
    """Through the run directory, so that what is saved is all there is."""
    where = cell if maze == "cell" else maze
    config = runs.configure(name, quick(methods.get(name)), where, 2, budget)
    whole = Session(config)
    whole.run()
    assert bool(whole.discovery.looks) == (maze == "cell"), "free space ends in the smallest only"
    directory = runs.RunDirectory.create(tmp_path / "run", config)
    for cut in itertools.count(1):
        session = Session.resume(directory, checkpoint_seconds=1e9)
        for entry in itertools.islice(session._events_of_run(), cut % 3 + 1):
            session._log(session._entry(entry))
        session.checkpoint()
        session._close()
        if session.ended != "running":
            break
    assert cut > 2, "the run was meant to be cut several times"
    assert bits(session.discovery) == bits(whole.discovery)
    strip = lambda history: [{**line, "seconds": 0} for line in history]  # noqa: E731
    assert strip(session.history) == strip(whole.history)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert strip(map(json.loads, lines)) == strip(whole.history)


def test_probes_of_a_node_leave_it_in_all_directions(finished):
    """Low-discrepancy actions: every quadrant of actions is tried, at the start of every node's probes."""
    run, _ = finished
    if run.method.gate is None:
        return
    first = run.arrays.probes.action[: len(run.tree), :, 0]
    probed = first[np.abs(first).sum(axis=(1, 2)) > 0]
    assert len(probed) > 1
    for tried in (probed > 0) @ np.array([1, 2]):
        assert set(tried.tolist()) == {0, 1, 2, 3}


def test_around_its_states_a_policy_is_told_apart_less_surely_than_on_them(finished):
    run, _ = finished
    n = len(run.tree)
    classes, size, features = run.arrays.buffers.shape
    noise = np.random.default_rng(0).normal(0, run.radius, (classes, 4 * size, features))
    on = discriminabilities(run, None)[:n]
    around = discriminabilities(run, None, noise.astype(np.float32))[:n]
    assert around.mean() < on.mean()
    assert (around >= 0).all()
    assert (around <= 1).all()


def test_more_policies_than_the_capacity_double_it():
    env, method = envs.make("wall-free-maze"), quick(methods.get("upside"))
    run = Discovery(env, method, 0, BUDGET, capacity=4)
    for _ in rounds(run):
        if len(run.tree) > 5:
            break
    assert len(run.tree) > 4
    assert run.capacity >= len(run.tree)
    assert len(run.arrays.counts) == run.capacity + run.method.growth.n_max
    own = discriminabilities(run, None)[: len(run.tree)]
    assert (own > 0.5).all(), "classes kept their places when the arrays grew"


def test_what_xla_flags_say_is_left_to_them(monkeypatch):
    given = {}
    monkeypatch.setattr(compiled.jax, "jit", lambda f, **options: given.update(options) or f)
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    assert compiled.compiled("sum", lambda a, b: a + b)(1, 2) == 3
    options = {} if jax.default_backend() != "cpu" else compiled.CPU_OPTIONS
    left = {name: value for name, value in options.items() if "level" not in name}
    assert (given["compiler_options"] or {}) == left
