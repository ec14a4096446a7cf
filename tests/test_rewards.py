"""What a skill is paid for: the states its diffusing part visits, at the end of its directed part."""

import jax.numpy as jnp
import numpy as np
import pytest

from upside.rewards import DiffusingReward
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
