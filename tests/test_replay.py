"""What the replay buffer promises: a ring of whole episodes, given back as they were put in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from upside.learners import replay as replays
from upside.types import Trajectory

CAPACITY, T, H, OBS, ACT, FEAT = 4, 3, 2, 2, 1, 2

add = jax.jit(replays.add, static_argnums=4)


@jax.jit
def gather(buffer, rewards, draws):
    index = replays.index(buffer, draws)
    return replays.gather(buffer, index, rewards.reshape(-1, 2)[index])


def episodes(*numbers, terminated=()):
    """Episodes whose every number says where it comes from: episode · 100 + step, and the part.

    `terminated` lists (row, step) at which the environment itself ended.
    """
    where = 100.0 * np.array(numbers)[:, None] + np.arange(T + H + 1)

    def spread(steps, size, part):
        return np.float32(where[:, :steps, None] + part + 0.125 * np.arange(size))

    ends = np.zeros((len(numbers), T + H), bool)
    for row, step in terminated:
        ends[row, step] = True
    return Trajectory(
        spread(T + H + 1, OBS, 0.0),
        spread(T + H, ACT, 0.5),
        ends,
        np.zeros_like(ends),
        spread(T + H, FEAT, 0.25),
    )


def put(buffer, *numbers, keep=None, terminated=()):
    new = episodes(*numbers, terminated=terminated)
    keep = np.ones(len(numbers), bool) if keep is None else np.array(keep)
    return add(buffer, new, new.features[:, T:], keep)


def held(buffer):
    """The numbers of the episodes in each place of the buffer, by their first observation."""
    rows = np.asarray(buffer.rows)[: int(buffer.size)]
    return (rows[:, 0, 0] / 100).tolist()


def transition(buffer, *index, rewards=None):
    """The transitions at places `index` of those that are stored."""
    rewards = jnp.zeros((CAPACITY, T, 2)) if rewards is None else rewards
    total = int(buffer.size) * T
    return gather(buffer, rewards, (np.float32(index) + np.float32(0.5)) / np.float32(total))


@pytest.fixture(scope="module")
def empty():
    return replays.init(CAPACITY, T, H, OBS, ACT, FEAT)


def test_episodes_follow_one_another(empty):
    buffer = put(put(empty, 1, 2, 3), 4, 5, 6, keep=[True, False, False])
    assert held(buffer) == [1, 2, 3, 4]
    assert (buffer.size, buffer.cursor) == (4, 0)


def test_only_what_is_marked_is_kept_without_gaps(empty):
    buffer = put(empty, 1, 2, 3, keep=[True, False, True])
    assert held(buffer) == [1, 3]
    assert (buffer.size, buffer.cursor) == (2, 2)
    assert put(buffer, 7, 8, 9, keep=[False] * 3).size == 2
    np.testing.assert_array_equal(buffer.rows[2:], 0.0)


def test_the_oldest_makes_room(empty):
    buffer = put(put(empty, 1, 2, 3), 4, 5, 6)
    assert held(buffer) == [5, 6, 3, 4]
    assert (buffer.size, buffer.cursor) == (4, 2)
    assert held(put(buffer, 7, 8, 9, keep=[False, True, False])) == [5, 6, 8, 4]


def test_judged_states_lie_beside_their_episode(empty):
    buffer = put(put(empty, 1, 2, 3), 4, 5, 6, keep=[False, True, True])
    for place, number in enumerate((6, 2, 3, 5)):
        np.testing.assert_array_equal(buffer.judged[place], episodes(number).features[0, T:])


def test_gather_returns_what_was_put_in(empty):
    buffer = put(put(empty, 1, 2, 3), 4, 5, 6, keep=[False, True, False])
    rewards = jnp.asarray(np.arange(CAPACITY * T * 2, dtype=np.float32).reshape(CAPACITY, T, 2))
    got = transition(buffer, *range(CAPACITY * T), rewards=rewards)
    put_in = episodes(1, 2, 3, 5)
    flat = lambda leaf: leaf.reshape(-1, leaf.shape[-1])  # noqa: E731
    np.testing.assert_array_equal(got.obs, flat(put_in.obs[:, :T]))
    np.testing.assert_array_equal(got.action, flat(put_in.action[:, :T]))
    np.testing.assert_array_equal(got.next_obs, flat(put_in.obs[:, 1 : T + 1]))
    np.testing.assert_array_equal(got.reward, rewards[..., 0].ravel())
    np.testing.assert_array_equal(got.achieved, rewards[..., 1].ravel())


def test_every_stored_transition_is_drawn_equally_often_and_no_other(empty):
    buffer = put(empty, 1, 2, 3, keep=[True, False, True])
    draws = np.linspace(0, 1, 6 * 50, endpoint=False, dtype=np.float32) + np.float32(1e-4)
    got = gather(buffer, jnp.zeros((CAPACITY, T, 2)), draws)
    where, how_often = np.unique(got.obs[:, 0], return_counts=True)
    assert where.tolist() == [100, 101, 102, 300, 301, 302]
    assert how_often.tolist() == [50] * 6


def test_done_at_the_last_directed_step_only(empty):
    # Episode 2 ends at its first step: it stays there, and is judged there like the others.
    buffer = put(empty, 1, 2, 3, terminated=[(1, 0), (2, T)])
    got = transition(buffer, *range(3 * T))
    assert got.done.reshape(3, T).tolist() == [[0, 0, 1]] * 3


def test_clear_empties_it_and_it_can_be_filled_again(empty):
    buffer = replays.Replay.cleared(put(empty, 1, 2, 3))
    assert (buffer.size, buffer.cursor) == (0, 0)
    buffer = put(buffer, 7, 8, 9, keep=[False, True, True])
    assert held(buffer) == [8, 9]
    assert set((np.asarray(transition(buffer, *range(6)).obs[:, 0]) // 100).tolist()) == {8, 9}


@pytest.mark.parametrize(
    ("gamma", "rewards", "expected"),
    [
        (0.5, [1.0, 0.0, 2.0], [1.5, 1.0, 2.0]),  # 1 + 0.5 · (0 + 0.5 · 2);  0 + 0.5 · 2;  2
        (0.5, [0.0, 0.0, 1.0], [0.25, 0.5, 1.0]),
        (1.0, [1.0, 2.0, 3.0], [6.0, 5.0, 3.0]),
        (0.0, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_returns_by_hand(gamma, rewards, expected):
    both = jnp.asarray(np.float32([rewards, [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(replays.returns(both, gamma), [expected, [0.0, 0.0, 0.0]])
