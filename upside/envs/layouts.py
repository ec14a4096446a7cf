"""Mazes as data: where the walls are, where the agent starts, how coverage is counted.

A maze is a box with its lower left corner at (0, 0). It is written here, or drawn by the user in
a text file (`load`).
"""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from scipy import ndimage

from upside.types import Space, UserError

Segment = tuple[float, float, float, float]
"""x0, y0, x1, y1: a thin wall along one axis, or two opposite corners of a solid block."""

RADIUS = 0.05
"""How near the agent comes to a wall."""

CELL = 5.0
"""Side of one character of a drawn maze; the built-in mazes have buckets of the same size."""

LEGEND = "'#' is solid, '.' or a space is free, one 'S' is the start"


@dataclasses.dataclass(frozen=True)
class Layout:
    """A maze of `width` by `height`. All numbers are in the maze's own units, y upwards."""

    name: str
    width: float
    height: float
    start: tuple[float, float]
    walls: tuple[Segment, ...] = ()
    """Thin walls, each along one axis. The border of the box is always a wall: see `barriers`."""
    blocks: tuple[Segment, ...] = ()
    """Solid rectangles. Only their outline can be met, since the agent starts outside."""
    buckets: tuple[int, int] = (10, 10)
    """Along x and y: the grid in which coverage is counted."""
    description: str = ""

    def __post_init__(self) -> None:
        for wall in self.walls:
            if wall[0] != wall[2] and wall[1] != wall[3]:
                raise UserError(f"{self.name}: wall {wall} is oblique: make x0 = x1 or y0 = y1")
        for block in self.blocks:
            if not (
                0 <= block[0] < block[2] <= self.width and 0 <= block[1] < block[3] <= self.height
            ):
                raise UserError(
                    f"{self.name}: block {block} is empty or leaves the maze: make "
                    f"0 <= x0 < x1 <= {self.width:g} and 0 <= y0 < y1 <= {self.height:g}"
                )
        x, y = self.start
        for x0, y0, x1, y1 in (*self.barriers, *self.blocks):
            left, right, low, high = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
            near = left - RADIUS <= x <= right + RADIUS and low - RADIUS <= y <= high + RADIUS
            if near or not (0 < x < self.width and 0 < y < self.height):
                raise UserError(
                    f"{self.name}: start {self.start} is outside the maze or touches a wall: "
                    f"move it inside, more than {RADIUS} away from every wall"
                )

    @property
    def space(self) -> Space:
        """The whole box, in which coverage is counted."""
        return Space((0.0, 0.0), (self.width, self.height), self.buckets)

    @functools.cached_property
    def inner(self) -> tuple[Segment, ...]:
        """Everything inside the box that stops a move: thin walls and outlines of blocks."""
        return self.walls + _outline(self.blocks, self.width, self.height)

    @functools.cached_property
    def barriers(self) -> tuple[Segment, ...]:
        """Everything that stops a move: the four borders first, then what is `inner`."""
        w, h = self.width, self.height
        return ((0.0, 0.0, w, 0.0), (w, 0.0, w, h), (0.0, h, w, h), (0.0, 0.0, 0.0, h), *self.inner)


def _runs(mask: Bool[np.ndarray, " n"]) -> list[tuple[int, int]]:
    """First and one-past-last index of every unbroken run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _outline(blocks: tuple[Segment, ...], width: float, height: float) -> tuple[Segment, ...]:
    """The border between the union of `blocks` and free space, in segments as long as can be.

    Walls cost time in every step, so edges that two blocks share, or a block and the box, are left
    out: the blocks cut the box into an uneven grid whose cells are either solid or free.
    """
    xs = sorted({0.0, width, *(x for block in blocks for x in block[::2])})
    ys = sorted({0.0, height, *(y for block in blocks for y in block[1::2])})
    solid = np.zeros((len(xs) - 1, len(ys) - 1), bool)
    for x0, y0, x1, y1 in blocks:
        solid[xs.index(x0) : xs.index(x1), ys.index(y0) : ys.index(y1)] = True
    upright = (
        (xs[i + 1], ys[a], xs[i + 1], ys[b])
        for i, change in enumerate(np.diff(solid, axis=0))
        for a, b in _runs(change)
    )
    level = (
        (xs[a], ys[j + 1], xs[b], ys[j + 1])
        for j, change in enumerate(np.diff(solid, axis=1).T)
        for a, b in _runs(change)
    )
    return (*upright, *level)


BUILT_IN = {
    layout.name: layout
    for layout in (
        Layout(
            name="bottleneck-maze",
            width=50.0,
            height=50.0,
            start=(2.5, 2.5),
            # The maze of the EDL paper (its Fig. 3), five times as large.
            walls=(
                (25.0, 0.0, 25.0, 5.0),
                (25.0, 10.0, 25.0, 25.0),
                (0.0, 25.0, 25.0, 25.0),
                (25.0, 10.0, 35.0, 10.0),
                (35.0, 20.0, 35.0, 50.0),
                (35.0, 5.0, 40.0, 5.0),
                (40.0, 5.0, 40.0, 10.0),
                (40.0, 10.0, 50.0, 10.0),
            ),
            description="50x50 maze whose rooms are joined by narrow passages, start in a corner",
        ),
        Layout(
            name="u-maze",
            width=50.0,
            height=50.0,
            start=(2.5, 2.5),
            # Corridors of three buckets: docs/baselines.md has why.
            blocks=((0.0, 15.0, 35.0, 35.0),),
            description="50x50 maze around a solid block: there and back again, start in a corner",
        ),
        Layout(
            name="wall-free-maze",
            width=50.0,
            height=50.0,
            start=(25.0, 25.0),
            description="50x50 box without inner walls, start at the centre",
        ),
    )
}


def load(path: str | os.PathLike[str]) -> Layout:
    """The maze drawn in a text file; its name is the path, so that the name finds it again."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file: draw the maze as text ({LEGEND})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"{path}: cannot read this maze file ({reason}): give the path of a text file"
        ) from None
    return parse_text(text, str(path))


def parse_text(text: str, name: str) -> Layout:
    """The maze that `text` draws: its first line is the top; a character is a cell and a bucket."""
    grid, start = _read_cells(text, name)
    _require_connected(grid != "#", start, name)
    rows, columns = grid.shape
    open_runs: dict[tuple[int, int], int] = {}  # runs of '#' that reach down to here -> first row
    blocks = []
    for row in range(rows + 1):
        runs = _runs(grid[row] == "#") if row < rows else []
        for a, b in [run for run in open_runs if run not in runs]:
            top = open_runs.pop((a, b))
            blocks.append((a * CELL, (rows - row) * CELL, b * CELL, (rows - top) * CELL))
        for run in runs:
            open_runs.setdefault(run, row)
    return Layout(
        name=name,
        width=columns * CELL,
        height=rows * CELL,
        start=((start[1] + 0.5) * CELL, (rows - start[0] - 0.5) * CELL),
        blocks=tuple(blocks),
        buckets=(columns, rows),
        description=f"{columns * CELL:g}x{rows * CELL:g} maze drawn in {name}",
    )


def _read_cells(text: str, name: str) -> tuple[np.ndarray, tuple[int, int]]:
    """The characters as a grid, top row first, and the row and column of the start."""
    lines = text.removesuffix("\n").split("\n")
    if not any(lines):
        raise UserError(f"{name}: the maze is empty: draw it in text ({LEGEND})")
    for number, line in enumerate(lines, 1):
        if len(line) != len(lines[0]):
            raise UserError(
                f"{name}: line {number} is {len(line)} characters long, line 1 is "
                f"{len(lines[0])}: make all lines equally long, with '.' for free cells"
            )
        for column, character in enumerate(line, 1):
            if character not in "#. S":
                raise UserError(
                    f"{name}: line {number}, column {column} is {character!r}: {LEGEND}"
                )
    grid = np.array([list(line) for line in lines])
    starts = [(int(row), int(column)) for row, column in np.argwhere(grid == "S")]
    if not starts:
        raise UserError(f"{name}: no start in lines 1 to {len(lines)}: put one 'S' in a free cell")
    if len(starts) > 1:
        row, column = starts[1]
        raise UserError(
            f"{name}: {len(starts)} starts, the second in line {row + 1}, column {column + 1}: "
            "keep one 'S' and make the others '.'"
        )
    return grid, starts[0]


def _require_connected(
    free: Bool[np.ndarray, "rows columns"], start: tuple[int, int], name: str
) -> None:
    """Refuse free cells that the start does not lead to: coverage could never be complete."""
    where = f"the start in line {start[0] + 1}, column {start[1] + 1}"
    if free.sum() == 1:
        raise UserError(f"{name}: {where} has no free cell around it: make some cells '.'")
    regions, _ = ndimage.label(free)
    cut_off = np.argwhere(free & (regions != regions[start]))
    if len(cut_off):
        row, column = cut_off[0] + 1
        raise UserError(
            f"{name}: {len(cut_off)} free cells cannot be reached from {where}, such as line {row},"
            f" column {column}: open a way to them or make them '#'"
        )
