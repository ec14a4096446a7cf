"""Environments on the host: what is asked of them, what is refused, and that a run on one is a run like any other."""

import dataclasses
import functools
import json
import runpy
import threading
import time
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import TimeLimit

import upside
from upside import cli, envs, film, methods, runs, timing
from upside.downstream import episodes, tasks, tunings
from upside.downstream.reach import Finetuning
from upside.engine import probing, rollouts
from upside.engine.collect import POLICY, RANDOM, RHYTHM, host_key
from upside.engine.discovery import Discovery
from upside.engine.train import rounds
from upside.envs import bodies, simulator
from upside.envs.host import HostEnv
from upside.evaluate import coverage
from upside.session import Session
from upside.skills.gate import Gate
from upside.skills.plan import Plan
from upside.types import UserError

BUDGET = 4000
EXAMPLE = Path(__file__).parents[1] / "examples" / "own_environment.py"
LOCK = threading.Lock()


class Pond(gymnasium.Env):
    """A point in a square that starts near its middle; the full action, 2, is a shift of 1."""

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(-2.0, 2.0, (2,), np.float32)
    steps = 0

    def __init__(self, fault=None, at_step=0, shore=99.0):
        self.fault, self.at_step, self.shore = fault, at_step, shore

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "reset":
            raise ValueError("no water")
        self.at = 5.0 + self.np_random.uniform(-0.2, 0.2, 2)
        self.time = 0
        return self._seen(), {"x": self.at[0], "y": self.at[1]}

    def step(self, action):
        with LOCK:
            Pond.steps += 1
        assert self.action_space.contains(action), action
        self.time += 1
        self.at = np.clip(self.at + action / 2, 0.0, 10.0)
        now = self.time == self.at_step
        if now and self.fault == "raises":
            raise ValueError("the pond froze")
        if now and self.fault == "exits":
            raise SystemExit(3)
        if now and self.fault == "none":
            return None, 0.0, False, False, {}
        if now and self.fault == "nan":
            self.at[1] = np.nan
        if now and self.fault == "shrinks":
            self.at = self.at[:1]
            return self._seen(), 0.0, False, False, {}
        info = {"x": self.at[0], "y": self.at[1]}
        return self._seen(), 0.0, bool(self.at[0] > self.shore), now and self.fault == "cut", info

    def _seen(self):
        return self.at.astype(np.float32)


BOX = (0.0, 10.0, 0.0, 10.0)


def pond(features="obs:0,1", **options) -> HostEnv:
    return upside.environment(lambda: Pond(**options), "pond", features, BOX, (10,))


def walk(env: HostEnv, cores: int = 1, seed: int = 0, mode: int = RANDOM, steps: int = 7):
    """Three and one episodes of two actors from the start on."""
    plan, roll = Plan(T=4, H=3), rollouts.of(env, cores)
    sizes = (env.observation_size, env.action_size)
    population, learner = methods.get("upside").population, methods.get("upside").learner
    actors = population.empty(learner, 2, *sizes, np.random.default_rng(0)).actor
    starts, _ = roll.walk(4, actors, np.zeros(1, np.int32), np.int32(0), host_key(seed, 0))
    wants = np.array([3, 1])
    key = host_key(seed, 1)
    mode, sigma = np.int32(mode), np.float32(0.1)
    return roll.collect(plan, 3, actors, starts, mode, sigma, wants, steps, key)


# -------------------------------------------------------------------- the adapter


@pytest.mark.parametrize(
    "features",
    ["obs:0,1", "info:x,y", lambda obs, info: 1.0 * obs],
    ids=["obs", "info", "function"],
)
def test_features_are_entries_of_the_observation_or_of_info_or_a_function(features):
    got = walk(pond(features))
    np.testing.assert_allclose(got.features[0], got.obs[0, :, 1:], atol=1e-5)
    assert np.ptp(got.features[0]) > 0


def test_actions_are_stretched_to_the_environments_own_bounds():
    got = walk(pond())
    moved = np.diff(got.obs[0], axis=1)
    np.testing.assert_allclose(moved, got.action[0], atol=1e-5)


def test_an_action_may_be_a_single_number_without_a_shape():
    make = functools.partial(Wrong, action_space=Box(-0.5, 0.5, ()))
    assert upside.environment(make, "pond", "obs:0,1", BOX).action_size == 1


def test_no_action_is_beyond_the_bounds_by_rounding():
    rng = np.random.default_rng(0)
    for i in range(200):
        low, width = rng.normal(size=3), rng.uniform(0.1, 2, 3)
        kind = (np.float32, np.float64)[i % 2]
        space = Box(low.astype(kind), (low + width).astype(kind), dtype=kind)
        make = functools.partial(Wrong, action_space=space)
        env = upside.environment(make, "pond", "obs:0,1", BOX)
        with env.simulators(1) as (one,):
            for corner in (-np.ones(3), np.ones(3)):
                assert space.contains(one.stretched(np.float32(corner)))


def test_episodes_that_nobody_wants_are_not_played_nor_steps_that_nobody_needs():
    env, Pond.steps = pond(), 0
    got = walk(env)
    assert Pond.steps == 4 * 7
    assert not got.obs[1, 1:].any()
    Pond.steps = 0
    walk(env, steps=3)
    assert Pond.steps == 4 * 3


def test_episodes_are_the_same_on_any_number_of_cores_and_others_with_another_seed():
    one, two, other = walk(pond()), walk(pond(), cores=2), walk(pond(), seed=1)
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert np.abs(one.obs[0] - other.obs[0]).max() > 0.1
    assert len({tuple(obs[0]) for obs in one.obs[0]}) == 3, (
        "every episode starts from its own reset"
    )


def test_where_the_environment_has_ended_it_stays():
    ended = walk(pond(shore=5.0), mode=POLICY)
    for obs, over in zip(ended.obs[0], ended.terminated[0], strict=True):
        if over.any():
            first = int(np.argmax(over))
            assert over[first:].all()
            assert (obs[first + 1 :] == obs[first + 1]).all()
    assert ended.terminated[0].any()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"fault": "raises", "at_step": 3},
            r"pond: step 3 of an episode, action \S+, after reset\(seed=\d+\) failed: ValueError: the pond froze",
        ),
        (
            {"fault": "nan", "at_step": 2},
            r"pond: observation 1 is nan after step 2 of an episode, action \S+, after reset\(seed=\d+\): mend",
        ),
        (
            {"fault": "shrinks", "at_step": 1},
            "pond: an observation of 1 numbers, not 2, after step 1",
        ),
        ({"fault": "exits", "at_step": 2}, "pond: step 2 .* failed: SystemExit: 3"),
        ({"fault": "none", "at_step": 2}, "pond: an observation of 0 numbers, not 2, after step 2"),
        ({"fault": "cut", "at_step": 5}, "pond cut an episode short after 5 of 7 steps"),
    ],
)
def test_what_goes_wrong_is_said_with_the_step_and_the_value(options, said):
    with pytest.raises(UserError, match=said):
        walk(pond(**options))


def test_an_environment_that_does_not_come_back_is_named(monkeypatch, capfd):
    monkeypatch.setattr(simulator, "PATIENCE", 0.05)
    told = threading.Event()

    class Stuck(Pond):
        def step(self, action):
            if self.time == 2:
                told.wait(20)
            return super().step(action)

    def read():
        while "pond: step 3 of an episode, action" not in capfd.readouterr().err:
            time.sleep(0.05)
        told.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    walk(upside.environment(Stuck, "pond", "obs:0,1", BOX, (10,)))
    assert told.is_set()


def test_what_fails_is_said_though_another_episode_does_not_come_back():
    goes_on, played = threading.Event(), []

    class Half(Pond):
        """The first that is played hangs, the second fails."""

        def step(self, action):
            if self.time == 2:
                played.append(self)
                if played[0] is self:
                    goes_on.wait(20)
                raise ValueError("the pond froze")
            return super().step(action)

    with pytest.raises(UserError, match="the pond froze"):
        walk(upside.environment(Half, "pond", "obs:0,1", BOX, (10,)), cores=2)
    assert not goes_on.is_set()
    goes_on.set()


class Wrong(Pond):
    """With other spaces, or with other methods."""

    def __init__(self, **other):
        super().__init__()
        self.__dict__.update(other)

    def step(self, action):
        return self._seen(), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (lambda: Wrong(action_space=Discrete(3)), {}, "only continuous ones"),
        (lambda: Wrong(action_space=Box(-np.inf, np.inf, (2,))), {}, "without bounds"),
        (lambda: Wrong(action_space=Box(0, 3, (2,), np.int32)), {}, "a Box of floats"),
        (lambda: Wrong(action_space=Box(-1, 1, (0,))), {}, "without a number in them"),
        (lambda: Wrong(reset=lambda seed: np.zeros(2)), {"features": "obs:0"}, r"reset\(seed=0\) returned ndarray, not"),
        (
            lambda: Wrong(step=lambda action: (np.zeros(2), 0.0, False, {})),
            {"features": "obs:0"},
            r"step 1 .* returned 4 values, not an observation, a reward, terminated, truncated and an info",
        ),
        (lambda: Wrong(action_space=Box(-3e38, 3e38, (2,))), {}, "too wide to be searched"),
        (lambda: Wrong(observation_space=Dict()), {}, "FlattenObservation"),
        (Pond(), {}, "give the class, or a function that makes one"),
        (Pond, {"features": "", "box": BOX}, "cannot be read"),
        (Pond, {"features": "obs:0,4", "box": BOX}, "entries 0 to 1"),
        (Pond, {"features": "obs:x", "box": BOX}, "are numbers"),
        (Pond, {"features": "info:z", "box": (0, 1)}, "info has no 'z', only x, y"),
        (Pond, {"features": "nowhere:f", "box": BOX}, "No module named 'nowhere'"),
        (Pond, {"features": "obs:0"}, "no bounds of its own"),
        (Pond, {"features": "obs:0,1", "box": (0, 1)}, "needs 4"),
        (Pond, {"features": "obs:0", "box": (1, 0)}, "every low must be below"),
        (Pond, {"features": "obs:0,1", "box": BOX, "buckets": (0,)}, "^buckets 0: give 2"),
        (Pond, {"features": "obs:0,1", "box": BOX, "buckets": 10**6}, "1,000,000,000,000 in all"),
        (Pond, {"features": "obs:0", "box": (0, 1), "buckets": (1.5,)}, "^buckets 1.5 is not a whole"),
        (Pond, {"features": "obs:0", "box": ("a", 1)}, "^box 'a' is not a number"),
        (Pond, {"features": "obs:0", "box": 3.0}, "needs 2"),
        (Pond, {"features": "obs:0,1", "box": (0, 1, 0, 1)}, "starts at .* outside it"),
        (Pond, {"name": ""}, "is a word"),
        (Pond, {"features": [0, 1], "box": BOX}, "^features .*: try 'obs:0,1'"),
        (lambda: 1 / 0, {}, "cannot be made: ZeroDivisionError"),
        (lambda: None, {}, "no gymnasium.Env"),
        (lambda: Pond(fault="reset"), {"features": "obs:0", "box": (0, 1)}, r"reset\(seed=0\) failed"),
        (Pond, {"features": lambda obs, info: info["z"], "box": BOX}, "features cannot be understood: KeyError: 'z'"),
        (Pond, {"features": "math:pi", "box": BOX}, "is no function"),
    ],
)  # fmt: skip
def test_environments_that_cannot_be_explored_are_refused(make, options, said):
    with pytest.raises(UserError, match=said):
        upside.environment(make, **options)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "gymnasium:CartPole-v1"], "only continuous ones"),
        (["--env", "gymnasium:Nowhere-v7"], "cannot be made"),
        (["--env", "gymnasium:nowhere:Env-v0"], "No module named 'nowhere'"),
        (["--env", "gymnasium:Pendulum-v1", "--box", "a,b"], "--box a,b"),
        (["--env", "ant", "--discriminator-features", "info:z"], "info has no 'z'"),
        (["--env", "u-maze", "--box", "0,1"], "--box is for Gymnasium environments"),
    ],
)
def test_the_command_refuses_them_in_one_line(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "upside", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_an_id_can_be_given_in_python_too():
    swimmer = {"features": "info:x_position,y_position", "box": (-3, 3, -3, 3), "buckets": 30}
    env = upside.environment("gymnasium:Swimmer-v5", **swimmer)
    said = {"features": swimmer["features"], "box": (-3.0, 3.0, -3.0, 3.0), "buckets": (30,)}
    assert env == envs.make("gymnasium:Swimmer-v5", **said), "loaded and resumed by its name"
    with pytest.raises(UserError, match="in words"):
        upside.environment("gymnasium:Swimmer-v5", features=lambda obs, info: obs)


def test_one_object_cannot_play_several_episodes():
    one = Pond()
    with pytest.raises(UserError, match="the same object was made twice"):
        walk(upside.environment(lambda: one, "pond", "obs:0,1", BOX))
    with pytest.raises(UserError, match="the same object was made twice"):
        walk(upside.environment(lambda: TimeLimit(one, 99), "pond", "obs:0,1", BOX))


def test_an_environment_need_not_have_a_hash():
    @dataclasses.dataclass
    class Plain(Pond):
        depth: float = 1.0

        def __post_init__(self):
            super().__init__()

    walk(upside.environment(Plain, "pond", "obs:0,1", BOX))


def test_the_box_of_an_id_is_part_of_its_configuration():
    car = envs.make("gymnasium:MountainCarContinuous-v0")
    config = runs.configure("random", methods.get("random"), car, 0, 1000)
    assert config.simulated["features"] == "obs:0,1"
    np.testing.assert_allclose(config.simulated["box"], (-1.2, 0.6, -0.07, 0.07), atol=1e-6)
    assert config.simulated["buckets"] == (50, 50)
    assert config.environment() == car


def test_an_environment_that_is_not_wrapped_is_met_with_how_to():
    with pytest.raises(UserError, match=r"is wrapped, upside.environment\(make"):
        upside.discover(env=Pond())


def test_coverage_is_of_one_episode_of_each_policy_however_often_it_is_walked_to():
    run = Discovery(pond(), quick(), 0, BUDGET)
    run.go_to(0)
    passed = set(run.buckets)
    for _ in range(20):
        run.go_to(0)
    assert run.buckets == passed
    assert len(passed) == 1
    assert len(run.visited) == 4, "the start is shaken, around a corner of four buckets"


# -------------------------------------------------------------------- bodies


def test_every_episode_of_a_body_starts_in_the_papers_designated_state():
    env = envs.make("half-cheetah")
    with env.simulators(2) as (one, other):
        np.testing.assert_array_equal(one.reset(0).obs, other.reset(1).obs)


def test_bodies_do_not_end_when_they_fall_and_show_neither_place_nor_contact_forces():
    sizes = {"ant": (27, 8, 2), "half-cheetah": (17, 6, 1), "walker2d": (17, 6, 1)}
    for name in bodies.BODIES:
        env = envs.make(name)
        assert (env.observation_size, env.action_size, len(env.space.low)) == sizes[name]
        assert env.space.buckets == (50,) * sizes[name][2]
        with env.simulators(1) as (one,):
            one.reset(0)
            ends = [one.step(np.ones(env.action_size)).terminated for _ in range(40)]
        assert not any(ends)


@pytest.mark.parametrize("body", bodies.BODIES)
def test_a_state_that_is_put_back_goes_on_as_the_episode_would_have(body):
    env = envs.make(body)
    assert env.repeats
    assert not pond().repeats
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (20, env.action_size))
    with env.simulators(2) as (one, other):
        one.reset(0)
        for action in actions[:12]:
            one.step(action)
        state = one.save()
        expected = [one.step(action) for action in actions[12:]]
        other.reset(3)
        other.step(actions[0])
        other.restore(state, 12)
        again = [other.step(action) for action in actions[12:]]
    for a, b in zip(expected, again, strict=True):
        np.testing.assert_array_equal(a.obs, b.obs)
        np.testing.assert_array_equal(a.features, b.features)


def test_parents_skills_are_executed_once_where_a_simulator_repeats_itself():
    """And the episodes that follow are the same as if each had executed them."""
    body = envs.make("half-cheetah")
    cached, plain = (follow_one(body, put_back) for put_back in (True, False))
    np.testing.assert_array_equal(cached.obs, plain.obs)
    np.testing.assert_array_equal(cached.features, plain.features)
    assert np.abs(np.diff(cached.obs[0, :, 0], axis=0)).max() == 0, "all start where the skill ends"


def test_methods_take_the_papers_sizes_on_bodies():
    body = envs.make("half-cheetah")
    planned = {name: methods.get(name, env=body) for name in methods.METHODS}
    for method in planned.values():
        method.check()
        assert method.learner.hidden == 256
    lengths = {name: (m.plan.T, m.plan.H, m.plan.H_max) for name, m in planned.items()}
    assert lengths["upside-paper"] == lengths["upside"] == (50, 50, 250)
    assert lengths["diayn-hier"] == (50, 0, 250)
    assert lengths["diayn"] == lengths["vic"] == (250, 0, 250)
    assert lengths["flat-upside"] == (200, 50, 250)
    assert planned["upside-paper"].growth.k_steps == 100_000


# -------------------------------------------------------------------- a run


def small(seed: int = 0, cores: int = 1) -> Discovery:
    return Discovery(pond(), quick(), seed, BUDGET, cores)


def quick():
    """The shapes of `examples/own_environment.py`, so that nothing is compiled twice."""
    method = methods.get("upside")
    growth = dataclasses.replace(method.growth, eta=0.5)
    practice = dataclasses.replace(method.practice, k_pol=10)
    return dataclasses.replace(method, growth=growth, practice=practice)


def bits(run: Discovery) -> list[bytes]:
    leaves = jax.tree.leaves(jax.tree.map(np.asarray, run.arrays))
    return [leaf.tobytes() for leaf in leaves] + [json.dumps(run.state()).encode()]


@pytest.fixture(scope="module")
def finished() -> Discovery:
    run = small()
    Pond.steps = 0
    list(rounds(run))
    return run


def test_every_step_that_was_executed_is_counted_and_no_other(finished):
    assert len(finished.tree) > 2
    assert finished.counters.interactions == Pond.steps <= BUDGET


def test_a_run_is_the_same_on_two_cores_and_resumed_from_its_checkpoint(finished, tmp_path):
    config = runs.configure("upside", quick(), pond(), 0, BUDGET)
    directory = runs.RunDirectory.create(tmp_path / "run", config)
    session = Session(config, directory, cores=2, env=pond())
    for n, _ in enumerate(rounds(session.discovery)):
        if n == 12:
            break
    assert session.discovery.expansion is not None
    session.checkpoint()
    again = Session.resume(directory, env=pond())
    again.run()
    assert bits(again.discovery) == bits(finished)
    with pytest.raises(
        UserError, match=r"given in Python: give it again, upside.load\(run_dir, env="
    ):
        upside.load(tmp_path / "run")
    with pytest.raises(UserError, match=r"env= is not what this run explored: .*info:x,y"):
        upside.load(tmp_path / "run", env=pond("info:x,y"))
    run = upside.load(tmp_path / "run", env=pond())
    path, around = run.rollout(1)
    assert (path.shape, around.shape) == ((11, 2), (7, 2))


def test_a_run_goes_on_after_its_environment_has_failed(tmp_path):
    """What was done until the last checkpoint is kept; a mended environment continues it."""
    config = runs.configure("upside", quick(), pond(), 0, BUDGET)
    directory = runs.RunDirectory.create(tmp_path / "run", config)
    session = Session(config, directory, checkpoint_seconds=0.0, cores=1, env=pond())
    healthy = session.discovery.env

    def fail_later(run, entry):
        if entry["interactions"] > BUDGET / 3:
            run.env._idle[:] = [Pond(fault="raises", at_step=3) for _ in range(99)]

    session.listeners.append(fail_later)
    with pytest.raises(
        UserError,
        match=r"pond: step 3 .* failed.*error.txt.*upside.resume\('.*run', env=...\) goes on",
    ):
        session.run()
    assert "the pond froze" in (tmp_path / "run" / "error.txt").read_text().splitlines()[-1]
    healthy.close()
    again = Session.resume(directory, env=pond())
    assert 0 < again.discovery.counters.interactions < BUDGET
    assert again.run().summary["ended"] != "running"
    assert not (tmp_path / "run" / "error.txt").exists()


def test_chains_longer_than_an_episode_are_cut(finished):
    paths, lengths = np.array([[1, 2, 1]]), np.array([3])
    roll, bank = finished.rollouts, finished.arrays.bank
    still = np.zeros((1, 2, 15, 2), np.float32)
    obs, features, action = roll.explore(10, 15, 2, bank, paths, lengths, still, host_key(0, 0))
    assert (obs.shape, features.shape, action.shape) == (
        (1, 2, 16, 2),
        (1, 2, 16, 2),
        (1, 2, 15, 2),
    )
    actors = jax.tree.map(lambda leaf: leaf[paths], bank)
    noise, never = np.zeros((1, 2, 5, 2), np.float32), np.full((1, 2), 99)
    keys = jax.numpy.stack([host_key(0, 0)])
    obs, _, _ = roll.chase(10, actors, lengths - 1, noise, never, np.array([True]), keys)
    assert obs.shape == (1, 2, 6, 2)


def test_an_episode_stays_where_its_goal_is_reached_and_is_judged_the_same(finished):
    roll, bank = finished.rollouts, finished.arrays.bank
    actors = jax.tree.map(lambda leaf: leaf[np.array([[1, 2]])], bank)
    noise = np.random.default_rng(0).normal(0, 0.2, (1, 3, 30, 2)).astype(np.float32)
    last, noisy_from = np.array([1]), np.zeros((1, 3), int)
    way = (10, actors, last, noise, noisy_from, np.array([True]), jax.numpy.stack([host_key(0, 0)]))
    whole = [leaf[0] for leaf in roll.chase(*way)]
    goal = tasks.Goal(jax.numpy.asarray(whole[1][0, 12]), jax.numpy.asarray(0.3))
    before = Pond.steps
    cut = [leaf[0] for leaf in roll.chase(*way, over=[goal.over_at])]
    assert 12 <= Pond.steps - before < 90, "three episodes of thirty steps, but for what is over"
    assert not (whole[1][0, 13:] == whole[1][0, 12]).all()
    assert (cut[1][0, 13:] == cut[1][0, 12]).all()
    for one in range(3):
        a, b = (
            episodes.judged(goal, *(jax.numpy.asarray(leaf[one]) for leaf in seen))
            for seen in (whole, cut)
        )
        length = int(a.length)
        assert (length, bool(a.over)) == (int(b.length), bool(b.over))
        np.testing.assert_array_equal(a.reward, b.reward)
        np.testing.assert_array_equal(a.obs[: length + 1], b.obs[: length + 1])
        np.testing.assert_array_equal(a.action[:length], b.action[:length])


def test_rounds_of_a_block_are_those_made_one_by_one_on_the_host(finished):
    config = runs.configure("upside", quick(), pond(), 0, BUDGET)
    session = Session(config, env=pond())
    session.discovery = finished
    run = session.result()
    asked = [tasks.goal(run.env, place, 0.5) for place in ((5, 5), (7, 7), (1, 8), (5.5, 4))]
    found = []
    for at_a_time, cores in ((1, 1), (7, 2)):
        small = {"updates": 10, "warmup": 20, "episodes": 16, "n_explo": 2, "patience": 5}
        tuning = dataclasses.replace(tunings.default(run), **small)
        tuned = Finetuning(run, asked, 5000, tuning, horizon=40, cores=cores)
        tuned.budgets = np.array([700, 400, 0, 700])
        while not tuned.done:
            tuned.step(at_a_time)
        found.append(tuned)
    one, block = found
    assert len({line["spent"][0] for line in one.history}) > 2
    assert one.history[-1]["spent"][2] == 0
    assert one.history == block.history
    assert [a.numbers() for a in one.results()] == [b.numbers() for b in block.results()]
    for a, b in zip(jax.tree.leaves(one.chains), jax.tree.leaves(block.chains), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rhythms_swing_between_the_bounds_and_even_ones_differ_in_phase():
    got = walk(pond(), mode=RHYTHM, steps=4)
    swings = got.action[0, :, :4]
    assert (np.abs(swings) == 1).all()
    assert len({swing.tobytes() for swing in swings}) > 1


def test_films_of_simulators_show_every_step(finished, tmp_path):
    class Painted(Pond):
        render_mode = "rgb_array"

        def render(self):
            return np.full((8, 8, 3), int(10 * self.at[0]), np.uint8)

    env = upside.environment(Painted, "pond", "obs:0,1", BOX, (10,))
    config = runs.configure("upside", quick(), env, 0, BUDGET)
    run = dataclasses.replace(
        upside.discover("random", env=env, max_interactions=500, k_pol=10), config=config
    )
    run.film(0, tmp_path / "pond.gif")
    with pytest.raises(UserError, match=r"pond.jpg is neither"):
        run.film(0, tmp_path / "pond.jpg")
    pictures = film.frames(run, 0)
    path, around = run.rollout(0)
    assert len(pictures) == len(path) + len(around)
    np.testing.assert_allclose([p[0, 0, 0] for p in pictures[1:]], 10 * around[:, 0], atol=1.0)


def test_free_space_does_not_depend_on_the_unit_of_a_feature():
    """Metres along one, millimetres along the other: the box says how far is far."""
    scale = np.array([1.0, 1000.0], np.float32)
    stretched = (lambda obs, info: scale * obs, (0.0, 10.0, 0.0, 10_000.0))
    gaps = []
    for features, box in (("obs:0,1", BOX), stretched):
        env = upside.environment(Pond, "pond", features, box)
        run = Discovery(env, quick(), 0, BUDGET)
        probing.plant(run)
        probing.measure(run)
        gaps.append(run.clearances / run.radius)
    assert gaps[0].max() > 2
    np.testing.assert_allclose(*gaps, rtol=1e-3)


def test_where_the_time_of_a_run_goes(capsys, monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0.2)
    found = timing.measure(small(), BUDGET // 2)
    assert 0 < found["interactions"] <= BUDGET / 2
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert min(found["shares"].values()) > 0
    for rates in (found["steps_per_second"], found["updates_per_second"]):
        assert min(rates["alone"], rates["while it works"]) > rates["in the run"] > 0
    one = found["simulator_steps_per_second"]
    assert one["a simulator by itself, on one core"] > one["through the adapter, on one core"] > 0
    timing.show(found)
    assert "through the adapter, on one core: " in capsys.readouterr().out


def test_policies_in_training_are_surveyed_and_counted_at_the_end():
    settings = {"num_skills": 2, "T": 10, "k_pol": 10, "k_initial": 20, "replay_size": 2000}
    run = upside.discover("diayn", env=pond(), max_interactions=1500, **settings)
    covered = [line["buckets"] for line in run.history]
    assert covered[0] == 1
    assert min(covered[len(covered) // 2 :]) > 1


def test_coverage_with_noise_is_of_skills_as_they_practised_and_of_their_diffusing_parts():
    run = upside.discover("upside", env=pond(), max_interactions=2500, eta=0.5, k_pol=10)
    assert len(run) > 1
    louder = {
        sigma: dataclasses.replace(run, method=run.method.replace({"sigma": sigma}))
        for sigma in (0.0, 1.0)
    }
    still, loud = (coverage.with_noise(one) for one in louder.values())
    directed, both = coverage.buckets(run, run.rollouts())
    assert directed < still
    assert len(still ^ both) <= 0.3 * len(both), "other diffusing parts from the same places"
    assert len(loud) > len(still)


def test_an_environment_in_jax_with_chance_in_it_walks_to_its_node_in_every_episode(tmp_path):
    pendulum = runpy.run_path(str(EXAMPLE.with_name("jax_environment.py")))["Pendulum"]
    starts = [follow_one(env).obs[0, :, 0] for env in (pendulum(gusts=0.0), pendulum(gusts=0.5))]
    still, windy = (np.unique(np.round(start, 5), axis=0) for start in starts)
    assert (len(still), len(windy)) == (1, 3)


def follow_one(env, put_back=True):
    """Three episodes from the end of an actor's skill."""
    roll, plan = rollouts.of(env), Plan(T=4, H=3)
    population, learner = methods.get("upside").population, methods.get("upside").learner
    sizes = (env.observation_size, env.action_size)
    actors = population.empty(learner, 1, *sizes, np.random.default_rng(0)).actor
    starts, _ = roll.walk(4, actors, np.zeros(1, np.int32), np.int32(1), host_key(0, 0))
    if not put_back:
        assert starts[2] is not None, "it would have been put back"
        starts = (*starts[:2], None)
    mode, sigma = np.int32(RANDOM), np.float32(0.0)
    return roll.collect(plan, 3, actors, starts, mode, sigma, np.array([3]), 7, host_key(0, 1))


def test_an_environment_without_a_hash_is_refused():
    pendulum = runpy.run_path(str(EXAMPLE.with_name("jax_environment.py")))["Pendulum"]
    with pytest.raises(UserError, match="windy-pendulum has no hash"):
        upside.discover(env=pendulum(gusts=np.zeros(2)))


def test_the_worked_example_discovers_covers_and_reaches(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLE))
    example["main"](4000)
    covered, _, reached = capsys.readouterr().out.splitlines()
    assert int(covered.split()[0]) >= 10
    assert not reached.endswith("0.000"), reached


def test_random_spends_its_budget_on_the_host_and_counts_what_it_executes():
    Pond.steps = 0
    run = upside.discover("random", env=pond(), seed=0, max_interactions=4500)
    assert len(run) == 1, "no policy but the root"
    spent = run.summary["interactions"]
    assert 4500 - run.method.plan.H < spent <= 4500
    assert run.history[-1]["visited"] > 50, "an episode of 200 steps crosses the pond often"
    assert spent <= Pond.steps <= spent + 10 * run.method.plan.H, (
        "the rest is evaluation, which is not counted"
    )


def test_measuring_a_body_and_trying_its_policies_walks_to_each_once_and_sees_the_same(monkeypatch):
    body = envs.make("half-cheetah")
    population, learner = methods.get("upside").population, methods.get("upside").learner
    sizes = (body.observation_size, body.action_size)
    bank = population.empty(learner, 2, *sizes, np.random.default_rng(0)).actor
    paths, lengths, key = np.array([[0, 1], [1, 0]]), np.array([2, 0]), host_key(0, 0)
    still, roll = np.zeros((2, 5, 11, body.action_size), np.float32), rollouts.of(body)

    def seen():
        executed = roll.execute(4, 3, 5, bank, paths, lengths, key)
        explored = [roll.explore(4, n, 5, bank, paths, lengths, still, key) for n in (11, 6)]
        return executed, *explored

    cached = seen()
    monkeypatch.setattr(body, "repeats", False)
    plain = seen()
    assert [leaf.shape[:3] for leaf in cached[0]] == [(2, 5, 9), (2, 5, 9), (2, 5, 3), (2, 5, 3)]
    assert [part[2].shape[:3] for part in cached[1:]] == [(2, 5, 11), (2, 5, 6)]
    jax.tree.map(np.testing.assert_array_equal, cached, plain)


def test_a_run_that_ends_long_before_its_budget_says_what_to_try(tmp_path, capsys):
    words = ["train", "upside", "--env", "gymnasium:Pendulum-v1", "--no-figures"]
    assert (
        cli.main([*words, "--max-interactions", "20000", "--run-dir", str(tmp_path / "run")]) == 0
    )
    said = capsys.readouterr().out
    assert "nothing left to expand" in said
    assert "interactions are left: its probes find no free space" in said
    assert "Where an episode may start anywhere" in said, "a pendulum starts anywhere"


def test_what_to_try_is_what_can_be_tried(finished):
    run = Session(runs.configure("upside", quick(), pond(), 0, BUDGET), env=pond())
    run.discovery.tree, run.ended = finished.tree, "nothing left to expand"
    for plan, probe, said in (
        (Plan(T=10, H=7, H_max=200), "held", ["try longer skills (--T 50), or", "--probe rhythm"]),
        (Plan(T=50, H=10, H_max=200), "held", ["try probes that swing (--probe rhythm)"]),
        (Plan(T=50, H=10, H_max=200), "rhythm", ["--reprobes 30 looks on"]),
    ):
        found = dataclasses.replace(
            run.result(), method=dataclasses.replace(quick(), plan=plan, gate=Gate(probe=probe))
        )
        assert all(words in cli._early(found) for words in said)
