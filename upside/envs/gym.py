"""The mazes as Gymnasium environments, for learners from elsewhere.

    import gymnasium, upside.envs.gym
    gymnasium.make("upside/BottleneckMaze-v0", render_mode="rgb_array")
    gymnasium.make_vec("upside/UMaze-v0", num_envs=64)
    gymnasium.make("upside/Maze-v0", layout="my-maze.txt")

The import registers the ids; `gymnasium.make("upside.envs.gym:upside/UMaze-v0")` does both. There
is no reward: a maze is explored for its own sake, so the reward is always 0.
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Float, UInt8
from PIL import Image, ImageDraw

from upside.envs import make
from upside.envs.layouts import BUILT_IN, Layout, Segment
from upside.envs.maze import Maze

MAX_EPISODE_STEPS = 200
FRAME, MARGIN = 480, 12  # pixels: the longer side of the maze, and what is left around it
FINE = 2  # draw this many times larger and shrink: Pillow has no smooth lines of its own
PAPER, GRID, SOLID, WALL = "#ffffff", "#eceef2", "#c3c8d2", "#20242c"
TRAIL, AGENT, START = "#4c8bf5", "#d93025", "#188038"

Trail = list[Float[np.ndarray, "2"]]


def _maze(layout: str | Layout) -> Maze:
    environment = Maze(layout) if isinstance(layout, Layout) else make(layout)
    assert isinstance(environment, Maze), f"{layout} is not a maze"
    return environment


def _spaces(maze: Maze) -> tuple[Box, Box]:
    """The spaces of observations and of actions."""
    low, high = (np.array(side, np.float32) for side in (maze.space.low, maze.space.high))
    return Box(low, high), Box(-1.0, 1.0, (maze.action_size,))


@functools.partial(jax.jit, static_argnums=0)
def _steps(
    maze: Maze, positions: Float[Array, "envs 2"], actions: Float[Array, "envs 2"]
) -> Float[Array, "envs 2"]:
    """One step of many agents at once. Mazes are deterministic: any key will do."""
    step = jax.vmap(maze.step, in_axes=(0, 0, None))
    return step(positions, actions, jax.random.key(0)).obs


class MazeEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One agent. `layout` is a registered maze's name, the path of a drawn one, or a `Layout`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's form)

    def __init__(self, layout: str | Layout, render_mode: str | None = None) -> None:
        self.maze = _maze(layout)
        self.observation_space, self.action_space = _spaces(self.maze)
        self.render_mode = render_mode
        self._trail: Trail = [np.array(self.maze.layout.start, np.float32)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._trail = self._trail[:1]
        return self._trail[-1].copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        shift = np.asarray(action, np.float32)
        position = np.array(_steps(self.maze, self._trail[-1][None], shift[None]))[0]
        self._trail.append(position)
        return position.copy(), 0.0, False, False, {}

    def render(self) -> np.ndarray | None:
        return draw(self.maze.layout, self._trail) if self.render_mode else None


class MazeVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many agents in one compiled step. `layout` as in `MazeEnv`.

    An episode is truncated after `max_episode_steps`, with its true last observation; the next
    step ignores the action and returns the reset's (AutoresetMode.NEXT_STEP).
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, layout: str | Layout, num_envs: int = 1, max_episode_steps: int = MAX_EPISODE_STEPS
    ) -> None:
        self.maze = _maze(layout)
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.single_observation_space, self.single_action_space = _spaces(self.maze)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._start = np.array(self.maze.layout.start, np.float32)
        self._positions = np.tile(self._start, (num_envs, 1))
        self._elapsed = np.zeros(num_envs, int)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start anew; with `options={"reset_mask": ...}` only where the mask is true."""
        super().reset(seed=seed)
        who = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self._positions = np.where(who[:, None], self._start, self._positions)
        self._elapsed = np.where(who, 0, self._elapsed)
        return self._positions.copy(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        over = self._elapsed >= self.max_episode_steps
        moved = np.array(_steps(self.maze, self._positions, np.asarray(actions, np.float32)))
        self._positions = np.where(over[:, None], self._start, moved)
        self._elapsed = np.where(over, 0, self._elapsed + 1)
        truncated = self._elapsed >= self.max_episode_steps
        never = np.zeros(self.num_envs, bool)
        return self._positions.copy(), np.zeros(self.num_envs), never, truncated, {}


def _pixels(layout: Layout, *points: float) -> list[tuple[float, float]]:
    """Coordinates x, y, x, y, ... in a picture `FINE` times too large, whose y points down."""
    scale = FRAME / max(layout.width, layout.height)
    return [
        (FINE * (MARGIN + scale * x), FINE * (MARGIN + scale * (layout.height - y)))
        for x, y in zip(points[::2], points[1::2], strict=True)
    ]


def _dot(pen: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, **style: Any) -> None:
    (x, y), r = at, FINE * radius
    pen.ellipse((x - r, y - r, x + r, y + r), width=2 * FINE, **style)


@functools.lru_cache(maxsize=32)
def _background(layout: Layout) -> Image.Image:
    """What lies under the agent's trail: buckets, blocks, start and walls."""
    ((right, bottom),) = _pixels(layout, layout.width, 0.0)
    size = round(right) + FINE * MARGIN, round(bottom) + FINE * MARGIN
    picture = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(picture)
    columns, rows = layout.buckets
    grid: list[Segment] = []
    for x in np.linspace(0.0, layout.width, columns + 1):
        grid.append((x, 0.0, x, layout.height))
    for y in np.linspace(0.0, layout.height, rows + 1):
        grid.append((0.0, y, layout.width, y))
    for line in grid:
        pen.line(_pixels(layout, *line), GRID, FINE)
    for x0, y0, x1, y1 in layout.blocks:
        pen.rectangle(_pixels(layout, x0, y1, x1, y0), SOLID)
    _dot(pen, _pixels(layout, *layout.start)[0], 6.0, outline=START)
    for wall in layout.barriers:
        ends = _pixels(layout, *wall)
        pen.line(ends, WALL, 5 * FINE)
        for end in ends:  # round ends close the corners
            _dot(pen, end, 2.5, fill=WALL)
    return picture


def draw(layout: Layout, trail: Trail) -> UInt8[np.ndarray, "height width 3"]:
    """The maze from above, y upwards, with the way an agent has come and where it is now."""
    picture = _background(layout).copy()
    pen = ImageDraw.Draw(picture)
    way = _pixels(layout, *np.concatenate(trail).tolist())
    # Walls are wider: who slides along one does not hide it.
    pen.line(way, TRAIL, 2 * FINE, joint="curve")
    _dot(pen, way[-1], 6.0, fill=AGENT, outline=PAPER)
    return np.asarray(picture.reduce(FINE))


def register() -> None:
    """Give every built-in maze a Gymnasium id, and drawn ones `upside/Maze-v0`."""
    ids = {name.title().replace("-", ""): {"layout": name} for name in BUILT_IN}
    for name, arguments in {**ids, "Maze": {}}.items():
        if f"upside/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"upside/{name}-v0",
                entry_point="upside.envs.gym:MazeEnv",
                vector_entry_point="upside.envs.gym:MazeVectorEnv",
                max_episode_steps=MAX_EPISODE_STEPS,
                kwargs=arguments,
            )


register()
