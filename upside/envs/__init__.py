"""The one registry of what can be explored. The mazes' own Gymnasium ids are made in `envs.gym`."""

from __future__ import annotations

import os
from typing import Any

from upside.envs import bodies, host
from upside.envs.layouts import BUILT_IN, load
from upside.envs.maze import Maze
from upside.types import UserError, World, unknown

GYMNASIUM = "gymnasium:"


def describe() -> dict[str, str]:
    """Every environment's name and what it is, in one line."""
    mazes = {name: layout.description for name, layout in BUILT_IN.items()}
    return mazes | {name: body.about for name, body in bodies.BODIES.items()}


def names() -> list[str]:
    """The names that `make` knows."""
    return list(describe())


def make(
    name_or_path: str,
    features: str | None = None,
    box: tuple[float, ...] | None = None,
    buckets: tuple[int, ...] | None = None,
) -> World:
    """The environment of that name, `gymnasium:ID`, or the maze drawn in a text file (see `layouts.load`).

    `features`, `box` and `buckets` say what of a Gymnasium environment is discriminated, and where it is
    covered; a maze has its own.
    """
    given: dict[str, Any] = {"features": features, "box": box, "buckets": buckets}
    if name_or_path.startswith(GYMNASIUM):
        return host.registered(name_or_path.removeprefix(GYMNASIUM), **given)
    if name_or_path in bodies.BODIES:
        return bodies.make(name_or_path, **given)
    maze = _maze(name_or_path)
    for option, value in given.items():
        if value is not None:
            what = "discriminator-features" if option == "features" else option
            raise UserError(
                f"--{what} is for Gymnasium environments: {maze.name} is a maze, whose features are x and y"
            )
    return maze


def given(env: Any) -> World:
    """An environment by name, or one that was given itself."""
    if isinstance(env, str):
        return make(env)
    if not isinstance(env, World):
        raise UserError(
            f"env={env!r} is not an environment for upside: a Gymnasium one is wrapped, "
            "upside.environment(make, ...)"
        )
    try:
        hash(env)
    except TypeError:
        raise UserError(
            f"env={env.name} has no hash, by which its compiled programs are found again: make it a "
            "frozen dataclass of numbers and tuples"
        ) from None
    return env


def _maze(name_or_path: str) -> Maze:
    if name_or_path in BUILT_IN:
        return Maze(BUILT_IN[name_or_path])
    looks_like_path = name_or_path.endswith(".txt") or os.sep in name_or_path
    if looks_like_path or os.path.isfile(name_or_path):
        return Maze(load(name_or_path))
    error = unknown("environment", name_or_path, names())
    raise UserError(
        f"{error} (gymnasium:ID and the path of a .txt file with a drawn maze work too)"
    )
