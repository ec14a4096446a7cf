"""Honest statistics: seeds are the unit of replication."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats


def iqm(values: np.ndarray, axis: int = -1) -> Any:
    """Interquartile mean (Agarwal et al., 2021): the mean of the middle half."""
    return stats.trim_mean(values, 0.25, axis=axis)


def summary(values: list[float], confidence: float = 0.95) -> dict[str, Any]:
    """Mean, spread (standard deviation), IQM, and a bootstrap interval of the IQM over seeds.

    With two seeds or fewer, or seeds that all agree, there is no interval.
    """
    x = np.asarray(values, float)
    result: dict[str, Any] = {
        "values": [float(v) for v in x],
        "mean": float(x.mean()),
        "spread": float(x.std(ddof=1)) if x.size > 1 else None,
        "iqm": float(iqm(x)),
        "interval": None,
    }
    if x.size > 2 and np.ptp(x) > 0:
        drawn = stats.bootstrap(
            (x,),
            iqm,
            confidence_level=confidence,
            method="percentile",
            rng=np.random.default_rng(0),
            n_resamples=2000,
        )
        low, high = drawn.confidence_interval
        result["interval"] = [float(low), float(high)]
    return result
