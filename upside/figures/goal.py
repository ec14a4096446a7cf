"""Goals: the way to one before and after fine-tuning (the paper's Fig. 6), and all of them (Fig. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from upside.figures.maze import ABOVE, GRID, ground, ground_legend, legend_below, page
from upside.figures.scene import Scene

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from upside.run import Run

BEFORE, AFTER, GOAL = "#2563a8", "#d9730d", "#188038"


def way(
    run: Run,
    place: np.ndarray,
    radius: float,
    ways: dict[str, np.ndarray],
    title: str,
    skills: int,
) -> Figure:
    """Each way as a line, a dot where each of the policy's `skills` hands over, the goal as a disc."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    scene, T = Scene(run), run.method.plan.T
    figure = Figure(figsize=page(scene, 7.2, 1.0), layout="constrained")
    ax = figure.add_subplot()
    ground(ax, scene, walls=3.4, depth=3.0)
    handles = []
    for color, (label, path) in zip((BEFORE, AFTER), ways.items(), strict=False):
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


def heat_maps(maps: dict[str, np.ndarray], run: Run, title: str, goals: np.ndarray) -> Figure:
    """γ^τ of every region, a panel for each method, and the goals; a region that nothing reached says so."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(4, len(maps))
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(3.2 * columns + 1.0, 3.5 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    scene, low, high = Scene(run), run.env.space.low, run.env.space.high
    mesh = None
    for ax, (name, values) in zip(axes, maps.items(), strict=False):
        ground(ax, scene, walls=2.2, filled=False)
        edges = [np.linspace(low[i], high[i], values.shape[i] + 1) for i in range(2)]
        mesh = ax.pcolormesh(*edges, values.T, cmap="YlGnBu", vmin=0, vmax=1, zorder=1, gid=name)
        for (i, j), value in np.ndenumerate(values):
            x, y = (edges[0][i] + edges[0][i + 1]) / 2, (edges[1][j] + edges[1][j + 1]) / 2
            words = "-" if np.isnan(value) else "never" if value == 0 else f"{value:.2f}"
            words = "< 0.01" if words == "0.00" else words
            box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
            ax.text(x, y, words, ha="center", va="center", fontsize=8.5, bbox=box, zorder=ABOVE + 2)
        ax.plot(*goals.T, "o", ms=3, mfc=GOAL, mec="white", mew=0.5, zorder=ABOVE + 1, gid="goals")
        ax.set_title(f"{name}\nmean {np.nanmean(values):.2f}", fontsize=9.5)
        ax.set(xlabel="", ylabel="")
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    assert mesh is not None
    bar = figure.colorbar(mesh, ax=axes.tolist(), pad=0.02)
    bar.set_label("γ^τ, mean over runs and a region's goals")
    figure.suptitle(title, fontsize=11)
    dot = Line2D([], [], color=GOAL, marker="o", ms=4, ls="", mec="white", label="goal")
    legend_below(figure, [dot, *ground_legend(scene)], columns=4)
    return figure


def learning_curves(
    curves: dict[str, list[np.ndarray]],
    title: str,
    what: str = "best noise-free γ^τ so far, mean over goals",
) -> Figure:
    """What is gained over interactions: a thick line for the mean of runs, thin ones for each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    ax = figure.add_subplot()
    for i, (name, runs) in enumerate(curves.items()):
        color = f"C{i}"
        for at, best in runs:
            ax.plot(at / 1000, best, color=color, lw=0.6, alpha=0.5)
        at, mean = np.mean(runs, axis=0)
        ax.plot(at / 1000, mean, color=color, lw=2, label=name)
    ax.set(
        xlabel="interactions for each goal (thousands), selection of a policy included",
        ylabel=what,
        ylim=(0, 1),
    )
    ax.set_xlim(left=0)
    ax.grid(color=GRID, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, ncols=2)
    ax.set_title(title, fontsize=11)
    return figure
