"""What a skill is paid for: the states its diffusing part visits, at the end of its directed part."""

import jax.numpy as jnp
import numpy as np
import pytest

from upside.rewards import DiffusingReward, Table
from upside.skills.plan import Plan
from upside.types import Trajectory

PLAN = Plan(T=3, H=2)


def test_judged_states_are_those_of_the_diffusing_part():
    features = jnp.asarray(np.arange(2 * 5 * 2, dtype=np.float32).reshape(2, 5, 2))
    nothing = jnp.zeros((2, 5), bool)
    episodes = Trajectory(jnp.zeros((2, 6, 1)), jnp.zeros((2, 5, 1)), nothing, nothing, features)
    judged = DiffusingReward().judged(PLAN, episodes)
    # Features are of the states reached: after the 3 directed steps come those of steps 4 and 5.
    np.testing.assert_array_equal(judged, features[:, 3:])
    assert DiffusingReward().count(PLAN) == judged.shape[1] == 2


@pytest.mark.parametrize("lead", [(), (2,), (2, 2)])
def test_the_mean_score_is_paid_at_the_last_directed_step_only(lead):
    scores = jnp.asarray(np.broadcast_to(np.float32([0.2, 0.6]), (*lead, 2)))
    paid = DiffusingReward().pay(PLAN, scores)
    assert paid.shape == (*lead, 3)
    np.testing.assert_allclose(paid, np.broadcast_to([0.0, 0.0, 0.4], paid.shape), rtol=1e-6)


def test_each_episode_is_paid_its_own_score():
    paid = DiffusingReward().pay(PLAN, jnp.asarray([[0.0, 0.5], [1.0, 1.0]]))
    np.testing.assert_allclose(paid, [[0.0, 0.0, 0.25], [0.0, 0.0, 1.0]])


def test_rewards_stay_between_zero_and_one():
    """Footnote of Sect. 3.4: scores are probabilities, not their logarithms."""
    scores = jnp.asarray(np.random.default_rng(0).uniform(size=(50, 2)).astype(np.float32))
    paid = np.asarray(DiffusingReward().pay(PLAN, scores))
    assert paid.min() >= 0.0
    assert paid.max() <= 1.0


def test_the_best_episode_of_a_skill_is_the_one_that_would_have_earned_it_most():
    # two skills, three episodes of two steps; the return of each episode is that of its first step
    returns = np.array([[0.1, 0.9, 0.3], [0.7, 0.0, 0.2]])
    paid = np.zeros((2, 3, 2, 2), np.float32)
    paid[:, :, 0, 1] = returns
    table = Table(jnp.asarray(paid))
    index = jnp.arange(6)
    np.testing.assert_array_equal(table.best(jnp.asarray(0), index), [2, 3, 2, 3, 2, 3])
    np.testing.assert_array_equal(table.best(jnp.asarray(1), index), [0, 1, 0, 1, 0, 1])
