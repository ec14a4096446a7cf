"""The ground that policies are drawn on: the space, its buckets, walls, solid blocks, the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from upside.envs.layouts import Layout
from upside.figures.scene import Scene

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WALL, SOLID, HATCH, GRID, PALE = "#20242c", "#e3e5e9", "#a9afba", "#e6e8ec", "#6b7280"
BELOW, ABOVE = 0.5, 10.0
"""Depth of what lies under everything, and of what stays visible on top of it."""
OBLONG = 4
"""Spaces longer than this are not drawn to scale unless they are mazes: their features have different units anyway."""


def ground(
    ax: Axes, scene: Scene, walls: float = 2.5, depth: float = ABOVE, filled: bool = True
) -> None:
    """Everything but the policies; `walls` is the width of walls in points, `depth` their zorder.

    Solid blocks are filled and lie under everything, or they are hatched only, on top of it.
    """
    low, high = scene.extent
    layout = layout_of(scene)
    _buckets(ax, scene)
    if layout is not None:
        _solid(ax, layout, filled)
        _walls(ax, layout, walls, depth)
        names = ["x (maze units)", "y (maze units)"]
    else:
        _outline(ax, scene)
        names = scene.axes
    ax.plot(
        *scene.start, "*", color="white", mec="black", ms=13, mew=1.1, zorder=ABOVE + 1, gid="start"
    )
    ax.set(xlabel=names[0], ylabel=names[1])
    margin = 0.012 * np.subtract(high, low)
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    ax.set_aspect("equal" if to_scale(scene) else "auto")
    ax.spines[:].set_visible(False)


def page(scene: Scene, side: float, margin: float) -> tuple[float, float]:
    """Width and height of a figure that holds a map of this size, and a title and legend of that height."""
    width, height = np.subtract(*scene.extent[::-1]) if to_scale(scene) else (1.0, 1.0)
    scale = side / max(width, height)
    return max(scale * width, 0.55 * side), max(scale * height, 0.2 * side) + margin


def to_scale(scene: Scene) -> bool:
    """Whether both axes have the same unit."""
    if layout_of(scene) is not None or scene.dimension != 2:
        return scene.dimension == 2
    width, height = np.subtract(*scene.extent[::-1])
    return bool(1 / OBLONG <= width / height <= OBLONG)


def layout_of(scene: Scene) -> Layout | None:
    """The maze's layout; None for environments that are not mazes."""
    return getattr(scene.run.env, "layout", None)


def _buckets(ax: Axes, scene: Scene) -> None:
    """The grid in which coverage is counted."""
    from matplotlib.collections import LineCollection

    (x0, y0), (x1, y1) = scene.extent
    *columns, rows = scene.run.env.space.buckets  # none of steps
    lines = [[(x, y0), (x, y1)] for n in columns for x in np.linspace(x0, x1, n + 1)]
    lines += [[(x0, y), (x1, y)] for y in np.linspace(y0, y1, rows + 1)]
    ax.add_collection(
        LineCollection(lines, colors=GRID, linewidths=0.6, zorder=BELOW, gid="buckets")
    )


def _solid(ax: Axes, layout: Layout, filled: bool) -> None:
    from matplotlib.patches import Rectangle

    for x0, y0, x1, y1 in layout.blocks:
        color = SOLID if filled else "none"
        block = Rectangle((x0, y0), x1 - x0, y1 - y0, fc=color, ec=HATCH, lw=0, hatch="///")
        block.set(zorder=BELOW + 0.1 if filled else ABOVE - 1, gid="block")
        ax.add_patch(block)


def _walls(ax: Axes, layout: Layout, width: float, depth: float) -> None:
    from matplotlib.collections import LineCollection

    lines = [[(x0, y0), (x1, y1)] for x0, y0, x1, y1 in layout.barriers]
    walls = LineCollection(
        lines, colors=WALL, linewidths=width, capstyle="projecting", clip_on=False
    )
    walls.set(zorder=depth, gid="walls")
    ax.add_collection(walls)


def _outline(ax: Axes, scene: Scene) -> None:
    """The box that coverage is counted in; dashed, since no wall keeps an agent inside."""
    from matplotlib.patches import Rectangle

    low, high = scene.extent
    box = Rectangle((low[0], low[1]), high[0] - low[0], high[1] - low[1], fill=False, ec=PALE)
    box.set(linestyle="--", zorder=ABOVE, gid="box")
    ax.add_patch(box)


def ground_legend(scene: Scene) -> list[Artist]:
    """Handles for what `ground` has drawn."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    star = Line2D([], [], color="white", marker="*", mec="black", ms=11, ls="", label="start")
    layout = layout_of(scene)
    if layout is None:
        return [star, Line2D([], [], color=PALE, ls="--", label="box of coverage")]
    wall = Line2D([], [], color=WALL, lw=2.5, label="wall")
    solid = Patch(fc=SOLID, ec=HATCH, lw=0, hatch="////", label="solid")
    return [star, wall, *([solid] if layout.blocks else [])]


def legend_below(figure: Figure, handles: list[Artist], columns: int) -> None:
    """A legend under everything, where it hides nothing."""
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        borderaxespad=0.8,
    )
