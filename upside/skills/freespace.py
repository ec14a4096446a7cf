"""Where is there room? Free space around a node, from probes and stored states alone.

A probe is an episode from a node that holds an action for a while, then diffuses. It is free if
most of its diffusing states are farther from every consolidated policy's state buffer than a
distance in units of how far the root's own diffusing part reaches. Distances are taken in the discriminator's feature
space and the scale comes from the root's diffusion, so nothing here knows of mazes.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree


def radius(root: Float[np.ndarray, "n feat"]) -> float:
    """How far the root's diffusing part reaches: root mean square distance from its centre."""
    return float(np.sqrt(np.mean(np.sum((root - root.mean(0)) ** 2, axis=-1))))


def clearance(
    states: Float[np.ndarray, "*n feat"], taken: Float[np.ndarray, "m feat"]
) -> Float[np.ndarray, "*n"]:
    """Distance of every state to the nearest taken one."""
    return KDTree(taken).query(states)[0]


def free(
    clearances: Float[np.ndarray, "p H"], reach: float, share: float
) -> Bool[np.ndarray, " p"]:
    """Which probes have at least `share` of their states farther than `reach` from all that is taken."""
    return np.mean(clearances > reach, axis=-1) >= share


def mutually_free(
    probes: Float[np.ndarray, "p H feat"],
    clearances: Float[np.ndarray, "p H"],
    reach: float,
    share: float,
    most: int,
) -> list[int]:
    """Free probes that are also free of one another, farthest from what is taken first."""
    clearances = clearances.copy()
    chosen: list[int] = []
    while len(chosen) < most:
        candidates = np.flatnonzero(free(clearances, reach, share))
        if not candidates.size:
            break
        best = int(candidates[np.argmax(clearances[candidates].mean(-1))])
        chosen.append(best)
        gaps = np.linalg.norm(probes[:, :, None] - probes[best][None, None], axis=-1).min(-1)
        clearances = np.minimum(clearances, gaps)
    return chosen
