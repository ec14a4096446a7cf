"""The one registry of what can be explored. The Gymnasium ids are made from it, in `envs.gym`."""

from __future__ import annotations

import os

from upside.envs.layouts import BUILT_IN, load
from upside.envs.maze import Maze
from upside.types import Environment, UserError, unknown


def describe() -> dict[str, str]:
    """Every environment's name and what it is, in one line."""
    return {name: layout.description for name, layout in BUILT_IN.items()}


def names() -> list[str]:
    """The names that `make` knows."""
    return list(describe())


def make(name_or_path: str) -> Environment:
    """The environment of that name, or the maze drawn in that text file (see `layouts.load`)."""
    if name_or_path in BUILT_IN:
        return Maze(BUILT_IN[name_or_path])
    looks_like_path = name_or_path.endswith(".txt") or os.sep in name_or_path
    if looks_like_path or os.path.isfile(name_or_path):
        return Maze(load(name_or_path))
    error = unknown("environment", name_or_path, names())
    raise UserError(f"{error} (the path of a .txt file with a drawn maze works too)")
