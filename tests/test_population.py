"""One network each or one for all: what a population promises, and SAC's losses by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from upside.learners import sac
from upside.learners.population import Distinct, Shared, absorb
from upside.learners.sac import SAC
from upside.learners.td3 import TD3, Batch


def test_a_code_absorbed_by_the_first_bias_is_the_same_network():
    rng = np.random.default_rng(0)
    learner = TD3(hidden=8)
    state = Shared(3).empty(learner, 4, 2, 1, rng)
    outlook = (np.float32([1.0, 2.0]), np.float32([2.0, 0.5]))
    for slot in range(4):
        code = rng.normal(size=3).astype(np.float32)
        state = Shared(3).renew(learner, state, slot, outlook, code, 1, rng)
    obs = jnp.asarray([0.3, -0.7])
    for slot in range(4):
        one = jax.tree.map(
            lambda leaf, slot=slot: leaf[slot], absorb(state.shared.actor, state.codes)
        )
        whole = state.shared.actor(jnp.concatenate([obs, state.codes[slot]]))
        np.testing.assert_allclose(one(obs), whole, rtol=1e-5, atol=1e-6)


def test_skills_are_shared_out_among_cores_and_one_network_is_not():
    training = np.array([True, False, True, True, False])
    shares = Distinct().shares(training, 2)
    assert [np.flatnonzero(share).tolist() for share in shares] == [[0, 3], [2]]
    assert len(Distinct().shares(training, 8)) == 3, "no more shares than skills"
    assert [s.tolist() for s in Distinct().shares(training & False, 2)] == [[False] * 5]
    assert Shared().shares(training, 2) == [training]


def test_the_log_likelihood_of_a_squashed_gaussian():
    """Against a histogram: the density of tanh(u) integrates to one and peaks where samples do."""
    rng = np.random.default_rng(0)
    actor = SAC(hidden=4).init(np.zeros(1, np.float32), np.ones(1, np.float32), 1, rng).actor
    obs = jnp.zeros((20_000, 1))
    noise = jnp.asarray(rng.normal(size=(20_000, 1)), jnp.float32)
    action, log_prob = sac.sample(actor, obs, noise)
    counts, edges = np.histogram(np.asarray(action), bins=20, range=(-1, 1), density=True)
    middle = np.digitize(np.asarray(action)[:, 0], edges[1:-1])
    for b in range(4, 16):
        inside = np.asarray(log_prob)[middle == b]
        if len(inside) > 200:
            assert np.exp(inside).mean() == pytest.approx(counts[b], rel=0.15)


def test_without_noise_a_stochastic_policy_takes_its_mean():
    rng = np.random.default_rng(0)
    actor = SAC(hidden=4).init(np.zeros(2, np.float32), np.ones(2, np.float32), 2, rng).actor
    obs = jnp.asarray([0.5, -1.0])
    np.testing.assert_allclose(actor.explore(obs, jnp.zeros(2)), actor(obs))
    assert (actor.explore(obs, jnp.ones(2)) != actor(obs)).all()


def test_sac_learns_a_bandit_and_keeps_its_entropy():
    """Reward 1 - (a - 0.5)², one step: the mean goes to 0.5; a larger α keeps the policy wider."""
    rng = np.random.default_rng(0)
    deviations = []
    for alpha in (0.01, 0.5):
        learner = SAC(hidden=16, alpha=alpha, lr_pol=3e-3)
        state = learner.init(np.zeros(1, np.float32), np.ones(1, np.float32), 1, rng)
        update = jax.jit(learner.update)
        for _ in range(600):
            action = rng.uniform(-1, 1, (1, 64, 1)).astype(np.float32)
            nothing = np.zeros((1, 64, 1), np.float32)
            reward = 1 - (action[..., 0] - 0.5) ** 2
            batch = Batch(nothing, action, reward, nothing, np.ones_like(reward), reward, reward)
            noise = rng.normal(size=(1, 64, 2)).astype(np.float32)
            state = update(state, jax.tree.map(jnp.asarray, batch), jnp.asarray(noise))
        obs = jnp.zeros(1)
        if alpha < 0.1:
            assert float(state.actor(obs)[0]) == pytest.approx(0.5, abs=0.15)
        deviations.append(float(state.actor.gaussian(obs)[1][0]))
    assert deviations[0] < deviations[1]
