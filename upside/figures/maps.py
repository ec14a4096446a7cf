"""Maps of the whole space: whom the discriminator sees where, and which buckets are covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from upside.figures.maze import (
    PALE,
    ground,
    ground_legend,
    layout_of,
    legend_below,
    page,
    to_scale,
)
from upside.figures.policies import number_policies
from upside.figures.scene import Scene

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PIXELS = 240
"""Of the longer side of the discriminator's map."""
SKILL, DIFFUSING, MISSED, UNREACHABLE = range(4)
KINDS = {
    SKILL: ("covered by skills", "#2b6cb0"),
    DIFFUSING: ("by diffusing parts only", "#a9cdee"),
    MISSED: ("reachable, not covered", "#fff3d6"),
    UNREACHABLE: ("unreachable", "#d5d8de"),
}


def discriminator(scene: Scene) -> Figure:
    """argmax_z q(z | s) as a colour, paler where q is less sure; solid blocks stay blank."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=page(scene, 7.6, 0.4), layout="constrained")
    ax = figure.add_subplot()
    paint(ax, scene)
    number_policies(ax, scene)
    intensity_bar(figure, ax)
    what = "most likely policy of each place, visited or not"
    ax.set_title(f"{scene.name}\n{what}\n{scene.size}", fontsize=11)
    number = Line2D([], [], color="black", marker="$7$", ms=5, ls="", label="policy, at its states")
    legend_below(figure, [border_legend(scene), number, *ground_legend(scene)], columns=5)
    return figure


def border_legend(scene: Scene) -> Artist:
    """The line at which a policy's probability is η."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color="black", lw=0.8, label=f"q = η = {scene.run.method.growth.eta:g}")


def paint(ax: Axes, scene: Scene) -> None:
    """The discriminator's map on the ground."""
    points = _pixels(scene)
    q = scene.run.q(points)
    likely, sure = q.argmax(axis=-1), q.max(axis=-1)
    solid = _inside_blocks(scene, points)
    alpha = np.where(solid, 0.0, _intensity(sure))
    image = np.concatenate([scene.colors[likely], alpha[..., None]], axis=-1)
    ax.imshow(
        image, origin="lower", extent=_extent(scene), interpolation="nearest", zorder=1, gid="map"
    )
    eta = scene.run.method.growth.eta
    if sure[~solid].min() < eta < sure[~solid].max():  # Matplotlib warns of an empty contour
        shown = np.ma.array(sure, mask=solid)
        ax.contour(points[..., 0], points[..., 1], shown, [eta], colors="black", linewidths=0.5)
    ground(ax, scene)


def _intensity(sure: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """Opacity of a pixel: confidence itself, so that white means that no policy is likely."""
    return np.clip(sure, 0.0, 1.0) * 0.85


def intensity_bar(figure: Figure, ax: Axes | list[Axes]) -> None:
    """What the opacity of a pixel means."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    levels = np.linspace(0, 1, 64)
    shades = np.stack([*np.full((3, 64), 0.25), _intensity(levels)], axis=-1)
    scale = ScalarMappable(Normalize(0, 1), ListedColormap(shades))
    bar = figure.colorbar(scale, ax=ax, shrink=0.6, pad=0.02)
    bar.set_label("the paler a colour, the less sure: q(z | s) of that policy")


def _pixels(scene: Scene) -> Float[np.ndarray, "rows columns 2"]:
    """Middles of the map's pixels."""
    low, high = np.asarray(scene.run.env.space.low), np.asarray(scene.run.env.space.high)
    sides = (high - low) / max(high - low) if to_scale(scene) else np.ones(2)
    shape = np.maximum(2, np.round(PIXELS * sides)).astype(int)
    x, y = (
        a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in zip(low, high, shape, strict=True)
    )
    return np.stack(np.meshgrid(x, y), axis=-1).astype(np.float32)


def _inside_blocks(scene: Scene, points: Float[np.ndarray, "*n 2"]) -> np.ndarray:
    layout = layout_of(scene)
    inside = np.zeros(points.shape[:-1], bool)
    for x0, y0, x1, y1 in layout.blocks if layout else ():
        x, y = points[..., 0], points[..., 1]
        inside |= (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
    return inside


def _extent(scene: Scene) -> tuple[float, float, float, float]:
    (x0, y0), (x1, y1) = scene.run.env.space.low, scene.run.env.space.high
    return x0, x1, y0, y1


def coverage(scene: Scene) -> Figure:
    """Each bucket by what covers it, with counts."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=page(scene, 7.2, 1.2), layout="constrained")
    ax = figure.add_subplot()
    kinds = bucket_kinds(scene)
    colors = ListedColormap([color for _, color in KINDS.values()])
    ax.pcolormesh(
        *_edges(scene),
        kinds.T,
        cmap=colors,
        vmin=-0.5,
        vmax=3.5,
        ec="white",
        lw=0.8,
        zorder=1,
        gid="kinds",
    )
    ground(ax, scene, filled=False)
    ax.set_title(f"{scene.name}\nwhat covers each bucket\n{scene.size}", fontsize=11)
    legend_below(figure, [*_kind_legend(scene, kinds), *ground_legend(scene)], columns=3)
    return figure


def _kind_legend(scene: Scene, kinds: Int[np.ndarray, "columns rows"]) -> list[Artist]:
    """One patch a kind, with its number of buckets."""
    from matplotlib.patches import Patch

    known = scene.reachable is not None
    handles: list[Artist] = []
    for kind, (label, color) in KINDS.items():
        label = label if known else label.removeprefix("reachable, ")
        number = int((kinds == kind).sum())
        if known or kind != UNREACHABLE:
            handles.append(Patch(fc=color, ec=PALE, lw=0.6, label=f"{label}: {number}"))
    return handles


def _edges(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    (x0, y0), (x1, y1) = scene.run.env.space.low, scene.run.env.space.high
    columns, rows = scene.run.env.space.buckets
    return np.linspace(x0, x1, columns + 1), np.linspace(y0, y1, rows + 1)


def bucket_kinds(scene: Scene) -> Int[np.ndarray, "columns rows"]:
    """The kind of each bucket. Without knowledge of what is reachable, everything counts as such."""
    skills, everywhere = scene.covered
    shape = scene.run.env.space.buckets
    kinds = np.full(int(np.prod(shape)), MISSED)
    if scene.reachable is not None:
        kinds[~scene.reachable] = UNREACHABLE
    kinds[sorted(everywhere)] = DIFFUSING
    kinds[sorted(skills)] = SKILL
    return kinds.reshape(shape)
