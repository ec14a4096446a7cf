"""A point in a continuous maze, pure JAX: the state is the position, the action is the shift.

A wall is a thin segment, inflated by `RADIUS` to a box. A move runs straight to the first box it
meets, stops, and slides along it up to the next one (`move`). Rounding cannot lead through a wall:
the result is kept only if the straight line to it stays clear of boxes half as thick.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from scipy import sparse

from upside.envs.layouts import RADIUS, Layout
from upside.types import Step

HAIR = 1e-3
"""Rest this far from a wall's box: far above float32's rounding (4e-6 at 50), far below RADIUS."""

GRID = 0.25
"""Spacing of the points on which reachability is worked out; wider than a wall's box is thick."""

Point = Float[Array, "2"]
Walls = Float[Array, "walls 4"]
PerWall = Float[Array, " walls"]
Axes = Bool[Array, "2"]


def _crossing(
    origin: Point, shift: Point, walls: Walls, radius: float
) -> tuple[PerWall, PerWall, PerWall]:
    """When `origin + t * shift` enters each box's range of x, its range of y, and leaves the box.

    The box itself is entered at the later of the first two, unless it has been left before.
    The axes are kept apart because XLA vectorises over walls, not over a last axis of length 2.
    """
    # An axis without motion gets times so large that only the sign of the distance matters.
    pace = jnp.where(shift == 0, 1e-9, shift)
    enter, leave = [], []
    for axis in (0, 1):
        ends = walls[:, axis], walls[:, axis + 2]
        one = (jnp.minimum(*ends) - radius - origin[axis]) / pace[axis]
        other = (jnp.maximum(*ends) + radius - origin[axis]) / pace[axis]
        enter.append(jnp.minimum(one, other))
        leave.append(jnp.maximum(one, other))
    return enter[0], enter[1], jnp.minimum(*leave)


def _clear(origin: Point, target: Point, walls: Walls, radius: float) -> Bool[Array, ""]:
    """Whether the straight line between two points touches no wall's box. A NaN is never clear."""
    enter_x, enter_y, leave = _crossing(origin, target - origin, walls, radius)
    enter = jnp.maximum(enter_x, enter_y)
    return jnp.all((enter > leave) | (enter > 1) | (leave < 0))


def _advance(origin: Point, shift: Point, walls: Walls) -> tuple[Point, Axes]:
    """Move up to the first wall. Returns where, and the axis across that wall, if there is one."""
    enter_x, enter_y, leave = _crossing(origin, shift, walls, RADIUS)
    enter, across_x = jnp.maximum(enter_x, enter_y), enter_x > enter_y
    # Rounding may have put the origin just inside a box: that is still in front of the face that
    # the move enters by. Deeper inside, that face lies behind, and the move is on its way out.
    distance = enter * jnp.where(across_x, jnp.abs(shift[0]), jnp.abs(shift[1]))
    hit = (distance >= -HAIR) & (enter < leave) & (enter <= 1)
    when_x = jnp.where(hit & across_x, enter, jnp.inf).min()
    when_y = jnp.where(hit & ~across_x, enter, jnp.inf).min()
    times, time = jnp.stack([when_x, when_y]), jnp.minimum(when_x, when_y)
    axis = (times == time) & (time <= 1)
    stop = origin + jnp.clip(time, 0.0, 1.0) * shift
    return jnp.where(axis, stop - HAIR * jnp.sign(shift), stop), axis


def move(position: Point, shift: Point, walls: Walls) -> Point:
    """Where `shift` leads: straight to the first wall, then along it to the next.

    The agent appears to go in a straight line from one observation to the next, so that line has to
    be clear as well, not only the bent path. Hence a position that starts at least RADIUS / 2 away
    from all walls stays so, whatever the shift.
    """
    stop, across = _advance(position, shift, walls)
    rest = jnp.where(across, 0.0, position + shift - stop)
    slid, _ = _advance(stop, rest, walls)
    stop = jnp.where(_clear(position, stop, walls, RADIUS / 2), stop, position)
    return jnp.where(_clear(position, slid, walls, RADIUS / 2), slid, stop)


class Maze:
    """A `Layout` as an `Environment`. Mazes of equal layout are equal, so jit compiles them once.

    The full action is a shift of `max_step` along each axis.
    """

    observation_size = 2
    action_size = 2
    deterministic = True

    def __init__(self, layout: Layout, max_step: float = 1.0) -> None:
        self.layout = layout
        self.max_step = max_step
        self.name = layout.name
        self.space = layout.space

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Maze) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Maze({self.name!r}, max_step={self.max_step})"

    @property
    def _value(self) -> tuple[Layout, float]:
        return self.layout, self.max_step

    def reset(self, key: PRNGKeyArray) -> tuple[Point, Point]:
        start = jnp.asarray(self.layout.start, jnp.float32)
        return start, start

    def step(self, state: Point, action: Point, key: PRNGKeyArray) -> Step:
        walls = jnp.asarray(self.layout.barriers, jnp.float32)
        position = move(state, self.max_step * jnp.clip(action, -1.0, 1.0), walls)
        return Step(position, position, jnp.array(False), jnp.array(False))

    def features(self, obs: Point) -> Point:
        return obs

    def reachable(self) -> Bool[np.ndarray, " buckets"]:
        """Which buckets hold a point that the start leads to, by flat bucket (`Space.bucket`)."""
        xs, ys, reached = _flood(self.layout)
        points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1)[reached]
        hit = np.zeros(np.prod(self.space.buckets), bool)
        hit[self.space.bucket(points)] = True
        return hit

    def oracle(self, rng: np.random.Generator, number: int) -> Float[np.ndarray, "number 2"]:
        """States drawn uniformly from the free space that the start leads to (EDL's assumption)."""
        xs, ys, reached = _flood(self.layout)
        points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1)[reached]
        drawn = points[rng.integers(len(points), size=number)]
        around = rng.uniform(-GRID / 2, GRID / 2, drawn.shape)
        return np.clip(drawn + around, 0.0, [self.layout.width, self.layout.height])

    def contains(self, position: tuple[float, float] | np.ndarray) -> bool:
        """Whether a point is free space that the start leads to. The box's border counts as free,
        a wall does not."""
        x, y = map(float, position)
        layout = self.layout
        if not (0 <= x <= layout.width and 0 <= y <= layout.height):
            return False
        if any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in layout.blocks):
            return False
        xs, ys, reached = _flood(layout)
        near = (np.abs(xs - x) <= 2 * GRID)[:, None] & (np.abs(ys - y) <= 2 * GRID)
        walls = jnp.asarray(layout.inner, jnp.float32).reshape(-1, 4)
        target = jnp.array([x, y], jnp.float32)
        return any(
            _clear(jnp.array([xs[i], ys[j]], jnp.float32), target, walls, 0.0)
            for i, j in np.argwhere(near & reached)
        )


@functools.lru_cache(maxsize=32)
def _flood(layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The xs and ys of a fine grid through the start, and which of its points the start leads to.

    Neighbours are joined unless a wall's box lies on the line between them, so thin walls count.
    """
    (x, y), (w, h) = layout.start, (layout.width, layout.height)
    xs, ys = np.arange(x % GRID, w, GRID), np.arange(y % GRID, h, GRID)
    east = np.ones((len(xs) - 1, len(ys)), bool)  # [i, j]: is (i, j) joined to (i + 1, j)?
    north = np.ones((len(xs), len(ys) - 1), bool)
    for wall in layout.barriers:
        low, high = np.minimum(wall[:2], wall[2:]) - RADIUS, np.maximum(wall[:2], wall[2:]) + RADIUS
        in_x, in_y = (low[0] <= xs) & (xs <= high[0]), (low[1] <= ys) & (ys <= high[1])
        span_x = (low[0] <= xs[1:]) & (xs[:-1] <= high[0])
        span_y = (low[1] <= ys[1:]) & (ys[:-1] <= high[1])
        east[np.ix_(span_x, in_y)] = False
        north[np.ix_(in_x, span_y)] = False
    index = np.arange(len(xs) * len(ys)).reshape(len(xs), len(ys))
    ends = np.concatenate(
        [
            np.stack([index[:-1][east], index[1:][east]]),
            np.stack([index[:, :-1][north], index[:, 1:][north]]),
        ],
        axis=1,
    )
    graph = sparse.coo_array((np.ones(ends.shape[1]), tuple(ends)), (index.size, index.size))
    _, region = sparse.csgraph.connected_components(graph, directed=False)
    home = index[round((x - xs[0]) / GRID), round((y - ys[0]) / GRID)]
    return xs, ys, (region == region[home]).reshape(index.shape)
