"""`upside reach RUN --goal X,Y`: select, fine-tune, say and show what became of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from upside.downstream import tasks
from upside.downstream.reach import Finetuning, Measured, Reached, zero_shot
from upside.run import Run
from upside.runs import RunDirectory, unflatten
from upside.types import UserError
from upside.version import __version__

SAVE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Reach:
    """Reach a goal whose place is unknown until a policy gets there: r(s) = 1 within a radius, 0 elsewhere."""

    run_dir: tyro.conf.Positional[Path]
    """The run whose policies are tried."""
    goal: str
    """Where the goal is, in features of the environment: 40,45. Only its reward is told to the policies."""
    radius: float = 1.0
    """How near is there (paper: 1)."""
    budget: int = 300_000
    """Interactions to select a policy and to fine-tune it, together."""
    zero_shot: bool = False
    """The place is known: the discriminator names the policy. Nothing is learned."""
    seed: int = 0
    """Seed of everything random."""
    output: Path | None = None
    """Where the result is written (default: RUN_DIR/reach/GOAL); the same call goes on where it was interrupted."""
    overwrite: bool = False
    """Begin anew."""


def reach(options: Reach) -> None:
    """What the command does."""
    run = Run.load(options.run_dir)
    task = tasks.goal(run.env, place(options.goal), options.radius)
    name = options.goal.replace(",", "_") + ("-zero-shot" if options.zero_shot else "")
    where = options.output or options.run_dir / "reach" / name
    directory, asked = RunDirectory(where), _asked(options)
    _look(where, asked, options.overwrite)
    if (where / "result.json").is_file() and not options.overwrite:
        print(words(run, options, json.loads((where / "result.json").read_text())))
        print(f"done before: {where} (--overwrite does it again)")
        return
    if options.zero_shot:
        result = zero_shot(run, task, seed=options.seed)
        _begin(directory, asked, options.overwrite)
    else:
        tuned = Finetuning(run, [task], options.budget, seed=options.seed)
        _begin(directory, asked, options.overwrite)
        result = _finetune(tuned, directory)
    said = report(result)
    directory.keep("result.json", json.dumps(said, indent=1) + "\n")
    print(words(run, options, said))
    if len(run.env.space.low) == 2:
        with directory.writing():
            picture(run, options, result, where / "way.png")
        print(f"picture: {where / 'way.png'}")


def place(text: str) -> np.ndarray:
    try:
        return np.array([float(word) for word in text.split(",")], np.float32)
    except ValueError:
        raise UserError(
            f"--goal {text} is not numbers with commas between them: try 40,45"
        ) from None


def _asked(options: Reach) -> dict[str, Any]:
    """What a result depends on."""
    kept = ("goal", "radius", "budget", "zero_shot", "seed")
    tree = RunDirectory.open(options.run_dir).load_tree()[0]["arrays_sha256"]
    return {**{name: getattr(options, name) for name in kept}, "tree": tree, "version": __version__}


def _look(where: Path, asked: dict[str, Any], overwrite: bool) -> None:
    """Refuse a place that holds something else, or another request that is not to be replaced."""
    if where.exists() and not where.is_dir():
        raise UserError(f"{where} is a file: give another --output")
    if not where.exists() or not any(where.iterdir()):
        return
    try:
        found = json.loads((where / "config.json").read_text())
    except (OSError, ValueError):
        found = {}
    if "goal" not in found:
        raise UserError(f"{where} exists and holds something else: give another --output")
    other = [name for name in asked if found.get(name) != asked[name]]
    if other and not overwrite:
        raise UserError(
            f"{where} holds a request with another {' and '.join(other)}: "
            "give --overwrite, or another --output"
        )


def _begin(directory: RunDirectory, asked: dict[str, Any], overwrite: bool) -> None:
    """Its configuration first: a directory that has one is to be continued."""
    with directory.writing():
        if overwrite and directory.path.exists():
            shutil.rmtree(directory.path)
        directory.path.mkdir(parents=True, exist_ok=True)
    directory.keep("config.json", json.dumps(asked, indent=1) + "\n")


def _finetune(tuned: Finetuning, directory: RunDirectory) -> Reached:
    """From where the same request was interrupted, or from the start."""
    with directory.writing():
        (directory.path / "checkpoints").mkdir(exist_ok=True)
    saved = directory.load_checkpoint()
    if saved is not None:
        tuned.restore(saved[1], unflatten(tuned.chains, saved[0]))
    last = time.perf_counter()
    while not tuned.done:
        tuned.step()
        if time.perf_counter() - last > SAVE_SECONDS:
            directory.save_checkpoint(tuned.chains, tuned.state())
            last = time.perf_counter()
    directory.save_checkpoint(tuned.chains, tuned.state())
    return tuned.results()[0]


# -------------------------------------------------------------------- what is said and shown


def report(result: Reached) -> dict[str, Any]:
    """The numbers of a result."""
    names = ("policy", "found", "tuned", "selection", "tuning")
    kinds = ("before", "finetuned", "stochastic", "after")
    measured = {k: dataclasses.asdict(getattr(result, k)) for k in kinds}
    return {**{name: getattr(result, name) for name in names}, **measured}


def words(run: Run, options: Reach, said: dict[str, Any]) -> str:
    """A result as a reader wants it."""
    policy, depth = said["policy"], run.tree[said["policy"]].depth
    lines = [f"goal {options.goal}, radius {options.radius:g}, on {run.env.name}"]
    if options.zero_shot:
        why = "the discriminator gives the goal to it"
    elif said["found"]:
        why = "it collected most in selection"
    else:
        why = "no policy has reached the goal: chosen blindly"
    lines.append(f"policy {policy} (depth {depth}): {why}")
    lines.append(f"{'as it is' if options.zero_shot else 'before'}: {_said(said['before'])}")
    if not options.zero_shot:
        lines.append(f"fine-tuned: {_said(said['finetuned'])}")
        lines.append(f"fine-tuned, with exploration noise: {_said(said['stochastic'])}")
        if not said["tuned"]:
            lines.append("fine-tuning made it no better: the policy is kept as it was")
    spent = f"interactions: {said['selection']:,} to select, {said['tuning']:,} to fine-tune"
    lines.append("interactions: none but these episodes" if options.zero_shot else spent)
    return "\n".join(lines)


def _said(found: dict[str, Any]) -> str:
    one = Measured(**found)
    steps = "never there" if one.steps is None else f"{one.steps:.0f} steps when it gets there"
    return f"reward γ^τ {one.reward:.3f}, success {one.success:.0%}, {steps}"


def picture(run: Run, options: Reach, result: Reached, path: Path) -> None:
    from upside.figures import DPI
    from upside.figures.goal import way

    steps = [len(p) - 1 for p in (result.path_before, result.path_after)]
    title = (
        f"{run.config.method} on {run.env.name}: policy {result.policy} to the goal {options.goal}"
    )
    figure = way(
        run,
        place(options.goal),
        options.radius,
        result.path_before,
        result.path_after,
        title,
        (f"before, best episode: {steps[0]} steps", f"after: {steps[1]} steps"),
        run.tree[result.policy].depth,
    )
    figure.savefig(path, dpi=DPI)
