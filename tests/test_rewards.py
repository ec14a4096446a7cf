"""What a skill is paid for: the states its diffusing part visits, at the end of its directed part or one by one."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from upside.learners import replay as replays
from upside.rewards import DiffusingReward, Scores
from upside.skills.plan import Plan
from upside.types import Space, Trajectory

PLAN = Plan(T=3, H=2)


def test_judged_states_are_those_of_the_diffusing_part():
    features = jnp.asarray(np.arange(2 * 5 * 2, dtype=np.float32).reshape(2, 5, 2))
    nothing = jnp.zeros((2, 5), bool)
    episodes = Trajectory(jnp.zeros((2, 6, 1)), jnp.zeros((2, 5, 1)), nothing, nothing, features)
    judged = DiffusingReward().judged(PLAN, episodes)
    # Features are of the states reached: after the 3 directed steps come those of steps 4 and 5.
    np.testing.assert_array_equal(judged, features[:, 3:])
    assert DiffusingReward().count(PLAN) == judged.shape[1] == 2


class Thermometer(eqx.Module):
    """A judge by whom the first of two skills owns a state of feature x with probability x."""

    def log_prob(self, features, classes):
        return jnp.log(jnp.concatenate([features, 1.0 - features], axis=-1))


NOBODY, NOTHING = np.zeros(2, np.int32), np.zeros((2, 1, 1), np.float32)
SCORES = Scores(Thermometer(), np.ones(2, bool), np.arange(2), np.zeros(2), NOTHING, NOBODY)
SPACE = Space((0.0,), (1.0,), (2,))


END, EACH = DiffusingReward(), DiffusingReward(paid="each")


def filled(judged, capacity, reward=END):
    """A replay buffer whose first episodes have these judged states; others are left over from before."""
    replay = replays.init(capacity, reward.length(PLAN), PLAN.H, 1, 1, 1)
    rows = jnp.full((capacity, PLAN.H, 1), 0.99).at[: len(judged)].set(judged[..., None])
    return eqx.tree_at(lambda r: (r.judged, r.size), replay, (rows, jnp.asarray(len(judged))))


def relabel(replay, known=None, first=0, number=None, reward=END):
    known = reward.unpaid(PLAN, replay, 2, 0.9) if known is None else known
    number = int(replay.size) if number is None else number
    where = jnp.asarray(first), jnp.asarray(number)
    return reward.relabel(PLAN, SPACE, replay, SCORES, 0.9, known, *where)


JUDGED = jnp.asarray(np.float32([[0.2, 0.6], [0.9, 0.7], [0.1, 0.1]]))  # means 0.4, 0.8, 0.1


@pytest.mark.parametrize("slot", [0, 1])
def test_the_mean_score_of_an_episode_is_paid_at_its_last_directed_step_only(slot):
    paid = relabel(filled(JUDGED, 5)).at(jnp.asarray(slot), jnp.arange(9))
    means = np.abs(slot - np.array([0.4, 0.8, 0.1]))
    expected = np.stack([np.zeros(3), np.zeros(3), means], axis=1).ravel()
    np.testing.assert_allclose(paid[:, 0], expected, rtol=1e-5)
    # what an episode achieves from its step t on is that, discounted T - 1 - t times
    achieved = means[:, None] * [0.81, 0.9, 1.0]
    np.testing.assert_allclose(paid[:, 1], achieved.ravel(), rtol=1e-5)


@pytest.mark.parametrize("slot", [0, 1])
def test_each_diffusing_step_is_paid_for_its_own_state_and_learned_from(slot):
    """Eq. 2 step by step: nothing along the directed part, then r(s) of every state of 𝒥; the end is a cut."""
    assert EACH.length(PLAN) == 5
    assert not EACH.ends
    paid = relabel(filled(JUDGED, 5, EACH), reward=EACH).at(jnp.asarray(slot), jnp.arange(15))
    expected = np.concatenate([np.zeros((3, 3)), np.abs(slot - JUDGED)], axis=1)
    np.testing.assert_allclose(paid[:, 0], expected.ravel(), rtol=1e-5)
    assert not np.isfinite(paid[:, 1]).any()  # chance did the rest: nothing to imitate


def test_rewards_stay_between_zero_and_one():
    """Footnote of Sect. 3.4: scores are probabilities, not their logarithms."""
    judged = jnp.asarray(np.random.default_rng(0).uniform(0.01, 0.99, (50, 2)).astype(np.float32))
    paid = np.asarray(relabel(filled(judged, 60)).worth)
    assert paid.min() >= 0.0
    assert paid.max() <= 1.0


def test_the_best_episode_of_a_skill_is_the_one_that_would_have_earned_it_most():
    table = relabel(filled(JUDGED, 5))  # of what is left over, each would earn the first skill 0.99
    index = jnp.arange(6)
    np.testing.assert_array_equal(table.best(jnp.asarray(0), index), [3, 4, 5, 3, 4, 5])
    np.testing.assert_array_equal(table.best(jnp.asarray(1), index), [6, 7, 8, 6, 7, 8])


@pytest.mark.parametrize("reward", [END, EACH])
@pytest.mark.parametrize("capacity", [64, 65, 127, 128, 200])
@pytest.mark.parametrize(("first", "number"), [(0, 1), (10, 60), (60, 40), (-5, 9), (-5, 64)])
def test_new_episodes_of_the_ring_are_relabelled_as_all_would_be(capacity, first, number, reward):
    first, rng = first % capacity, np.random.default_rng(0)
    draw = lambda: rng.uniform(0.1, 0.9, (capacity, PLAN.H)).astype(np.float32)  # noqa: E731
    old, new = draw(), draw()
    written = (first + np.arange(number)) % capacity
    both = old.copy()
    both[written] = new[written]
    before, after = (filled(jnp.asarray(part), capacity, reward) for part in (old, both))
    some = relabel(after, relabel(before, reward=reward), first, number, reward)
    np.testing.assert_array_equal(some.worth, relabel(after, reward=reward).worth)
