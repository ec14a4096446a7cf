"""`upside film RUN --policy 7`: a policy as a moving picture, its chain of skills and its diffusing part."""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from upside.envs.host import HostEnv
from upside.envs.maze import Maze
from upside.figures import writing
from upside.run import Run
from upside.types import UserError

LEAST = 240  # pixels of a side
FASTEST = {".gif": 50, ".mp4": 240}
"""Frames a second that a kind of film can have: a GIF's take whole hundredths of a second, two at least."""


@dataclasses.dataclass(frozen=True)
class Film:
    """Film one policy: its path along its parents' skills, its own, and its diffusing part."""

    run_dir: tyro.conf.Positional[Path]
    """The run."""
    policy: int = 1
    """Number of the policy; pictures show the numbers. 0 is the root."""
    output: Path | None = None
    """Where to write it, .gif or .mp4 (default: RUN_DIR/figures/film-POLICY.gif)."""
    seed: int = 0
    """Seed of the episode."""
    fps: int = 25
    """Frames a second."""


def film(options: Film) -> None:
    """What the command does."""
    name = f"film-{options.policy}.gif"
    path = options.output or options.run_dir / "figures" / name
    _check(path, options.fps)
    make(Run.load(options.run_dir), options.policy, path, options.seed, options.fps)
    print(f"film: {path}")


def make(run: Run, policy: int, path: Path, seed: int = 0, fps: int = 25) -> None:
    """Roll a policy out, and write what it looked like."""
    _check(path, fps)
    pictures = captioned(run, policy, frames(run, policy, seed))
    with writing(path):
        write(pictures, path, fps)


def _check(path: Path, fps: int) -> None:
    if path.suffix not in FASTEST:
        raise UserError(f"{path} is neither .gif nor .mp4")
    most = FASTEST[path.suffix]
    if not 1 <= fps <= most:
        raise UserError(f"--fps {fps} is not between 1 and {most}, as {path.suffix} can be: try 25")


def frames(run: Run, policy: int, seed: int = 0) -> list[np.ndarray]:
    """One picture a step, the start included."""
    if isinstance(run.env, HostEnv):
        return _simulated(run, run.env, policy, seed)
    if isinstance(run.env, Maze):
        from upside.envs.gym import draw

        path = np.concatenate(run.rollout(policy, seed))
        return [draw(run.env.layout, list(path[: t + 1])) for t in range(len(path))]
    raise UserError(
        f"{run.env.name} does not say how it is drawn: films are of mazes and Gymnasium ids"
    )


def _simulated(run: Run, env: HostEnv, policy: int, seed: int) -> list[np.ndarray]:
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    seen: list[np.ndarray] = []
    filmed = env.filmed(seen)
    try:
        dataclasses.replace(run, env=filmed).rollout(policy, seed)
    finally:
        filmed.close()
    return seen


def captioned(run: Run, policy: int, pictures: list[np.ndarray]) -> list[Any]:
    """What the policy is doing, written on every picture."""
    from PIL import Image, ImageDraw

    T, depth = run.method.plan.T, run.tree[policy].depth
    out = []
    for t, picture in enumerate(map(_legible, pictures)):
        doing = f"skill {-(-t // T)} of {depth}" if t <= depth * T else "diffusing"
        doing = doing if t else "start"
        image = Image.fromarray(picture)
        pen = ImageDraw.Draw(image)
        text = f"policy {policy}, step {t}: {doing}"
        pen.rectangle((0, 0, 8 + pen.textlength(text), 16), fill="white")
        pen.text((4, 2), text, fill="black")
        out.append(image)
    return out


def _legible(picture: np.ndarray) -> np.ndarray:
    """Enlarged, if it is small: there must be room for what is written on it."""
    times = -(-LEAST // min(picture.shape[:2]))
    return np.repeat(np.repeat(picture, times, axis=0), times, axis=1)


def write(pictures: list[Any], path: Path, fps: int) -> None:
    if path.suffix == ".gif":
        first, *rest = pictures
        first.save(path, save_all=True, append_images=rest, duration=1000 // fps, loop=0)
        return
    try:
        import imageio.v3 as iio
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        raise UserError(
            f"{path}: MP4 needs pip install 'upside[film]'; .gif works without"
        ) from None
    with warnings.catch_warnings():  # the encoder is another program: JAX need not fear the fork
        warnings.filterwarnings("ignore", message="os.fork")
        iio.imwrite(path, np.stack([np.asarray(p) for p in pictures]), fps=fps)
