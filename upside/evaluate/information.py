"""Mutual information between policies and states: the bound that is climbed, and App. A's example."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def lower_bound(log_q: Float[np.ndarray, "n states"], rho: Float[np.ndarray, " n"]) -> float:
    """I(S; Z) ≥ E_{z~ρ, s|z}[log q(z | s) - log ρ(z)] in bits; `log_q[z]` at states of policy z."""
    return float(np.sum(rho * (log_q.mean(axis=1) - np.log(rho))) / np.log(2))


def assignment_information(p: Float[np.ndarray, "N M"]) -> float:
    """App. A: mutual information in bits of N uniformly drawn skills put on M states by p(m | n)."""
    n = p.shape[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = p * np.log2(p / p.sum(axis=0, keepdims=True))
    return float(np.log2(n) + np.nansum(terms) / n)


def assignment_discriminability(p: Float[np.ndarray, "N M"]) -> float:
    """App. A: η = min_n max_m p(n, m) / Σ_n p(n, m)."""
    mass = p.sum(axis=0, keepdims=True)
    q = np.divide(p, mass, out=np.zeros_like(p), where=mass > 0)
    return float(q.max(axis=1).min())


def best_assignment(n: int, m: int) -> Float[np.ndarray, "N M"]:
    """An optimal assignment of N skills to M states: as even as whole skills allow.

    The information is convex in each skill's p(· | n), so an optimum lies at a deterministic
    assignment; log N - Σ_m (k_m / N) log k_m is largest when the loads k_m are even.
    """
    p = np.zeros((n, m))
    p[np.arange(n), np.arange(n) % m] = 1.0
    return p


def removal_gain(n: int, eta: float) -> float:
    """Δ(N, η) of App. A in nats: if it is not positive, removing the least discriminable skill helps."""
    rest = (n - 1) / n * np.log(n - 1) if n > 1 else 0.0
    return float(np.log(n) - rest + np.log(eta) / n)
