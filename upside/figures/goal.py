"""The way to a goal before and after fine-tuning (the paper's Fig. 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from upside.figures.maze import ABOVE, ground, ground_legend, legend_below
from upside.figures.scene import Scene

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from upside.run import Run

BEFORE, AFTER, GOAL = "#2563a8", "#d9730d", "#188038"


def way(
    run: Run,
    place: np.ndarray,
    radius: float,
    before: np.ndarray,
    after: np.ndarray,
    title: str,
    labels: tuple[str, str],
    skills: int,
) -> Figure:
    """Both ways as lines, a dot where each of the policy's `skills` hands over, the goal as a disc."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    figure = Figure(figsize=(7.2, 8.2), layout="constrained")
    ax, scene, T = figure.add_subplot(), Scene(run), run.method.plan.T
    ground(ax, scene, walls=3.4, depth=3.0)
    handles = []
    for obs, color, label in ((before, BEFORE, labels[0]), (after, AFTER, labels[1])):
        path = run.features(obs)
        ax.plot(*path.T, color=color, lw=1.8, zorder=4, gid=label)
        ends = path[: skills * T + 1 : T]
        ax.plot(*ends.T, "o", color=color, ms=3.5, mew=0, zorder=5)
        handles.append(Line2D([], [], color=color, lw=1.8, marker="o", ms=3.5, label=label))
    disc = Circle((float(place[0]), float(place[1])), radius, fc=GOAL, ec="black", lw=0.8)
    disc.set(zorder=ABOVE, alpha=0.7, gid="goal")
    ax.add_patch(disc)
    ax.set_title(title, fontsize=11)
    star = Line2D([], [], color=GOAL, marker="o", ms=7, ls="", mec="black", label="goal")
    legend_below(figure, [*handles, star, *ground_legend(scene)], columns=3)
    return figure
