"""What the discriminator promises: classes that exist, boundaries where the data say, sound surgery."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from upside.engine import round as engine_round
from upside.models import classes
from upside.models.discriminator import CHUNK, Discriminator

CONFIG = Discriminator(hidden_discr=16, lr_discr=1e-2, batch_discr=64)
CAPACITY, SIZE = 4, 50
ZERO, ONE = np.zeros(2, np.float32), np.ones(2, np.float32)
TRACES = []


@jax.jit
def fit(state, buffers, counts, weights, steps, key):
    TRACES.append(1)
    return CONFIG.fit(state, buffers, counts, weights, steps, jnp.float32(0), key)


@jax.jit
def discriminability(*args):
    return engine_round.discriminability(*args)[:, 0]


def fresh(seed=0):
    return CONFIG.init(CAPACITY, ZERO, ONE, np.random.default_rng(seed))


def fitted(buffers, weights, steps=300, counts=None, state=None):
    counts = np.full(CAPACITY, SIZE) if counts is None else np.array(counts)
    args = (np.float32(buffers), counts.astype(np.int32), np.float32(weights), np.int32(steps))
    return fit(state or fresh(), *args, jax.random.key(0))


def scores(state, buffers, classes):
    counts, labels = np.full(CAPACITY, SIZE, np.int32), np.arange(CAPACITY, dtype=np.int32)
    return np.asarray(discriminability(state, np.float32(buffers), counts, labels, classes))


def clusters(*centres, spread=0.2):
    """One state buffer around each centre."""
    noise = np.random.default_rng(0).normal(size=(CAPACITY, SIZE, 2))
    return np.array(centres)[:, None] + spread * noise


def probabilities(state, features, classes=None):
    classes = np.ones(len(state.mlp.biases[-1]), bool) if classes is None else np.array(classes)
    return np.exp(
        np.asarray(state.log_prob(jnp.asarray(np.float32(features)), jnp.asarray(classes)))
    )


@pytest.fixture(scope="module")
def trained():
    """Fitted, so that every class and every moment of Adam is a number of its own."""
    return fitted(clusters((-2, -2), (-2, 2), (2, -2), (2, 2)), np.ones(CAPACITY), 20)


POINTS = np.random.default_rng(3).normal(size=(5, 2))


# ---------------------------------------------------------------- probabilities


def test_a_class_that_does_not_exist_has_no_probability_and_the_others_share_all():
    q = probabilities(fresh(), POINTS, [True, False, True, False])
    assert (q[:, [1, 3]] == 0.0).all()
    np.testing.assert_allclose(q.sum(1), 1.0, rtol=1e-6)
    full = probabilities(fresh(), POINTS)
    np.testing.assert_allclose(q[:, 0] / q[:, 2], full[:, 0] / full[:, 2], rtol=1e-5)


def test_features_are_seen_from_the_centre_in_units_of_the_scale():
    center, scale = np.float32([3.0, -1.0]), np.float32([2.0, 0.5])
    near = CONFIG.init(CAPACITY, center, scale, np.random.default_rng(0))
    np.testing.assert_allclose(
        probabilities(near, center + scale * POINTS), probabilities(fresh(), POINTS), rtol=1e-4
    )


def by_hand():
    """Two classes that exist, with logits 0 and max(x, 0): q(1 | x) = 1 / (1 + e^-x) for x ≥ 0."""
    state = fresh()
    first, second, last = (np.zeros(w.shape, np.float32) for w in state.mlp.weights)
    first[0, 0] = second[0, 0] = last[0, 1] = 1.0
    biases = [np.zeros(b.shape, np.float32) for b in state.mlp.biases]
    where = lambda s: (*s.mlp.weights, *s.mlp.biases)  # noqa: E731
    return eqx.tree_at(where, state, tuple(map(jnp.asarray, (first, second, last, *biases))))


def test_discriminability_by_hand():
    # q(1 | 0) = 1/2 and q(1 | ln 3) = 3/4: their mean is 5/8. The rest of a buffer is not looked at.
    buffer = np.full((SIZE, 2), 1e3)
    buffer[:2, 0] = 0.0, np.log(3.0)
    buffers = np.float32([buffer, buffer, buffer, buffer])
    counts, labels = np.int32([2, 1, 0, 2]), np.int32([1, 1, 1, 0])
    d = discriminability(by_hand(), buffers, counts, labels, np.array([True, True, False, False]))
    np.testing.assert_allclose(d, [0.625, 0.5, 0.0, 0.375], rtol=1e-5)


# ---------------------------------------------------------------- fitting


def test_distant_clusters_are_told_apart():
    data = clusters((-2, -2), (-2, 2), (2, -2), (2, 2))
    every = np.ones(CAPACITY, bool)
    assert (scores(fresh(), data, every) < 0.6).all(), "before it is fitted it knows nothing"
    assert (scores(fitted(data, np.ones(CAPACITY)), data, every) > 0.95).all()


def test_the_same_cluster_twice_is_a_matter_of_chance():
    data = clusters((0, 0), (0, 0), (9, 9), (9, 9))
    data[1] = data[0]
    two = np.array([True, True, False, False])
    d = scores(fitted(data, [1, 1, 0, 0]), data, two)
    np.testing.assert_allclose(d[:2], 0.5, atol=0.06)


def test_weights_say_how_often_a_class_is_drawn():
    """On the same states the best q is the share of the draws: 3 : 1 gives 3/4 and 1/4."""
    data = clusters((0, 0), (0, 0), (9, 9), (9, 9))
    data[1] = data[0]
    two = np.array([True, True, False, False])
    d = scores(fitted(data, [3, 1, 0, 0]), data, two)
    np.testing.assert_allclose(d[:2], [0.75, 0.25], atol=0.06)


def test_a_class_without_weight_or_without_states_is_left_alone():
    data = clusters((-2, -2), (-2, 2), (2, -2), (2, 2))
    before = fresh()
    after = fitted(data, [1, 1, 0, 1], counts=[SIZE, SIZE, SIZE, 0], state=before)
    old, new = (np.asarray(s.mlp.weights[-1]) for s in (before, after))
    np.testing.assert_array_equal(old[:, 2:], new[:, 2:])
    assert (old[:, :2] != new[:, :2]).any(axis=0).all()
    two = np.array([True, True, False, False])
    assert (scores(after, data, two)[:2] > 0.95).all()


def test_states_beyond_the_count_are_never_drawn():
    data = clusters((-2, -2), (-2, 2), (2, -2), (2, 2))
    data[:, 10:] = np.nan
    after = fitted(data, np.ones(CAPACITY), counts=[10] * CAPACITY)
    assert (
        probabilities(after, data[:, :10])[np.arange(CAPACITY), :, np.arange(CAPACITY)] > 0.9
    ).all()


@pytest.mark.parametrize(
    ("steps", "made"), [(0, 0), (1, CHUNK), (CHUNK, CHUNK), (CHUNK + 1, 2 * CHUNK)]
)
def test_steps_are_rounded_up_to_whole_chunks(steps, made):
    data = clusters((-2, -2), (-2, 2), (2, -2), (2, 2))
    assert fitted(data, np.ones(CAPACITY), steps).opt.count == made


def test_neither_classes_nor_steps_compile_anew():
    data = clusters((-2, -2), (-2, 2), (2, -2), (2, 2))
    fitted(data, np.ones(CAPACITY), 10)
    before = len(TRACES)
    fitted(data, [3, 0, 1, 0], 20, counts=[5, 0, SIZE, 1])
    assert len(TRACES) == before


# ---------------------------------------------------------------- surgery on the read-out


def read_outs(state):
    """Read-out of the network and of Adam's two moments, as [width + 1, classes] with the bias last."""
    mlps = (state.mlp, state.opt.mu, state.opt.nu)
    return [np.vstack([m.weights[-1], np.asarray(m.biases[-1])[None]]) for m in mlps]


def test_renew_forgets_one_class_and_no_other(trained):
    new = trained.renew(1, np.random.default_rng(7))
    old_readout, new_readout = read_outs(trained)[0], read_outs(new)[0]
    others = [0, 2, 3]
    np.testing.assert_array_equal(old_readout[:, others], new_readout[:, others])
    assert (old_readout[:, 1] != new_readout[:, 1]).all()
    assert np.abs(new_readout[:, 1]).max() <= CONFIG.hidden_discr**-0.5
    np.testing.assert_allclose(
        probabilities(new, POINTS, [True, False, True, True]),
        probabilities(trained, POINTS, [True, False, True, True]),
        rtol=1e-6,
    )


def test_move_takes_classes_and_their_moments_along(trained):
    source = np.array([2, 0, 3, 1])
    moved = classes.move(trained, source)
    np.testing.assert_allclose(
        probabilities(moved, POINTS), probabilities(trained, POINTS)[:, source], rtol=1e-6
    )
    for old, new in zip(read_outs(trained), read_outs(moved), strict=True):
        assert len(np.unique(old[-1])) == CAPACITY, "a class must be recognisable"
        np.testing.assert_array_equal(new, old[:, source])
    assert moved.opt.count == trained.opt.count


def test_widen_puts_room_before_the_last_classes_and_changes_no_probability(trained):
    """Classes 0 and 1 stay, 2 and 3 become 5 and 6, and 2 to 4 are new."""
    wide = classes.widen(trained, 2, 7, np.random.default_rng(0))
    exist = np.array([1, 1, 0, 0, 0, 1, 1], bool)
    q = probabilities(wide, POINTS, exist)
    np.testing.assert_allclose(q[:, exist], probabilities(trained, POINTS), rtol=1e-6)
    weights, *moments = zip(read_outs(trained), read_outs(wide), strict=True)
    np.testing.assert_array_equal(weights[1][:, exist], weights[0])
    assert 0 < np.abs(weights[1][:, ~exist]).max() <= CONFIG.hidden_discr**-0.5
    for old, new in moments:
        np.testing.assert_array_equal(new[:, exist], old)
        np.testing.assert_array_equal(new[:, ~exist], 0.0)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(wide)} == {"float32", "int32"}


def test_narrow_keeps_the_first_classes_and_drops_the_optimiser(trained):
    small = classes.narrow(trained, 2)
    first = [True, True, False, False]
    np.testing.assert_allclose(
        probabilities(small, POINTS), probabilities(trained, POINTS, first)[:, :2], rtol=1e-6
    )
    assert small.opt is None


def test_blur_keeps_it_from_learning_single_states_by_heart():
    """Two policies over the same place: fitted for long on few states, only blur stays near one half."""
    states = jax.random.normal(jax.random.key(1), (CAPACITY, SIZE, 2))
    counts = jnp.where(jnp.arange(CAPACITY) < 2, SIZE, 0)
    weights = (counts > 0).astype(float)
    labels = jnp.arange(CAPACITY)

    def d(blur: float) -> float:
        judge = CONFIG.fit(
            fresh(), states, counts, weights, jnp.int32(3000), jnp.float32(blur), jax.random.key(0)
        )
        own = discriminability(judge, states, counts, labels, counts > 0)
        return float(own[:2].mean())

    assert d(0.0) > 0.75
    assert d(1.0) < 0.65
