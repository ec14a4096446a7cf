"""One colour a policy: the same in every figure, and clearly another than its neighbours'.

A hundred colours that the eye tells apart do not exist, so colours are used again, far away. In
Oklab (Ottosson 2020) equal distances look equally different.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

LIGHTNESS = (0.72, 0.56, 0.42)
HUES = 14
CHROMA = 0.15
UNLIKE = 0.12
"""Distance in Oklab at which two colours no longer disturb each other."""
NEAR = 0.1
"""Distance at which two policies no longer disturb each other, in diagonals of the space."""

_TO_LMS = np.array([[1, 0.39634, 0.21580], [1, -0.10556, -0.06385], [1, -0.08948, -1.29149]])
_TO_RGB = np.array(
    [[4.07674, -3.30771, 0.23097], [-1.26844, 2.60976, -0.34132], [-0.00420, -0.70342, 1.70761]]
)


def oklab_to_rgb(lab: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    """sRGB in [0, 1], clipped where the screen has no such colour."""
    linear = np.clip((lab @ _TO_LMS.T) ** 3 @ _TO_RGB.T, 0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def palette() -> Float[np.ndarray, "colors 3"]:
    """Candidates in Oklab: every hue at three lightnesses, all readable on white."""
    rows = []
    for level, lightness in enumerate(LIGHTNESS):
        hue = 2 * np.pi * (np.arange(HUES) + level / len(LIGHTNESS)) / HUES
        rows += [np.array([lightness, CHROMA * np.cos(h), CHROMA * np.sin(h)]) for h in hue]
    return np.stack(rows)


def assign(places: Float[np.ndarray, "policies feat"], diagonal: float) -> list[int]:
    """A row of `palette` for each policy, in order of their numbers.

    Each takes the colour that is least like those of the policies before it, near ones counting
    most. A policy that comes later never changes the colours of earlier ones.
    """
    colors = palette()
    apart = np.linalg.norm(colors[:, None] - colors, axis=-1)
    alike = np.exp(-((apart / UNLIKE) ** 2))
    chosen: list[int] = []
    for z, place in enumerate(places):
        distance = np.linalg.norm(places[:z] - place, axis=-1) / (NEAR * diagonal)
        disturbance = alike[:, chosen] @ (1 / (1 + distance**4)) if z else np.zeros(len(colors))
        chosen.append(int(np.argmin(disturbance)))
    return chosen


def of_policies(
    places: Float[np.ndarray, "policies feat"], diagonal: float
) -> Float[np.ndarray, "policies 3"]:
    """sRGB of each policy, given where it is."""
    return oklab_to_rgb(palette()[assign(places, diagonal)])
