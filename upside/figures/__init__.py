"""The one registry of pictures of a run. Matplotlib is imported when something is drawn, not before.

    figures.draw("policies", run, "policies.png")
    figures.draw_all(run, "my-run/figures")

Only Matplotlib's object-oriented interface is used: nothing is shown, no global state is touched,
so drawing works without a display and inside threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from upside.figures.curves import curves
from upside.figures.maps import coverage, discriminator
from upside.figures.policies import growth, policies
from upside.figures.scene import Scene
from upside.types import UserError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from upside.run import Run

DPI = 150


@dataclasses.dataclass(frozen=True)
class Entry:
    """A figure by name."""

    picture: Callable[[Scene], Figure]
    about: str
    features: tuple[int, ...] | None = (2,)
    """Of how many features it can be drawn; None: of any number."""


FIGURES: dict[str, Entry] = {
    "policies": Entry(
        policies, "every policy: its skill as a line, its diffusing states as dots", (1, 2)
    ),
    "growth": Entry(growth, "the tree as it grew, frame by frame", (1, 2)),
    "curves": Entry(curves, "policies, buckets and discriminability over interactions", None),
    "discriminator": Entry(discriminator, "the most likely policy of every place, and how sure"),
    "coverage": Entry(coverage, "which buckets are covered, and by what"),
}


def names() -> list[str]:
    """The names that `draw` knows."""
    return list(FIGURES)


def draw(name: str, run: Run, path: str | Path | None = None) -> Figure:
    """Draw one figure of a run; saved if `path` is given (PNG, or what the suffix says)."""
    if name not in FIGURES:
        raise unknown("figure", name, names())
    return _draw(name, Scene(run), Path(path) if path is not None else None)


def draw_all(run: Run, directory: str | Path) -> list[Path]:
    """Save every figure that this run's environment allows as `directory/<name>.png`."""
    scene = Scene(run)
    paths = []
    for name, entry in FIGURES.items():
        if entry.features is None or scene.dimension in entry.features:
            paths.append(Path(directory) / f"{name}.png")
            _draw(name, scene, paths[-1])
    return paths


def _draw(name: str, scene: Scene, path: Path | None) -> Figure:
    """Refuse what cannot be drawn or saved before the work of drawing it."""
    allowed, dimension = FIGURES[name].features, scene.dimension
    if allowed is not None and dimension not in allowed:
        any_number = ((n, entry.features or (dimension,)) for n, entry in FIGURES.items())
        others = ", ".join(n for n, those in any_number if dimension in those)
        raise UserError(
            f"figure '{name}' needs {' or '.join(map(str, allowed))} features, but "
            f"{scene.run.env.name} has {dimension}: choose from: {others}"
        )
    if path is not None:
        _check_suffix(path)
    figure = FIGURES[name].picture(scene)
    if path is not None:
        with writing(path):
            figure.savefig(path, dpi=DPI)
    return figure


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Into a place that the user has chosen, whose folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}: choose another path"
        ) from None


def _check_suffix(path: Path) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise UserError(
            f"cannot save a figure as '{path.name}': end the name in .png (or .{', .'.join(known)})"
        )
