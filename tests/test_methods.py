"""Every declared method: a value that can be checked, saved and run, and does what its paper says."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import upside
from upside import envs, methods
from upside.bench import Blank
from upside.engine import learning
from upside.engine.compiled import TRACES
from upside.engine.discovery import Discovery
from upside.engine.learning import _learn_prior
from upside.engine.method import SINCE, Method
from upside.engine.train import _turn, rounds
from upside.evaluate.intrinsic import intrinsic_reward
from upside.learners import replay as replays
from upside.learners.td3 import TD3
from upside.models import classes, density, vqvae
from upside.models.vqvae import VQVAE
from upside.rewards import DiffusingReward, Scores, StateReward
from upside.skills.growth import Child, Expansion, Fixed, Growth
from upside.skills.plan import Plan
from upside.types import Space, Trajectory, UserError

BUDGET = 6000


def quick(name: str) -> Method:
    """The method with small numbers: the same code, a run of seconds."""
    method = methods.get(name)
    practice = dataclasses.replace(
        method.practice, k_pol=10, k_initial=min(method.practice.k_initial, 100), replay_size=20_000
    )
    method = dataclasses.replace(method, practice=practice)
    if isinstance(method.growth, Growth):
        growth = dataclasses.replace(method.growth, eta=0.5, k_steps=2000)
        return dataclasses.replace(method, growth=growth)
    if isinstance(method.judge, VQVAE):
        judge = dataclasses.replace(method.judge, steps_vqvae=200)
        method = dataclasses.replace(method, judge=judge)
    short = {"T": 30, "H": 10 if method.plan.H else 0, "H_max": 40, "j": 2}
    return dataclasses.replace(method, growth=Fixed(num_skills=3)).replace(short)


@pytest.mark.parametrize("name", methods.METHODS)
def test_a_method_is_a_sound_value_that_survives_json(name):
    method = methods.get(name)
    method.check()
    assert Method.from_json(method.to_json()) == method
    older = method.to_json()
    for part in older.values():
        for setting, then in SINCE.items():
            part.pop(setting, then)
    assert Method.from_json(older) == method.replace(
        {k: v for k, v in SINCE.items() if k in method.settings()}
    ), "settings that are new since have the value of what was done before"
    names = [f.name for part in method.slots().values() for f in dataclasses.fields(part)]
    assert len(names) == len(set(names)), "settings are named once across slots"


def test_settings_that_are_no_options_change_nothing():
    method = quick("diayn")
    of_trees = {"consolidated_weight", "keep_discriminator", "rehearsal"}
    of_diffusing_parts = {"H", "jitter", "feature_scale", "self_imitation", "imitation"}
    of_other_methods = {"states", "prior", "novelty"}
    assert method.idle() == of_trees | of_diffusing_parts | of_other_methods
    assert quick("smm").idle() == method.idle() - {"novelty"}
    others = method.replace({"jitter": 5.0, "feature_scale": 2.0, "consolidated_weight": 9.0})
    both = [Discovery(envs.make("u-maze"), m, 0, 2000) for m in (method, others)]
    seen = [
        [[c.d for c in run.expansion.children] for _ in rounds(run) if run.expansion]
        for run in both
    ]
    assert seen[0] == seen[1]
    assert any(seen[0])
    assert methods.get("random").idle() >= {"lr_pol", "k_discr", "n_max"}
    assert not methods.get("upside").idle()


@pytest.mark.parametrize("name", [m for m in methods.METHODS if not m.startswith("upside")])
def test_every_method_runs_on_the_one_engine(name):
    run = Discovery(envs.make("u-maze"), quick(name), 0, BUDGET)
    events = list(rounds(run))
    assert events[-1] in ("budget spent", "nothing left to expand")
    assert run.counters.interactions <= BUDGET
    assert name != "random" or run.counters.interactions > BUDGET - 200, "all of it is used"
    assert (len(run.tree) == 1) == (name == "random")
    depth = max(node.depth for node in run.tree.nodes)
    assert depth == 0 if name == "random" else depth >= 1
    if isinstance(run.method.growth, Fixed):
        assert len(run.tree) == 1 + run.method.growth.num_skills


def test_alg_2_begins_every_call_of_policy_learning_with_a_new_discriminator(monkeypatch):
    """One that is never begun anew becomes ever sharper."""
    run = Discovery(envs.make("u-maze"), quick("diayn-curr"), 0, BUDGET)
    begun, calls = [], set()
    monkeypatch.setattr(run, "new_judge", lambda: begun.append(run.counters.rounds))
    for event in rounds(run):
        if event == "round":
            calls.add((run.counters.expansions, len(run.expansion.children)))
    assert len(begun) >= len(calls) > 1


@pytest.mark.parametrize("name", ["diayn", "flat-upside"])
def test_what_episodes_are_worth_is_known_between_two_fits_of_the_discriminator(name):
    """J > 1: new episodes are added to what is known, by one program, as if all were judged again."""
    run = Discovery(envs.make("u-maze"), quick(name), 0, BUDGET)
    assert run.method.practice.j > 1
    before = TRACES["pay"]
    for _ in itertools.islice(rounds(run), 4):
        pass
    assert TRACES["pay"] <= before + 1, "programs are shared with runs before this one"
    scores = learning._scores(run, run.expansion)
    known, run._paid = run.pay(scores), None
    afresh = run.pay(scores)
    for a, b in zip(jax.tree.leaves(known), jax.tree.leaves(afresh), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_skill_that_was_not_drawn_yet_learns_nothing_from_its_empty_class():
    """VIC draws its skills: in the first round, some have no state by which anything could be worth something."""
    run = Discovery(envs.make("u-maze"), quick("vic"), 0, 6000)
    for _ in rounds(run):
        leaves = jax.tree.leaves(jax.tree.map(np.asarray, run.arrays.learners))
        assert all(np.isfinite(leaf).all() for leaf in leaves)
    rho = [node.rho for node in run.tree.nodes[1:]]
    assert sum(rho) == pytest.approx(len(rho))
    assert np.ptp(rho) > 0.05, "skills that overlap are not sampled alike"


def test_what_an_expansion_may_cost_is_app_bs_reading_or_alg_2s():
    """K_steps of a whole expansion need a discriminator that goes on: one begun anew would know nobody."""
    for name, spent, goes_on in (("upside-paper", 7, True), ("diayn-curr", 0, False)):
        run = Discovery(envs.make("u-maze"), quick(name), 0, BUDGET)
        x, judge = Expansion(0, [Child(0)], [], own_steps=7), run.arrays.judge
        _turn(run, x, "remove")
        assert (x.own_steps, run.arrays.judge is judge) == (spent, goes_on)


def test_codes_of_another_size_than_the_vqvaes_are_refused():
    with pytest.raises(UserError, match="--code-size 8"):
        methods.get("edl").replace({"code_size": 8}).check()


def test_the_entropy_beside_a_reward_has_its_unit():
    sac = methods.get("diayn", "sac").learner
    assert sac.paid_in(StateReward(average=True).unit(0.99)).alpha == pytest.approx(0.1 * 0.01)
    assert sac.paid_in(StateReward().unit(0.99)).alpha == 0.1


@pytest.mark.parametrize("name", ["diayn", "vic"])
@pytest.mark.parametrize("setting", [{"self_imitation": True}, {"imitation": 5.0}])
def test_imitation_is_refused_where_nothing_is_known_of_whole_episodes(name, setting):
    with pytest.raises(UserError, match="imitation needs UPSIDE's reward"):
        methods.get(name).replace(setting).check()


def test_a_reward_at_every_step_cannot_be_summed_without_discount():
    with pytest.raises(UserError, match="gamma"):
        methods.get("diayn").replace({"gamma": 1.0}).check()


def test_a_set_cut_before_its_first_round_keeps_only_policies_that_exist():
    """Initial data of three policies, no more: the discriminator has seen nothing, and stays finite."""
    run = Discovery(envs.make("u-maze"), methods.get("diayn"), 0, 3500)
    list(rounds(run))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.arrays.judge.mlp))


def test_model_selection_draws_vics_policies_as_vic_does():
    """q is 1/2 everywhere: an episode earns -log 2, and the entropy of ρ."""
    run = upside.discover("vic", "u-maze", max_interactions=6000, num_skills=2)
    halves = dataclasses.replace(run, judge=Undecided())
    for rho in ((0.5, 0.5), (0.75, 0.25)):
        run.tree[1].rho, run.tree[2].rho = 2 * rho[0], 2 * rho[1]
        entropy = -sum(p * np.log(p) for p in rho)
        assert intrinsic_reward(halves) == pytest.approx(entropy - np.log(2), abs=1e-5)


def test_another_learner_is_one_word():
    method = methods.get("diayn", "sac")
    assert type(method.learner).__name__ == "SAC"
    assert isinstance(methods.get("diayn", "td3").learner, TD3)
    with pytest.raises(UserError, match="did you mean sac"):
        methods.get("diayn", "sak")


# ---------------------------------------------------------------- rewards of states (Table 1)


class Undecided(eqx.Module):
    """A judge that gives skill z the probability 1/2 everywhere."""

    def log_score(self, features, classes):
        return jnp.full((*features.shape[:-1], classes.size), jnp.log(0.5))

    log_prob = log_score


def scores(n):
    some = np.zeros((n, 4, 1), np.float32)
    log_rho = np.full(n, -np.log(n), np.float32)
    return Scores(Undecided(), np.ones(n, bool), np.arange(n), log_rho, some, np.full(n, 4))


def test_an_episode_earns_the_sum_over_its_states_or_the_mean_over_its_diffusing_ones():
    states, space = jnp.zeros((3, 2, 4, 1)), Space((0.0,), (1.0,), (2,))
    earned = StateReward("all").total(Plan(T=4, H=0), space, states, scores(3))
    # four states of log(1/2) - log(1/3) each
    np.testing.assert_allclose(earned, np.full((3, 2), 4 * np.log(1.5)), rtol=1e-5)
    diffusing = DiffusingReward().total(Plan(T=4, H=4), space, states, scores(3))
    np.testing.assert_allclose(diffusing, np.full((3, 2), 0.5), rtol=1e-5)


def test_a_reward_at_every_step_is_paid_in_full_or_as_an_average():
    space, replay = Space((0.0,), (1.0,), (2,)), replays.init(2, 3, 3, 1, 1, 1)
    for paid, unit in (({}, 1.0), ({"average": True}, 0.01), ({"states": "final"}, 1.0)):
        reward, plan = StateReward(**paid), Plan(T=3, H=0)
        three = reward.relabel(plan, space, replay, scores(3), 0.99, None, *[jnp.asarray(0)] * 2)
        reward, _ = np.asarray(three.at(jnp.asarray([0]), jnp.asarray([2])))[0]
        assert reward == pytest.approx(unit * np.log(1.5), rel=1e-4)


EPISODES = Trajectory(
    obs=jnp.zeros((2, 4, 1)),
    action=jnp.zeros((2, 3, 1)),
    terminated=jnp.zeros((2, 3), bool),
    truncated=jnp.zeros((2, 3), bool),
    features=jnp.arange(6.0).reshape(2, 3, 1),
)


def test_diayn_judges_every_state_and_vic_the_final_one():
    plan = Plan(T=3, H=0)
    everywhere, final = StateReward("all"), StateReward("final")
    np.testing.assert_array_equal(everywhere.judged(plan, EPISODES), EPISODES.features)
    np.testing.assert_array_equal(final.judged(plan, EPISODES)[..., 0], [[2.0], [5.0]])
    assert (everywhere.count(plan), final.count(plan)) == (3, 1)
    assert final.ends, "paid at its end, the skill's task ends there"
    assert not everywhere.ends, "paid at every step, it is cut, not ended"


def test_a_learned_prior_follows_discriminability():
    """Two skills that overlap are told apart half the time: the third is worth sampling more often."""
    children = [Child(0), Child(1), Child(2)]
    log_q = np.log([0.5, 0.5, 1.0])
    for _ in range(200):
        _learn_prior(children, log_q)
    # ρ ∝ exp E[log q]: 1/4, 1/4, 1/2, kept as multiples of 1/3
    np.testing.assert_allclose([c.rho / 3 for c in children], [0.25, 0.25, 0.5], rtol=1e-3)
    _learn_prior(children[:2], np.log([1.0, 0.5, 1.0]))
    assert sum(c.rho for c in children) == pytest.approx(3.0), "of a skill without states, ρ stays"
    assert children[2].rho == pytest.approx(1.5, rel=1e-3)


def test_a_density_is_the_share_of_recent_states_relative_to_uniform():
    space = Space((0.0, 0.0), (2.0, 2.0), (2, 2))
    states = np.float32([[[0.5, 0.5], [0.5, 0.5], [1.5, 0.5], [9.0, 9.0]]])
    table = density.fit(space, states, np.int32([3]))
    # three states counted, one pseudo-count a bucket: 3, 2 (x, y = 1.5, 0.5), 1, 1 of 7, times 4
    np.testing.assert_allclose(np.exp(table[0]), np.array([3, 1, 2, 1]) / 7 * 4, rtol=1e-5)
    assert density.cells(space, jnp.asarray([9.0, -9.0])) == 2, "outside counts to the edge"


# ---------------------------------------------------------------- EDL's codes


@pytest.fixture(scope="module")
def codes():
    """Ten codes of the oracle's states in an open maze, brought to [-1, 1]."""
    oracle = envs.make("wall-free-maze").oracle(np.random.default_rng(0), 4000)
    states = (oracle / 25 - 1).astype(np.float32)
    return states, vqvae.train(VQVAE(steps_vqvae=3000), states, 10, np.random.default_rng(1))


def test_the_vqvae_reconstructs_the_oracles_states_and_uses_its_codes(codes):
    states, net = codes
    used = np.bincount(net.nearest(net.encoder(jnp.asarray(states))), minlength=10) / len(states)
    assert (used > 0.02).all(), used
    # ten even cells of side 2/√10 have a variance of side²/12 = 0.033 a coordinate; nothing is 1/3
    assert net.error(jnp.asarray(states)) < 0.06


def test_a_code_is_paid_for_states_near_what_it_decodes_to():
    config, env = VQVAE(steps_vqvae=1500), envs.make("u-maze")
    center, scale = np.float32([25.0, 25.0]), np.float32([25.0, 25.0])
    empty = config.init(6, center, scale, np.random.default_rng(0))
    state = config.prepare(empty, env, 0.0, np.arange(2, 6), np.random.default_rng(0))
    places = np.asarray(state.decoded)[2:] * 25 + 25
    score = np.asarray(state.log_score(jnp.asarray(places, jnp.float32), jnp.ones(6, bool)))[:, 2:]
    assert (score.argmax(1) == np.arange(4)).all()
    np.testing.assert_allclose(np.diag(score), 0.0, atol=1e-4)
    moved = classes.move(state, np.array([2, 3, 4, 5, 4, 5]))
    np.testing.assert_array_equal(moved.codes[:2], state.codes[2:4])


def test_edl_refuses_an_environment_without_an_oracle():
    with pytest.raises(UserError, match="oracle"):
        methods.get("edl").judge.suits(Blank(2, 2))
    methods.get("edl").judge.suits(envs.make("u-maze"))
    methods.get("diayn").judge.suits(Blank(2, 2))


# ---------------------------------------------------------------- what each method shows


def test_diayn_tells_few_skills_apart_and_smm_visits_more_buckets_in_an_open_maze():
    """Discriminability near 1 (the paper's Fig. on N_Z, small N)."""
    seen, told_apart = {}, {}
    for name in ("diayn", "smm"):
        method = methods.get(name)
        practice = dataclasses.replace(method.practice, k_pol=50)
        method = dataclasses.replace(
            method, growth=Fixed(3), plan=Plan(T=100, H=0), practice=practice
        )
        run = Discovery(envs.make("wall-free-maze"), method, 0, 15_000)
        list(rounds(run))
        seen[name] = len(run.buckets)
        told_apart[name] = min(node.discriminability for node in run.tree.nodes[1:])
    assert seen["smm"] > seen["diayn"], seen
    assert told_apart["diayn"] > 0.9


def test_diayn_curr_ends_where_the_constraint_binds(tmp_path):
    """In a cell of 10 x 10 units only so many skills of 20 steps are distinct: more were allowed, and tried."""
    (tmp_path / "cell.txt").write_text("..\nS.\n")
    small = {"T": 20, "H_max": 20, "k_pol": 20, "k_steps": 6000, "k_initial": 40, "n_max": 14}
    method = methods.get("diayn-curr").replace(small)
    run = Discovery(envs.make(str(tmp_path / "cell.txt")), method, 0, 200_000)
    events, tried = [], 0
    for event in rounds(run):
        events.append(event)
        tried = max(tried, len(run.expansion.children) if run.expansion else 0)
    assert events[-1] == "nothing left to expand"
    found = [node.discriminability for node in run.tree.nodes[1:]]
    assert min(found) > method.growth.eta
    assert 3 < len(found) < tried <= method.growth.n_max


def test_jax_is_the_only_random_source_that_matters():
    """The same seed, the same skills, for a method with a learned prior (drawn on the host)."""
    actors = []
    for _ in range(2):
        run = Discovery(envs.make("u-maze"), quick("vic"), 3, BUDGET)
        list(rounds(run))
        actors.append(jax.tree.leaves(run.arrays.bank))
    for a, b in zip(*actors, strict=True):
        np.testing.assert_array_equal(a, b)
