"""Where is there room: distances by hand, and what holds of every choice of free probes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upside.skills.freespace import clearance, free, mutually_free, radius


def test_radius_by_hand():
    # centre (1, 1); every corner is √2 away
    square = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    assert radius(square) == pytest.approx(2**0.5)
    # centre (1, 0); squared distances 1, 1, 4 and 4: their mean is 2.5
    assert radius(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 2.0], [1.0, -2.0]])) == pytest.approx(
        2.5**0.5
    )
    assert radius(np.full((5, 3), 7.0)) == 0.0


def test_radius_is_a_length():
    states = np.random.default_rng(0).normal(size=(30, 2))
    assert radius(5.0 + 3.0 * states) == pytest.approx(3.0 * radius(states))


def test_clearance_is_the_distance_to_the_nearest_taken_state():
    taken = np.array([[0.0, 0.0], [10.0, 0.0]])
    states = np.array([[[3.0, 4.0], [10.0, 1.0]], [[0.0, 0.0], [6.0, 3.0]]])
    np.testing.assert_allclose(clearance(states, taken), [[5.0, 1.0], [0.0, 5.0]])


def test_a_probe_is_free_if_enough_of_its_states_are_farther_than_the_reach():
    far = np.array([[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 1.0], [3.0, 3.0, 1.0, 1.0], [2.0] * 4])
    assert free(far, 2.0, 0.75).tolist() == [True, True, False, False]  # 2 is not farther than 2
    assert free(far, 2.0, 1.0).tolist() == [True, False, False, False]
    assert free(far, 2.0, 0.5).tolist() == [True, True, True, False]


def line(*positions):
    """Probes that stand still on a line, as [p, 2, 1], and their distance to a taken state at 0."""
    probes = np.repeat(np.array(positions, float)[:, None, None], 2, axis=1)
    return probes, clearance(probes, np.zeros((1, 1)))


def test_free_probes_are_chosen_farthest_first():
    # 9 is farthest. 8 and 7.5 are within 2 of it; 5 is free of it; 3.5 is within 2 of 5; 1 is taken.
    probes, gaps = line(1.0, 5.0, 7.5, 9.0, 8.0, 3.5)
    before = gaps.copy()
    assert mutually_free(probes, gaps, 2.0, 0.8, 6) == [3, 1]
    np.testing.assert_array_equal(gaps, before)


def test_what_was_chosen_counts_as_taken_when_the_next_is_chosen():
    # After 9, the probe at 6 is 3 from 9 and 6 from 0; the one at 4.5 is 4.5 from both.
    probes, gaps = line(6.0, 9.0, 4.5)
    assert mutually_free(probes, gaps, 2.0, 0.8, 6) == [1, 2]


def test_no_more_than_asked_for_and_none_where_nothing_is_free():
    probes, gaps = line(3.0, 6.0, 9.0, 12.0)
    assert mutually_free(probes, gaps, 2.0, 0.8, 6) == [3, 1, 0, 2]
    assert mutually_free(probes, gaps, 2.0, 0.8, 2) == [3, 1]
    assert mutually_free(probes, gaps, 2.0, 0.8, 0) == []
    assert mutually_free(probes, gaps, 12.0, 0.8, 6) == []


@st.composite
def situations(draw):
    """Probes and taken states on a grid of quarters, where doubling is exact."""
    p, H, taken = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    places = lambda *shape: rng.integers(-40, 40, (*shape, 2)) / 4  # noqa: E731
    reach = draw(st.sampled_from([0.5, 1.5, 3.0, 6.0]))
    share = draw(st.sampled_from([0.5, 0.8, 1.0]))
    return places(p, 1) + places(p, H) / 8, places(taken), reach, share


def choose(probes, taken, reach, share, most=99):
    return mutually_free(probes, clearance(probes, taken), reach, share, most)


def share_beyond(states, others, reach):
    """How many of `states` are farther than `reach` from all `others`, written out plainly."""
    gaps = np.sqrt(((states[:, None] - others[None]) ** 2).sum(-1))
    return (gaps > reach).all(1).mean()


@settings(max_examples=60)
@given(situations())
def test_choices_are_free_of_the_taken_and_of_those_before_them_and_no_free_one_is_left(situation):
    probes, taken, reach, share = situation
    chosen = choose(*situation)
    assert len(set(chosen)) == len(chosen)
    for i, probe in enumerate(chosen):
        occupied = np.concatenate([taken, *probes[chosen[:i]]])
        assert share_beyond(probes[probe], occupied, reach) >= share
    occupied = np.concatenate([taken, *probes[chosen]])
    for probe in set(range(len(probes))) - set(chosen):
        assert share_beyond(probes[probe], occupied, reach) < share


@settings(max_examples=60)
@given(situations(), st.integers(0, 7))
def test_fewer_choices_are_the_first_of_more(situation, most):
    assert choose(*situation, most=most) == choose(*situation)[:most]


@settings(max_examples=60)
@given(situations(), st.sampled_from([0.25, 0.5, 2.0, 64.0]))
def test_the_unit_of_the_features_does_not_matter(situation, c):
    probes, taken, reach, share = situation
    assert choose(c * probes, c * taken, c * reach, share) == choose(*situation)
