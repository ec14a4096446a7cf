"""Several runs in one picture: what the paper shows side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from upside.envs.maze import Maze
from upside.figures import maps
from upside.figures.curves import BLUE, GREEN, ORANGE, PALE, active
from upside.figures.curves import discriminability as of_active
from upside.figures.maze import ground, ground_legend, legend_below
from upside.figures.policies import (
    WALLS,
    draw_frames,
    frame_times,
    plot_policies,
    policy_legend,
)
from upside.figures.scene import Scene, thousands
from upside.figures.scene import policies as count
from upside.types import UserError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from upside.run import Run

SIDE, COLUMNS = 3.1, 5
"""Width of a panel in inches, and panels in a row at most."""


def policies(runs: dict[str, Run]) -> Figure:
    """The policies of every run, on its maze."""

    def one(ax: Axes, scene: Scene) -> None:
        ground(ax, scene, walls=2.4, depth=WALLS)
        plot_policies(ax, scene, range(len(scene.run)), dot=1.8, line=1.1)

    return _panels(runs, one, lambda scene: policy_legend(scene)[:-1])


def discriminators(runs: dict[str, Run]) -> Figure:
    """The most likely policy of every place, as each run's discriminator sees it."""
    figure = _panels(runs, maps.paint, lambda scene: [maps.border_legend(scene)])
    maps.intensity_bar(figure, figure.axes)
    return figure


def _panels(
    runs: dict[str, Run],
    draw: Callable[[Axes, Scene], None],
    handles: Callable[[Scene], list[Artist]],
) -> Figure:
    """A panel for each run, mazes one below the other, with what it covers as its title."""
    from matplotlib.figure import Figure

    scenes = {name: Scene(run) for name, run in runs.items()}
    mazes = list(dict.fromkeys(scene.run.config.env for scene in scenes.values()))
    groups = [[n for n, s in scenes.items() if s.run.config.env == maze] for maze in mazes]
    lines = [line for group in groups for line in _lines(group)]
    width = max(map(len, lines))
    figure = Figure(figsize=(SIDE * width, (SIDE + 0.6) * len(lines) + 0.5), layout="constrained")
    for row, line in enumerate(lines):
        for column, name in enumerate(line):
            ax = figure.add_subplot(len(lines), width, row * width + column + 1, gid=name)
            draw(ax, scenes[name])
            if isinstance(
                scenes[name].run.env, Maze
            ):  # others have no walls by which to tell how far it is
                ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
            ax.set_title(_caption(name, scenes[name]), fontsize=9)
    longest = max(scenes.values(), key=lambda s: s.run.method.plan.H)
    legend_below(figure, [*handles(longest), *ground_legend(scenes[lines[-1][0]])], columns=6)
    return figure


def _lines(names: list[str]) -> list[list[str]]:
    """As few lines as hold them, as even as can be."""
    columns = -(-len(names) // -(-len(names) // COLUMNS))
    return [names[i : i + columns] for i in range(0, len(names), columns)]


def _caption(name: str, scene: Scene) -> str:
    total = "" if scene.reachable is None else f" of {int(scene.reachable.sum())}"
    return f"{name}\n{len(scene.covered[0])}{total} buckets\n{scene.size}"


def discriminability(runs: dict[str, list[Run]]) -> Figure:
    """Mean discriminability of the policies in training over interactions, for each kind of run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    ax = figure.add_subplot()
    for (name, group), color in zip(runs.items(), (BLUE, ORANGE, GREEN, PALE), strict=False):
        x, lines = over_interactions(group)
        ax.plot(x / 1e6, lines.mean(0), color=color, label=name, gid=name)
        ax.fill_between(x / 1e6, lines.min(0), lines.max(0), color=color, alpha=0.2, lw=0)
    seeds = {len(group) for group in runs.values()}
    places = dict.fromkeys(run.config.env for group in runs.values() for run in group)
    ax.set(xlabel="interactions (millions)", ylim=(0, 1.02), xlim=(0, None))
    ax.set_ylabel("discriminability, mean over policies")
    ax.set_title(
        f"{', '.join(places)}: mean of {'/'.join(map(str, sorted(seeds)))} seeds; "
        "band: lowest to highest seed",
        fontsize=10,
    )
    ax.grid(color="#e6e8ec")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return figure


def coverage(curves: dict[str, dict[str, list[dict[str, Any]]]]) -> Figure:
    """Buckets over interactions: a panel for each environment, two lines for each kind of run.

    What its policies pass (none for RANDOM), and dotted what was visited in learning them.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(curves), 4.0), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    named = dict.fromkeys(name for rows in curves.values() for name in rows)
    chance = "random"  # pale wherever it is
    colors = dict(
        zip([n for n in named if n != chance], itertools.cycle((BLUE, ORANGE, GREEN)), strict=False)
    )
    colors[chance] = PALE
    for ax, (env, rows) in zip(axes, curves.items(), strict=True):
        for name, runs in rows.items():
            color = colors[name]
            x = np.array(runs[0]["at"]) / 1e6
            for counted, style, of in (
                ("buckets", "-", "its policies"),
                ("visited", ":", "visited so far"),
            ):
                if not all(counted in run for run in runs):
                    continue
                lines, label = np.array([r[counted] for r in runs]), f"{name}: {of}"
                ax.plot(x, lines.mean(0), style, color=color, label=label, gid=label)
                ax.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.15, lw=0)
        ax.set(xlabel="interactions (millions)", xlim=(0, None), ylim=(0, None))
        ax.yaxis.get_major_locator().set_params(integer=True)  # half a bucket is none
        counts = "/".join(map(str, sorted({len(runs) for runs in rows.values()})))
        total = next(iter(rows.values()))[0]["of"]
        ax.set_title(f"{env}\n{counts} seeds, {total:,} buckets in all", fontsize=10)
        ax.grid(color="#e6e8ec")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("buckets")
    handles, labels = axes[0].get_legend_handles_labels()
    columns = min(len(labels), 2 * len(curves))
    title = "line: mean of seeds; band: lowest to highest"
    figure.legend(
        handles, labels, frameon=False, loc="outside lower center", ncols=columns, title=title
    )
    return figure


def over_interactions(group: list[Run]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of d at common numbers of interactions, one row a run."""
    curves = []
    for run in group:
        known = [entry for entry in run.history if entry["discriminability"]]
        if not known:
            raise UserError(
                f"{run.config.method}: a run that ended before its first round has no curve"
            )
        x = np.array([entry["interactions"] for entry in known])
        curves.append((x, np.array([np.mean(entry["discriminability"]) for entry in known])))
    common = np.linspace(
        max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), 200, dtype=float
    )
    return common, np.stack([np.interp(common, x, y) for x, y in curves])


def evolution(run: Run) -> Figure:
    """The tree frame by frame, and beside it the number of active policies and how well they are told apart."""
    from matplotlib.figure import Figure

    scene, frames = Scene(run), 9
    born = np.array([node.born for node in run.tree.nodes])
    times = frame_times(born, frames)
    lines = -(-len(times) // 3)
    figure = Figure(figsize=(13.6, 0.6 + 3.0 * max(2, lines)), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 2.6))
    left, right = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    axes = [right.add_subplot(lines, 3, i + 1, gid=f"frame-{i}") for i in range(len(times))]
    draw_frames(axes, scene, born, times)
    for ax, letter in zip(axes, "ABCDEFGHI", strict=False):
        ax.set_title(f"{letter}: {ax.get_title()}", fontsize=9)
    above, below = left.subplots(2, 1, sharex=True)
    x = np.array([entry["interactions"] for entry in run.history]) / 1000
    active(above, scene, x)
    of_active(below, scene, x)
    below.set_xlabel("interactions (thousands)")
    for ax in (above, below):
        for letter, time in zip("ABCDEFGHI", times, strict=False):
            ax.axvline(time / 1000, color=PALE, lw=0.5, ls=":")
            if ax is above:
                ax.annotate(
                    letter, (time / 1000, 1.01), xycoords=("data", "axes fraction"), fontsize=8
                )
        aside = {
            "loc": "lower center",
            "bbox_to_anchor": (0.5, 1.05),
        }  # both curves fill their axes
        ax.legend(frameon=False, fontsize=8, ncols=3, **aside)
        ax.grid(color="#e6e8ec")
        ax.spines[["top", "right"]].set_visible(False)
    title = f"{scene.name}: {count(len(run) - 1)} after {thousands(run.summary['interactions'])}"
    figure.suptitle(f"{title} interactions (bold: new since the frame before)")
    legend_below(figure, [*policy_legend(scene)[:-1], *ground_legend(scene)], columns=5)
    return figure
