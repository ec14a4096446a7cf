"""How a run went: numbers over interactions (the left of the paper's figure of the tree's evolution)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from upside.figures.scene import Scene
from upside.types import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PALE = "#1f5fa8", "#d9731a", "#2e8b57", "#6b7280"
POINTS, BINS = 400, 100
"""Rounds up to which each is shown; beyond that, into how many stretches they are put together."""


def curves(scene: Scene) -> Figure:
    """Policies, those in training, buckets and discriminability, one above the other."""
    from matplotlib.figure import Figure

    history = scene.run.history
    if not history:
        raise UserError(
            "figure 'curves' needs the run's history, and this run has none: load it from a run "
            "directory with metrics.jsonl"
        )
    figure = Figure(figsize=(8.0, 9.4), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True, height_ratios=(3, 2, 3, 3))
    x = np.array([entry["interactions"] for entry in history]) / 1000
    for ax, panel in zip(panels, (_policies, active, _buckets, discriminability), strict=True):
        panel(ax, scene, x)
        ax.grid(color="#e6e8ec")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlim(0, max(x[-1], 1e-3) * 1.01)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    panels[-1].set_xlabel("interactions (thousands)")
    figure.suptitle(f"{scene.name}\n{scene.size}", fontsize=11)
    return figure


def _policies(ax: Axes, scene: Scene, x: np.ndarray) -> None:
    """N of the whole tree."""
    total = [entry["policies"] for entry in scene.run.history]
    ax.step(x, total, where="post", color=BLUE, label="consolidated", gid="consolidated")
    _counted(ax, "policies")


def active(ax: Axes, scene: Scene, x: np.ndarray) -> None:
    """N of the expansion at work; 0 between two of them."""
    number = [len(entry["discriminability"]) for entry in scene.run.history]
    ax.step(
        x, number, where="post", color=ORANGE, lw=1, label="active\n(in training)", gid="active"
    )
    _counted(ax, "policies")


def _buckets(ax: Axes, scene: Scene, x: np.ndarray) -> None:
    """Coverage, against what can be reached."""
    covered = [entry["buckets"] for entry in scene.run.history]
    ax.step(x, covered, where="post", color=GREEN, label="covered", gid="buckets")
    if scene.reachable is not None:
        total = int(scene.reachable.sum())
        ax.axhline(total, color=PALE, ls="--", lw=1, label=f"reachable: {total}", gid="reachable")
    _counted(ax, "buckets")


def _counted(ax: Axes, what: str) -> None:
    """A vertical axis of whole numbers from 0."""
    from matplotlib.ticker import MaxNLocator

    ax.set_ylabel(what)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def discriminability(ax: Axes, scene: Scene, x: np.ndarray) -> None:
    """d(z) of the policies in training; the lines are cut where an expansion ends."""
    # 0 is no measurement: a policy that has no states of its own yet.
    scores = [[d for d in e["discriminability"] if d > 0] or [np.nan] for e in scene.run.history]
    both = np.array([[np.mean(d), np.min(d)] for d in scores])
    note = ""
    if len(x) > POINTS:
        x, both = _binned(x, both)
        note = f"\n(averages over {x[1] - x[0]:.2g}k)"
    style: dict[str, Any] = {"marker": ".", "ms": 3, "lw": 0.9}
    ax.plot(x, both[:, 0], color=BLUE, label="mean", gid="mean", **style)
    ax.plot(x, both[:, 1], color=ORANGE, label="minimum", gid="minimum", **style)
    growth = scene.run.method.growth
    note_eta = "to be met" if growth.target > 0 else "no constraint here"
    label = f"η = {growth.eta:g}\n({note_eta})"
    ax.axhline(growth.eta, color="black", ls="--", lw=1, label=label, gid="eta")
    ax.set_ylabel("discriminability of\nactive policies" + note)
    ax.set_ylim(0, 1.02)


def _binned(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Averages over equal stretches of x: what a reader can follow in a long run."""
    edges = np.linspace(0, x[-1], BINS + 1)
    place = np.clip(np.searchsorted(edges, x) - 1, 0, BINS - 1)
    middle, kept = (edges[:-1] + edges[1:]) / 2, ~np.isnan(rows[:, 0])
    number = np.bincount(place[kept], minlength=BINS)
    sums = np.stack([np.bincount(place[kept], row[kept], BINS) for row in rows.T], axis=-1)
    return middle, np.where(number[:, None] > 0, sums / np.maximum(number, 1)[:, None], np.nan)
