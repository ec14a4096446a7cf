"""Unknown goals: what is paid, which policy is chosen, how a chain learns, what a user sees."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import upside
from upside import cli, envs
from upside.downstream import request, select, tasks, tune, tunings
from upside.downstream.episodes import Episodes, discounted, empty, judged
from upside.downstream.reach import Finetuning, zero_shot
from upside.downstream.reached import Skills
from upside.downstream.tunings import default
from upside.engine.compiled import TRACES
from upside.run import Run
from upside.runs import RunDirectory, flatten, unflatten
from upside.types import UserError, number


@pytest.fixture(scope="module")
def run() -> Run:
    """A small tree in the open, for short episodes: the first policies around the start."""
    small = {"k_pol": 20, "probes": 8, "k_steps": 4000, "H_max": 60}
    return upside.discover("upside", env="wall-free-maze", seed=0, max_interactions=6000, **small)


def line(*xs: float) -> np.ndarray:
    """An episode along a line."""
    return np.array([[x, 2.5] for x in xs], np.float32)


def test_a_goal_pays_one_where_it_is_and_ends_the_episode():
    goal = tasks.Goal(jnp.array([5.0, 2.5]), jnp.asarray(1.0))
    obs, action = jnp.asarray(line(2, 3, 4, 5, 6)), jnp.zeros((4, 2))
    episode = judged(goal, obs, obs, action)
    # 4 is within 1 of 5, and is reached with the second step
    assert (int(episode.length), bool(episode.over)) == (2, True)
    np.testing.assert_array_equal(episode.reward, [0, 1, 0, 0])
    assert float(discounted(episode, 0.9)) == pytest.approx(0.9**2)
    away = judged(tasks.Goal(jnp.array([40.0, 40.0]), jnp.asarray(1.0)), obs, obs, action)
    assert (int(away.length), bool(away.over)) == (4, False)
    assert float(discounted(away, 0.9)) == 0.0


def test_a_reward_of_ones_own_is_paid_until_the_time_is_up():
    task = tasks.Reward(lambda features: features[:, 0])
    path = jnp.asarray(line(2, 3, 4))
    episode = judged(task, path, path, jnp.zeros((2, 2)))
    np.testing.assert_array_equal(episode.reward, [3, 4])
    assert (int(episode.length), bool(episode.over)) == (2, False)
    assert float(discounted(episode, 0.5)) == pytest.approx(0.5 * 3 + 0.25 * 4)


def test_the_store_keeps_the_best_episode_and_the_newest():
    store = empty(4, 2, 1, 1, 1)
    for pair in ([1, 2], [9, 3], [4, 5], [8, 6]):  # an episode's length says which one it is
        lengths = jnp.array(pair)
        points, steps = jnp.zeros((2, 3, 1)), jnp.zeros((2, 2, 1))
        reward = jnp.stack([lengths, -lengths], axis=-1).astype(float)
        new = Episodes(points, points, steps, reward, lengths, lengths > 99)
        store = store.add(new, 0.5)
    stored = np.asarray(store.episodes.length).tolist()
    assert stored[0] == 9
    assert sorted(stored[1:]) == [5, 6, 8]
    assert int(store.size) == 4
    np.testing.assert_array_equal(store.episodes.reward[0], [9, -9])


def test_half_of_what_is_drawn_is_the_best_episode_where_it_got_that_far():
    def draw(steps, share):
        which, when = tune.drawn(jnp.array(steps), share, (20_000,), jax.random.key(0))
        assert (np.asarray(when) < np.array(steps)[which]).all(), "a step that there is"
        assert (np.asarray(when) >= 0).all()
        return np.asarray(which), np.asarray(when)

    which, when = draw([4, 2, 0, 10], 0.5)
    shares = np.bincount(which, minlength=4) / len(which)
    np.testing.assert_allclose(
        shares, [0.5 + 0.5 * 4 / 16, 0.5 * 2 / 16, 0, 0.5 * 10 / 16], atol=0.02
    )
    np.testing.assert_allclose(np.bincount(when[which == 0]) / (which == 0).sum(), 0.25, atol=0.02)
    which, _ = draw([0, 2, 2], 0.5)
    assert not (which == 0).any()
    which, _ = draw([1, 3, 0], 0.0)
    assert (which == 0).mean() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("place", "radius", "said"),
    [
        ([60.0, 1.0], 1.0, "outside"),
        ([1.0], 1.0, "needs 2"),
        ([1.0, 1.0], 0.0, "--radius 0"),
        ([1.0, 1.0], float("inf"), "--radius inf"),
        ([1.0, 1.0], float("nan"), "--radius nan"),
        (
            [1.0, 1.0],
            13.0,
            "--radius 13 is more than a quarter .* of bottleneck-maze, 50.* try --radius 5",
        ),
        ([25.0, 15.0], 1.0, "in a wall"),
    ],
)
def test_goals_that_cannot_be_asked_for_are_refused(place, radius, said):
    with pytest.raises(UserError, match=said):
        tasks.goal(envs.make("bottleneck-maze"), place, radius)


def test_the_policy_that_collects_most_is_chosen_and_every_step_is_counted(run):
    seen = select.explore(run, 4, 60, seed=0)
    obs = np.asarray(seen[0])
    assert obs.shape == (len(run), 4, 61, 2)
    deepest = max(range(len(run)), key=lambda z: run.tree[z].depth)
    T = run.method.plan.T
    end = run.tree[deepest].depth * T
    np.testing.assert_array_equal(obs[deepest, 0, : end + 1], obs[deepest, 1, : end + 1])
    assert (obs[deepest, 0, -1] != obs[deepest, 1, -1]).any(), "then it diffuses"
    rng = np.random.default_rng(0)
    goal = tasks.goal(run.env, obs[deepest, 0, end], 0.5)
    choice = select.choose(goal, 0.99, seen, select.candidates(run), rng)
    assert choice.found
    assert choice.returns[choice.policy] == choice.returns.max() >= 0.99**end - 1e-6
    assert choice.interactions < len(run) * 4 * 60, "episodes end at the goal"
    nowhere = tasks.goal(run.env, np.array([49.0, 49.0]), 0.5)
    blind = select.choose(nowhere, 0.99, seen, select.candidates(run), rng)
    assert not blind.found
    assert blind.interactions == len(run) * 4 * 60


def test_policies_without_a_diffusing_part_are_chosen_among_themselves_and_not_with_the_root(run):
    """DIAYN's root would be a random walk, which nobody has learned."""
    plan = dataclasses.replace(run.method.plan, H=0)
    diayn = dataclasses.replace(run, method=dataclasses.replace(run.method, plan=plan))
    assert list(select.candidates(run)) == list(range(len(run)))
    assert list(select.candidates(diayn)) == list(range(1, len(run)))
    obs, features, action = (np.asarray(leaf) for leaf in select.explore(diayn, 2, 20, seed=0))
    assert obs.shape[0] == len(run) - 1
    goal = tasks.goal(run.env, obs[1, 0, 10], 0.2)
    seen = (obs, features, action)
    policies = select.candidates(diayn)
    choice = select.choose(goal, 0.99, seen, policies, np.random.default_rng(0))
    assert choice.policy == 1 + int(np.argmax(choice.returns)), "a policy's number, not its row"


def quick(run):
    """The same code, few numbers; one value for all tests, so that little is compiled."""
    small = {"updates": 20, "warmup": 40, "episodes": 64, "n_explo": 4, "patience": 30}
    return dataclasses.replace(default(run), **small)


def finetuning(run, places, budget=9000):
    goals = [tasks.goal(run.env, np.asarray(p), 1.0) for p in places]
    return Finetuning(run, goals, budget, quick(run))


def ends(run):
    """Where the two deepest policies lead, a little beside."""
    order = sorted(range(1, len(run)), key=lambda z: -run.tree[z].depth)[:2]
    return [np.clip(run.rollout(z)[0][-1] + 1.5, 0, 50) for z in order]


def test_a_goal_gives_the_same_bits_alone_and_among_others(run):
    both, alone = finetuning(run, ends(run)), finetuning(run, ends(run)[:1])
    for _ in range(3):
        both.step()
        alone.step()
    n = alone.chains.stages.actor.center.shape[1]  # others may have longer chains
    pick = lambda leaf: np.asarray(leaf)[0]  # noqa: E731
    for a, b in zip(
        jax.tree.leaves(jax.tree.map(pick, both.chains.stages)),
        jax.tree.leaves(jax.tree.map(pick, alone.chains.stages)),
        strict=True,
    ):
        np.testing.assert_array_equal(a[:n], b[:n])
    assert both.history[-1]["spent"][0] == alone.history[-1]["spent"][0]


def test_rounds_of_a_block_are_those_made_one_by_one_on_any_number_of_cores(run):
    """Up to the very round with which the last chain ends; one of them ends earlier."""
    found = []
    before = TRACES["rounds"]
    for at_a_time, cores in ((1, 1), (4, 2)):
        goals = [tasks.goal(run.env, np.asarray(p), 1.0) for p in ends(run)]
        tuned = Finetuning(run, goals, 9000, quick(run), cores=cores)
        tuned.budgets[0] = 1000
        while not tuned.done:
            tuned.step(at_a_time)
        found.append(tuned)
    one, block = found
    assert TRACES["rounds"] <= before + 1, "one program for every share and length of a block"
    assert block.step(4) == [], "nobody has a round any more"
    assert one.rounds % 4, "the last block is not a whole one"
    assert one.history == block.history
    assert one.curves() == block.curves()
    for a, b in zip(jax.tree.leaves(one.chains), jax.tree.leaves(block.chains), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bits_hold_with_the_options_that_users_compile_with():
    """The two tests above once more: all others are compiled in less time, to other programs."""
    which = "same_bits_alone or rounds_of_a_block"
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", __file__, "-k", which]
    done = subprocess.run(
        command, env={**os.environ, "XLA_FLAGS": ""}, capture_output=True, text=True
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_goals_whose_budget_is_spent_wait_for_the_others(run):
    both = finetuning(run, ends(run))
    both.budgets[0] = 0
    before = both.each(lambda share: share.spent)
    (line,) = both.step()
    assert line["return"][0] is None
    assert line["return"][1] is not None
    assert line["spent"][0] == before[0]
    assert line["spent"][1] > before[1]


def test_an_interrupted_fine_tuning_goes_on_with_the_same_bits(run):
    whole, cut = finetuning(run, ends(run)[:1]), finetuning(run, ends(run)[:1])
    for _ in range(4):
        whole.step()
    cut.step()
    cut.step()
    saved, state = flatten(cut.chains), json.loads(json.dumps(cut.state()))
    again = finetuning(run, ends(run)[:1])
    again.restore(state, unflatten(again.chains, saved))
    for _ in range(2):
        again.step()
    for a, b in zip(jax.tree.leaves(whole.chains), jax.tree.leaves(again.chains), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.history == whole.history


def test_fine_tuning_reaches_what_was_found_and_loses_nothing(run):
    """Beside where a policy's skills lead, so that only its diffusing part gets there, now and then."""
    tuned = finetuning(run, ends(run), budget=40_000)
    while not tuned.done:
        tuned.step()
    results = tuned.results()
    for result in results:
        assert result.found
        assert result.finetuned.success == 1.0
        assert result.finetuned.steps == len(result.path_after) - 1 or not result.tuned
        assert result.after.reward == max(result.finetuned.reward, result.before.reward)
        assert result.selection + result.tuning <= 40_000
        stages = len(result.skills)
        skills = run.tree[result.policy].depth
        assert stages >= skills + 1 if result.tuned else stages == skills
    assert any(result.tuned for result in results)


def test_a_chain_that_gets_no_better_is_left(run):
    tuned = finetuning(run, ends(run)[:1], budget=10**6)
    while not tuned.done:
        tuned.step()
    best = [line["best"][0] for line in tuned.history]
    assert best[-1] > 0
    assert best[-31:] == [best[-1]] * 31
    assert int(tuned.chains.spent[0]) < 10**6


def test_every_stage_moves_once_its_critics_know_something(run):
    tuned = finetuning(run, ends(run)[:1], budget=10**6)
    first = np.array(tuned.chains.stages.actor.mlp.weights[0])  # a step donates its arrays
    for _ in range(2):
        tuned.step()
    np.testing.assert_array_equal(tuned.chains.stages.actor.mlp.weights[0], first)
    tuned.step()
    moved = np.abs(np.asarray(tuned.chains.stages.actor.mlp.weights[0] - first)).max((0, 2, 3))
    last = int(tuned.chains.last[0])
    assert (moved[: last + 1] > 0).all()


def test_actors_repeat_the_best_episode(run):
    """With a weight that leaves nothing else to be learned."""
    tuning = quick(run)
    eager = dataclasses.replace(tuning.learner, imitation=1000.0)
    tuning = dataclasses.replace(tuning, learner=eager, warmup=0, updates=200)
    task = tasks.goal(run.env, ends(run)[0], 1.0)
    tuned = Finetuning(run, [task], 10**6, tuning, horizon=60)
    for _ in range(10):
        tuned.step()
    one = jax.tree.map(lambda leaf: leaf[0], tuned.chains)
    best = jax.tree.map(lambda leaf: np.asarray(leaf[0]), one.store.episodes)
    assert best.over
    T, away = run.method.plan.T, []
    for t in range(int(best.length)):
        stage = min(t // T, int(one.last))
        actor = jax.tree.map(lambda leaf, k=stage: leaf[k], one.stages.actor)
        away.append(np.abs(np.asarray(actor(best.obs[t])) - best.action[t]).max())
    assert np.median(away) < 0.1


def test_noise_is_held_for_some_steps_from_another_one_on_in_every_episode():
    noise = np.asarray(tune.held(10, (50, 200, 2), jax.random.key(0)))
    changes = (np.diff(noise, axis=1) != 0).all(-1)
    assert ((changes.sum(1) == 20) | (changes.sum(1) == 19)).all()
    assert len(set(changes.argmax(1))) == 10
    assert all((np.diff(np.flatnonzero(one)) == 10).all() for one in changes)
    assert abs(noise.std() - 1) < 0.05


def test_one_episode_a_round_is_random_until_the_task_has_paid(run):
    """Which it has where a policy was selected for it."""
    places = [ends(run)[0], np.array([49.0, 49.0])]
    tuned = finetuning(run, places)
    assert [choice.found for choice in tuned.choices] == [True, False]
    found, lost = (jax.tree.map(lambda leaf, i=i: leaf[i], tuned.chains) for i in (0, 1))
    sizes = []
    for chain in (found, lost):
        noise, *_ = tune.chances(tuned.tuning, chain, jax.random.key(0))
        sizes.append(np.asarray(noise).std(axis=(1, 2)) / tuned.tuning.learner.sigma)
    np.testing.assert_allclose(sizes[0], 1.0, atol=0.5)
    np.testing.assert_allclose(sizes[1] / sizes[0], [1.0, tuned.tuning.search, 1.0], rtol=1e-5)


@pytest.mark.parametrize("name", tunings.TUNINGS)
def test_a_near_goal_is_learned_from_scratch(name):
    """So that failing far away means something: ten units are more than a random walk of 60 steps finds as a rule."""
    blank = upside.discover("random", env="wall-free-maze", max_interactions=3000)
    near = np.asarray(blank.rollout(0)[0][0]) + np.float32([8.0, 6.0])
    tuning = dataclasses.replace(tunings.TUNINGS[name](blank), patience=30)
    tuned = Finetuning(blank, [tasks.goal(blank.env, near, 1.0)], 40_000, tuning, horizon=60)
    while not tuned.done:
        tuned.step()
    (result,) = tuned.results()
    assert result.finetuned.success == 1
    assert result.finetuned.steps < 25
    assert result.stochastic.success >= 0.8, "not one lucky episode"
    assert result.before.success < 0.5


def test_the_discriminator_names_a_policy_for_a_known_goal(run):
    z = len(run) - 1
    goal = tasks.goal(run.env, run.buffers[z].mean(0), 1.5)
    result = zero_shot(run, goal, horizon=60)
    assert result.policy == int(np.argmax(run.q(np.asarray(goal.place)[None])[0]))
    assert (result.tuning, result.depth) == (0, run.tree[result.policy].depth)


def test_a_policy_that_is_kept_as_it_was_diffuses_where_it_did(run):
    """So what is kept does what was reported; the root is nothing but its diffusing part."""
    z = max(range(len(run)), key=lambda z: run.tree[z].depth)
    for policy in (0, z):
        skills, depth = Skills.of(run, policy), run.tree[policy].depth
        state, obs = run.env.reset(jax.random.key(0))
        path, _ = run.rollout(policy)
        for t in range(10 * depth):
            np.testing.assert_allclose(obs, path[t], atol=1e-4)
            step = run.env.step(state, skills(obs, t), jax.random.key(0))
            state, obs = step.state, step.obs
        with pytest.raises(UserError, match=f"from step {10 * depth} on this policy diffuses"):
            skills(obs, 10 * depth)
        drawn = [skills(obs, 10 * depth, jax.random.key(i)) for i in range(200)]
        assert np.shape(drawn) == (200, 2)
        assert np.abs(drawn).max() <= 1
        assert np.ptp(drawn) > 1.9


def test_ones_own_reward_is_learned_in_python(run):
    """Go right: paid by how far."""
    patient, needed = dataclasses.replace(quick(run), patience=200), len(run) * 4 * 60
    result = run.reach(lambda f: f[:, 0] / 50, budget=needed + 20_000, tuning=patient)
    assert result.finetuned.reward > result.before.reward > 0


def test_a_cost_of_ones_own_is_learned_too_and_left_when_it_gets_no_better(run):
    """The further left the dearer: every return is below zero, and none of them is 'never paid'."""
    needed = len(run) * 4 * 60
    result = run.reach(lambda f: f[:, 0] / 50 - 1, budget=needed + 40_000, tuning=quick(run))
    assert result.found
    assert result.before.reward < result.finetuned.reward < 0
    assert result.tuning < 40_000


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (lambda f: np.linalg.norm(f, axis=1), "jax.numpy"),
        (lambda f: f[:, 0] if f[0, 0] > 0 else f[:, 1], "jnp.where"),
        (lambda f: f, r"\(3, 2\)"),
        (lambda f: 1.0, r"\(\)"),
        (lambda f: jnp.zeros(3), r"shape \(4, 2\) it gave \(3,\)"),
        (lambda f: None, "one number"),
        (lambda f: jnp.log(f[:, 0] - 100), "finite"),
        (lambda f: f[:, 7], "index 7 is out of bounds"),
        ("left", "no place"),
        (None, "no place"),
    ],
)
def test_rewards_that_cannot_be_learned_are_refused(run, reward, said):
    with pytest.raises(UserError, match=said):
        run.reach(reward, tuning=quick(run))


@pytest.mark.parametrize(
    ("value", "whole"),
    [("1", False), (None, False), (float("nan"), True), ("9", True), (1.5, True)],
)
def test_arguments_that_are_no_numbers_are_refused(value, whole):
    with pytest.raises(UserError, match=f"{value!r} is not a"):
        number("budget", value, whole)
    assert number("budget", 1e6, whole=True) == 10**6


def test_ways_of_fine_tuning_have_names(run):
    with pytest.raises(UserError, match="'td4': did you mean td3"):
        run.reach((40, 40), tuning="td4")
    with pytest.raises(
        UserError, match="tuning with SAC: the run's policies were learned with TD3"
    ):
        run.reach((40, 40), tuning="sac")
    with pytest.raises(UserError, match="17 rounds at a time: give 1 to 16"):
        finetuning(run, ends(run)).step(17)
    with pytest.raises(UserError, match="radius inf is not a length"):
        run.reach((40, 40), radius=float("inf"), tuning="icm")


def test_the_unit_of_a_new_skill_is_of_counted_steps_only():
    """Two episodes that are over after 2 and 4 steps: what would have come after that is nowhere in it."""
    obs = np.arange(6.0)[None, :, None].repeat(2, 0)
    none = np.zeros((2, 5))
    some = [Episodes(obs, obs, none, none, np.array([2, 4]), none[:, 0])]
    some.append(some[0]._replace(obs=np.where(obs > 4, 1e6, obs)))
    for episodes in some:
        # from step 2 on were seen 2; 2, 3, 4: around a center of 2
        center, scale = tune._outlook(episodes, 2)
        assert center == 2.0
        assert scale == pytest.approx(np.sqrt(5 / 4))
        # nobody got beyond step 4
        assert tune._outlook(episodes, 5)[0] == 3.0


def test_two_do_not_write_to_one_goal(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tunings, "default", quick)
    run.save(tmp_path / "run")
    place = [float(x) for x in ends(run)[0]]
    asked = request.ask(tmp_path / "run", tmp_path / "goal", [place], budget=30_000)
    job = asked.prepare(tmp_path / "goal")
    asked.start(tmp_path / "goal")
    other = dataclasses.replace(asked, budget=40_000)
    with RunDirectory(tmp_path / "goal").alone():
        with pytest.raises(UserError, match="another process"):
            job.perform()
        for overwrite in (True, False):
            with pytest.raises(UserError, match="another process"):
                other.start(tmp_path / "goal", overwrite)
    with pytest.raises(UserError, match="another budget"):
        other.start(tmp_path / "goal")
    assert request.Request.read(tmp_path / "goal") == asked, "nothing was removed"
    other.start(tmp_path / "goal", overwrite=True)
    with pytest.raises(UserError, match="something else meanwhile"):
        job.perform()


def test_a_request_that_was_cut_off_before_it_began_can_be_made_again(run, tmp_path):
    run.save(tmp_path / "run")
    asked = request.ask(tmp_path / "run", tmp_path / "goal", [[1.0, 2.0]])
    (tmp_path / "goal" / "checkpoints").mkdir(parents=True)
    (tmp_path / "goal" / "config.json.part").write_text("{")
    asked.start(tmp_path / "goal")
    assert request.Request.read(tmp_path / "goal") == asked


def test_the_command_says_and_shows_what_became_of_a_goal(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tunings, "default", quick)
    run.save(tmp_path / "run")
    x, y = (round(float(number), 2) for number in ends(run)[0])
    command = ["reach", str(tmp_path / "run"), "--goal", f"{x:.4f}, {y:.2f}", "--budget", "30000"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    where = tmp_path / "run" / "reach" / f"{x:g}_{y:g}"
    said = json.loads((where / "result.json").read_text())
    assert f"policy {said['goals'][0]['policy']}" in out
    assert f"of {len(run) - 1} policies and the root it collected most" in out
    assert "to fine-tune" in out
    assert (where / "way.png").stat().st_size > 10_000
    (where / "way.png").unlink()
    assert cli.main(command) == 0
    assert json.loads((where / "result.json").read_text()) == said, "done already"
    assert capsys.readouterr().out.startswith(out.rstrip()), "said again"
    assert (where / "way.png").exists(), "drawn again"
    assert cli.main(["resume", str(where)]) == 0
    assert "done before" in capsys.readouterr().out
    assert cli.main([*command, "--seed", "1"]) == 2
    assert "another seed" in capsys.readouterr().err
    again = [*command[:-1], "1000", "--overwrite"]
    assert cli.main(again) == 2
    assert json.loads((where / "result.json").read_text()) == said, (
        "refused before anything is lost"
    )
    assert cli.main([*command, "--overwrite", "--output", str(tmp_path / "run")]) == 2
    assert "something else" in capsys.readouterr().err
    assert Run.load(tmp_path / "run").tree.to_json() == run.tree.to_json()
    assert cli.main([*command[:4], "--zero-shot"]) == 0
    assert "discriminator" in capsys.readouterr().out


def test_the_skills_that_were_kept_can_be_loaded_and_do_it_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tunings, "default", quick)
    run.save(tmp_path / "run")
    x, y = ends(run)[0]
    command = ["reach", str(tmp_path / "run"), "--goal", f"{x:.2f},{y:.2f}", "--budget", "30000"]
    assert cli.main([*command, "--output", str(tmp_path / "goal")]) == 0
    said = json.loads((tmp_path / "goal" / "result.json").read_text())["goals"][0]
    assert said["tuned"]
    skills, env = upside.load_skills(tmp_path / "goal"), run.env
    (state, obs), steps = env.reset(jax.random.key(0)), 0
    goal = np.round([x, y], 2)
    while np.linalg.norm(env.features(obs) - goal) > 1.0:
        step = env.step(state, skills(obs, steps), jax.random.key(0))
        state, obs, steps = step.state, step.obs, steps + 1
    assert steps == said["finetuned"]["steps"]
    assert not skills.diffuses
    with pytest.raises(UserError, match="no goal"):
        upside.load_skills(tmp_path / "run")


def test_an_interrupted_request_is_continued_by_resume(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tunings, "default", quick)
    run.save(tmp_path / "run")
    places = [[float(x) for x in end] for end in ends(run)]
    jobs = {}
    for name in ("whole", "cut"):
        asked = request.ask(tmp_path / "run", tmp_path / name, places, budget=20_000)
        asked.start(tmp_path / name)
        jobs[name] = asked.prepare(tmp_path / name)
    jobs["whole"].perform()

    def interrupt(tuned):
        if tuned.rounds >= 4:
            raise KeyboardInterrupt

    assert request.progress(tmp_path / "cut") == 0
    with pytest.raises(KeyboardInterrupt):
        jobs["cut"].perform(interrupt)
    assert 0 < request.progress(tmp_path / "cut") < 1
    made, step = [], Finetuning.step

    def watched(self, number):
        made.append(self.rounds)
        return step(self, number)

    monkeypatch.setattr(Finetuning, "step", watched)
    assert cli.main(["resume", str(tmp_path / "cut")]) == 0
    assert made[0] == jobs["cut"].tuned.rounds >= 4, "no round was made again"
    whole, cut = (request.result(tmp_path / name) for name in jobs)
    assert whole == cut
    assert len(whole["goals"]) == 2
    assert not (tmp_path / "cut" / "checkpoints").exists()


def test_a_request_of_another_tree_is_refused(run, tmp_path, capsys):
    run.save(tmp_path / "run")
    asked = request.ask(tmp_path / "run", tmp_path / "goal", [[4.0, 4.0]])
    asked.start(tmp_path / "goal")
    other = dataclasses.replace(run, counts=np.zeros_like(run.counts))
    other.save(tmp_path / "run", overwrite=True)
    assert cli.main(["resume", str(tmp_path / "goal")]) == 2
    assert "another tree" in capsys.readouterr().err


def test_a_request_that_was_begun_when_fine_tuning_was_another_is_refused(run, tmp_path, capsys):
    run.save(tmp_path / "run")
    asked = request.ask(tmp_path / "run", tmp_path / "goal", [[4.0, 4.0]])
    asked.start(tmp_path / "goal")
    config = tmp_path / "goal" / "config.json"
    said = json.loads(config.read_text())
    del said["recipe"]  # as the first one wrote it
    config.write_text(json.dumps(said))
    assert cli.main(["resume", str(tmp_path / "goal")]) == 2
    assert "another version" in capsys.readouterr().err
    with pytest.raises(UserError, match="another recipe"):
        asked.check(tmp_path / "goal", overwrite=False)


def test_a_run_without_policies_is_refused(run, tmp_path, capsys):
    alone = upside.discover("random", env="wall-free-maze", max_interactions=1000)
    alone.save(tmp_path / "run")
    for words in ([], ["--zero-shot"]):
        assert cli.main(["reach", str(tmp_path / "run"), "--goal", "4,4", *words]) == 2
        assert "no policies" in capsys.readouterr().err
    with pytest.raises(UserError, match="no policies"):
        zero_shot(alone, tasks.goal(alone.env, (4.0, 4.0), 1.0))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--goal", "60,1"], "outside"),
        (["--goal", "1"], "needs 2"),
        (["--goal", "left"], "40,45"),
        (["--goal", "4,4", "--radius", "-1"], "--radius"),
        (["--goal", "4,4", "--budget", "1000"], "give at least"),
        (["--goal", "4,4", "--seed", "-1"], "--seed -1 is not at least 0"),
        ([], "goal"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(words, said, run, tmp_path, capsys):
    run.save(tmp_path / "run")
    assert cli.main(["reach", str(tmp_path / "run"), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run" / "reach").exists()
