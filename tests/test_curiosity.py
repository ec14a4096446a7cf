"""Curiosity: paid for what a model of the environment does not expect, less and less as it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from upside.models.curiosity import ICM, NoBonus, Transitions, loss, surprise


def transitions(rng: np.random.Generator, n: int, low: float, high: float) -> Transitions:
    """A point that is shifted by its action, with x between `low` and `high`."""
    obs = rng.uniform(low, high, (n, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    return Transitions(jnp.asarray(obs), jnp.asarray(action), jnp.asarray(obs + action))


@pytest.fixture(scope="module")
def learned():
    rng, icm = np.random.default_rng(0), ICM(code=4, hidden_icm=32)
    state = first = icm.init(2, 2, rng)
    fit = jax.jit(icm.fit)
    for _ in range(1500):
        state = fit(state, transitions(rng, 64, -1.0, 0.0))
    return icm, first, state


def test_surprise_is_half_the_squared_error_in_codes():
    """With all weights 0 but biases that differ by (1, 2), it is (1 + 4) / 2 everywhere."""
    icm = ICM(code=2, hidden_icm=3)
    models = jax.tree.map(jnp.zeros_like, icm.init(2, 2, np.random.default_rng(0)).models)
    last = (*models.predict.biases[:-1], jnp.asarray([1.0, 2.0]))
    object.__setattr__(models.predict, "biases", last)
    seen = transitions(np.random.default_rng(1), 5, -1, 1)
    np.testing.assert_allclose(surprise(models, seen), 2.5)
    inverse = np.mean(np.sum(np.asarray(seen.action) ** 2, axis=-1))
    assert float(loss(models, seen, 0.2)) == pytest.approx(0.8 * inverse + 0.2 * 2.5, rel=1e-5)


def test_models_learn_and_the_codes_tell_actions(learned):
    icm, first, state = learned
    seen = transitions(np.random.default_rng(2), 500, -1.0, 0.0)
    assert loss(state.models, seen, icm.beta_icm) < 0.1 * loss(first.models, seen, icm.beta_icm)


def test_what_was_never_seen_is_paid_more_and_the_usual_surprise_pays_one_minus_gamma(learned):
    icm, _, state = learned
    rng = np.random.default_rng(3)
    known = icm.pay(state, transitions(rng, 2000, -1.0, 0.0), 0.99)
    new = icm.pay(state, transitions(rng, 2000, 3.0, 4.0), 0.99)
    assert float(known.mean()) == pytest.approx(0.01, rel=0.5)
    assert new.mean() > 10 * known.mean()


def test_no_bonus_pays_nothing():
    assert NoBonus().pay(None, transitions(np.random.default_rng(0), 5, 0, 1), 0.99) == 0
