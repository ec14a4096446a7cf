"""The policies themselves: where their skills lead and where they diffuse (the paper's Fig. 4 and 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from upside.figures.maze import PALE, ground, ground_legend, legend_below, page
from upside.figures.scene import Scene, thousands
from upside.figures.scene import policies as count

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRAMES, COLUMNS = 8, 4
WALLS = 3.0
"""Depth of walls: over the dots but under the skills, which slide along walls and are thinner."""


def policies(scene: Scene) -> Figure:
    """All policies: the last skill of each as a line, its diffusing states as dots, in one colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=page(scene, 7.2, 1.0), layout="constrained")
    ax = figure.add_subplot()
    ground(ax, scene, walls=3.4, depth=WALLS)
    plot_policies(ax, scene, range(len(scene.run)), dot=3.0, line=1.6)
    number_policies(ax, scene)
    total = "" if scene.reachable is None else f" of {int(scene.reachable.sum())}"
    found = f"{len(scene.covered[0])}{total} buckets covered"
    ax.set_title(f"{scene.name}\n{found}, {scene.size}", fontsize=11)
    legend_below(figure, [*policy_legend(scene), *ground_legend(scene)], columns=3)
    return figure


def plot_policies(ax: Axes, scene: Scene, who: Iterable[int], dot: float, line: float) -> None:
    """Dots and lines of some policies; the root has no skill, hence no line."""
    for z in who:
        color, states = scene.colors[z], scene.dots(z)
        ax.plot(
            *states.T, ".", color=color, ms=dot, mew=0, alpha=0.55, zorder=2, gid=f"diffusing-{z}"
        )
        if z:
            path, big = scene.line(z), 2 * line
            ax.plot(*path.T, color=color, lw=line, zorder=4, gid=f"skill-{z}")
            ax.plot(*path[-1], "o", color=color, ms=big, mew=0, zorder=5, gid=f"end-{z}")


def number_policies(ax: Axes, scene: Scene) -> None:
    """The number of each policy, by which `run.rollout` knows it, where its last part is."""
    from matplotlib.patheffects import withStroke

    for z in range(len(scene.run)):
        x, y = scene.place(z)
        text = ax.text(x, y, str(z), fontsize=7, ha="center", va="center", zorder=12, clip_on=True)
        text.set_path_effects([withStroke(linewidth=1.8, foreground="white")])
        text.set_gid(f"number-{z}")


def policy_legend(scene: Scene) -> list[Artist]:
    from matplotlib.lines import Line2D

    skill = Line2D(
        [], [], color=PALE, lw=1.8, marker="o", ms=4, markevery=[1], label="skill (to its end)"
    )
    dots = Line2D([], [], color=PALE, marker=".", ms=5, ls="", label="diffusing states")
    number = Line2D([], [], color="black", marker="$7$", ms=5, ls="", label="number of the policy")
    return [skill, *([dots] if scene.run.method.plan.H else []), number]


def growth(scene: Scene) -> Figure:
    """The tree after every so many consolidations, root first; what is new is drawn bold."""
    from matplotlib.figure import Figure

    born = np.array([node.born for node in scene.run.tree.nodes])
    times = frame_times(born)
    rows = -(-len(times) // COLUMNS)
    columns = min(COLUMNS, len(times))
    width, height = page(scene, 3.2, 0.2)
    size = (max(width * columns, 6.4), height * rows + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    axes = [figure.add_subplot(rows, columns, i + 1, gid=f"frame-{i}") for i in range(len(times))]
    draw_frames(axes, scene, born, times)
    figure.suptitle(f"{scene.name}: growth of the tree\n(bold: new since the frame before)")
    legend_below(figure, [*policy_legend(scene)[:-1], *ground_legend(scene)], columns=5)
    return figure


def draw_frames(axes: Iterable[Axes], scene: Scene, born: np.ndarray, times: list[int]) -> None:
    """The tree at some times, what is new bold."""
    before = -1
    for ax, time in zip(axes, times, strict=True):
        ground(ax, scene, walls=2.4, depth=WALLS)
        plot_policies(ax, scene, np.flatnonzero(born <= before).tolist(), dot=1.6, line=0.8)
        new = np.flatnonzero((before < born) & (born <= time)).tolist()
        plot_policies(ax, scene, new, dot=2.6, line=1.8)
        number = int((born <= time).sum()) - 1
        ax.set_title(f"{count(number)}, {thousands(time)} interactions", fontsize=10)
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
        before = time


def frame_times(born: np.ndarray, frames: int = FRAMES) -> list[int]:
    """When to look: the root alone, the end, and consolidations evenly spread in between."""
    times = np.unique(born)
    chosen = np.linspace(0, len(times) - 1, min(frames, len(times))).round().astype(int)
    return [int(time) for time in times[chosen]]
