"""App. A in numbers, and the bound on mutual information that all of it climbs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upside.evaluate.information import (
    assignment_discriminability,
    assignment_information,
    best_assignment,
    lower_bound,
    removal_gain,
)

SIZES = [(n, m) for n in range(1, 6) for m in range(1, 4)]
seeds = st.integers(0, 10**6)


def random_assignment(rng, n, m):
    """Skills put on states by chance: from nearly deterministic to nearly uniform."""
    return rng.dirichlet(np.full(m, rng.choice([0.1, 1.0, 10.0])), size=n)


# ---------------------------------------------------------------- skills on states (App. A)


def test_three_skills_on_two_states():
    best = best_assignment(3, 2)
    # log2 3 - (2/3) log2 2 = 1.585 - 0.667
    assert assignment_information(best) == pytest.approx(0.918, abs=5e-4)
    assert assignment_discriminability(best) == 0.5
    paper = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert assignment_information(paper) == pytest.approx(assignment_information(best))


def test_two_skills_on_two_states():
    best = best_assignment(2, 2)
    assert assignment_information(best) == pytest.approx(1.0)
    assert assignment_discriminability(best) == 1.0


def test_information_and_discriminability_of_a_stochastic_assignment_by_hand():
    # p = (1, 0), (1/2, 1/2): mass on the states 3/2 and 1/2, so q = (2/3, 0), (1/3, 1)
    # I = log2 2 + 1/2 (log2 2/3 + 1/2 log2 1/3 + 1/2 log2 1) = 1 + 1/2 (-0.585 - 0.792)
    p = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert assignment_information(p) == pytest.approx(0.3113, abs=1e-4)
    assert assignment_discriminability(p) == pytest.approx(2 / 3)


@pytest.mark.parametrize("p", [np.full((3, 2), 0.5), np.ones((3, 1))])
def test_skills_that_all_do_the_same_tell_nothing(p):
    assert assignment_information(p) == pytest.approx(0.0)
    assert assignment_discriminability(p) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_no_deterministic_assignment_is_better_than_the_best(n, m):
    best = best_assignment(n, m)
    assert best.shape == (n, m)
    np.testing.assert_array_equal(best.sum(axis=1), 1.0)
    every = itertools.product(range(m), repeat=n)
    most = max(assignment_information(np.eye(m)[list(states)]) for states in every)
    assert assignment_information(best) == pytest.approx(most, abs=1e-12)


@settings(max_examples=100)
@given(st.sampled_from(SIZES), seeds)
def test_nor_is_a_stochastic_one(size, seed):
    information = assignment_information(random_assignment(np.random.default_rng(seed), *size))
    assert -1e-9 <= information <= assignment_information(best_assignment(*size)) + 1e-9


# ---------------------------------------------------------------- removing a skill (App. A)


def test_removal_gain_by_hand_and_its_sign():
    # Δ(2, η) = log 2 - (1/2) log 1 + (1/2) log η is zero at η = 1/4
    assert removal_gain(2, 0.25) == pytest.approx(0.0)
    assert removal_gain(2, 1.0) == pytest.approx(np.log(2))
    assert removal_gain(2, 1 / 16) == pytest.approx(-np.log(2))
    # Δ(3, 1/2) = log 3 - (2/3) log 2 - (1/3) log 2 = log 3 - log 2
    assert removal_gain(3, 0.5) == pytest.approx(np.log(1.5))
    assert removal_gain(1, 1.0) == pytest.approx(0.0)


@pytest.mark.parametrize("n", [2, 3, 8, 100])
def test_small_enough_a_discriminability_makes_it_negative(n):
    gains = [removal_gain(n, eta) for eta in (1.0, 0.5, 0.1, 1e-3, 1e-300)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0 > gains[-1]


def without_the_least_discriminable(p):
    """The assignment without the skill whose best q is η, and η."""
    q = p / p.sum(axis=0)
    worst = int(q.max(axis=1).argmin())
    return np.delete(p, worst, axis=0), assignment_discriminability(p)


@settings(max_examples=100)
@given(st.integers(2, 6), st.integers(1, 4), seeds)
def test_the_lemma_holds_of_every_assignment(n, m, seed):
    """I(N) ≤ Δ(N, η) + (N-1)/N · I(N-1): were Δ ≤ 0, removing would help."""
    p = random_assignment(np.random.default_rng(seed), n, m)
    rest, eta = without_the_least_discriminable(p)
    bound = removal_gain(n, eta) / np.log(2) + (n - 1) / n * assignment_information(rest)
    assert assignment_information(p) <= bound + 1e-9


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_lemma_is_tight_where_the_removed_skill_shares_no_state(n):
    """Each skill alone on its state: η = 1 and log N = Δ(N, 1) + (N-1)/N · log(N-1), exactly."""
    rest, eta = without_the_least_discriminable(np.eye(n))
    bound = removal_gain(n, eta) / np.log(2) + (n - 1) / n * assignment_information(rest)
    assert assignment_information(np.eye(n)) == pytest.approx(bound)


@settings(max_examples=100)
@given(st.integers(2, 6), st.integers(1, 4), seeds)
def test_the_lemmas_condition_is_met_by_no_assignment(n, m, seed):
    """η ≥ 1/N, whatever the assignment, and Δ(N, 1/N) = (N-1)/N · log(N/(N-1)) > 0.

    So Δ ≤ 0 asks for an η that cannot be; that removing helps for N=3, M=2 is seen without it.
    """
    p = random_assignment(np.random.default_rng(seed), n, m)
    eta = assignment_discriminability(p)
    assert eta >= 1 / n - 1e-12
    assert removal_gain(n, eta) >= removal_gain(n, 1 / n) - 1e-12
    assert removal_gain(n, 1 / n) == pytest.approx((n - 1) / n * np.log(n / (n - 1)))


# ---------------------------------------------------------------- the bound that is climbed

SAMPLES = 8


@st.composite
def policies(draw):
    """How often each policy visits each state in SAMPLES samples, and how often it is drawn."""
    n, states = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(seeds))
    counts = rng.multinomial(SAMPLES, rng.dirichlet(np.ones(states)), size=n)
    return counts, rng.dirichlet(np.full(n, 2.0)), rng


def log_q_at_samples(q, counts):
    """`log q(z | s)` at the samples of each policy z, for q as [n, states]."""
    return np.log(np.array([np.repeat(q[z], visits) for z, visits in enumerate(counts)]))


def mutual_information(counts, rho):
    """I(S; Z) = Σ ρ(z) p(s | z) log2 (p(s | z) / p(s)), written out."""
    p = counts / SAMPLES
    marginal = rho @ p
    return sum(
        rho[z] * p[z, s] * np.log2(p[z, s] / marginal[s])
        for z, s in np.ndindex(*p.shape)
        if p[z, s] > 0
    )


@settings(max_examples=60)
@given(policies())
def test_the_exact_posterior_attains_the_mutual_information(policy):
    counts, rho, _ = policy
    joint = rho[:, None] * counts + 1e-300
    bound = lower_bound(log_q_at_samples(joint / joint.sum(axis=0), counts), rho)
    assert bound == pytest.approx(mutual_information(counts, rho), abs=1e-9)


@settings(max_examples=60)
@given(policies())
def test_any_other_discriminator_stays_below(policy):
    counts, rho, rng = policy
    q = rng.dirichlet(np.ones(len(rho)), size=counts.shape[1]).T
    bound = lower_bound(log_q_at_samples(np.maximum(q, 1e-12), counts), rho)
    assert bound <= mutual_information(counts, rho) + 1e-9


def test_the_bound_by_hand():
    # Two policies, two samples each, q = 1/2 and 1, then 1/4 and 1; log2 q - log2 ρ, averaged:
    # 1/2 · (1/2 (0 + 1)) + 1/2 · (1/2 (-1 + 1)) = 1/4
    log_q = np.log([[0.5, 1.0], [0.25, 1.0]])
    assert lower_bound(log_q, np.array([0.5, 0.5])) == pytest.approx(0.25)
