"""`upside reach RUN --goal X,Y`: select, fine-tune, say and show what became of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from upside.downstream import request, tasks
from upside.downstream.reach import Finetuning
from upside.downstream.reached import EVALUATION, Measured
from upside.downstream.request import Job, Request
from upside.run import Run
from upside.runs import RunDirectory
from upside.session import Interruptible
from upside.types import UserError, at_least


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
    name = "_".join(f"{x:.9g}" for x in place(options.goal))  # 40.0,45 is the same as 40,45
    name += "-zero-shot" if options.zero_shot else ""
    where = options.output or options.run_dir / "reach" / name
    at_least(options, 0, "seed")
    run = Run.load(options.run_dir)
    tasks.goal(run.env, place(options.goal), options.radius)
    if len(run) < 2:
        raise UserError(f"{options.run_dir} has no policies: give a run that has found some")
    kept = ("radius", "budget", "zero_shot", "seed")
    settings = {name: getattr(options, name) for name in kept}
    asked = request.ask(options.run_dir, where, [place(options.goal)], **settings)
    asked.check(where, options.overwrite)
    if (done := request.result(where)) and not options.overwrite:
        tell(asked, run, done["goals"][0], where)
        print(f"done before: {where} (--overwrite does it again)")
        return
    job = asked.prepare(where)
    asked.start(where, options.overwrite)
    carry_out(job)


def resume(where: Path, asked: Request, cores: int = 0) -> None:
    """Continue what was interrupted, whoever asked for it."""
    if request.result(where) is None:
        carry_out(asked.prepare(where, cores))
    else:
        print(f"done before: {where}")


def carry_out(job: Job) -> None:
    """Do it; a single goal is put in words and drawn."""
    from rich.console import Console

    from upside.progress import Reaching

    with Reaching(Console()) as live, Interruptible(job.where) as stop:

        def listen(tuned: Finetuning) -> None:
            live(tuned)
            stop()

        found, run = job.perform(listen), job.run
    if len(found) > 1 or job.asked.kind != "goal":
        print(f"{len(found)} tasks: {job.where / 'result.json'}")
        return
    tell(job.asked, run, found[0].numbers(), job.where)


def tell(asked: Request, run: Run, said: dict[str, Any], where: Path) -> None:
    """In words, and as a picture where there is a plane to draw it on."""
    print(words(asked, run, said))
    ways = request.ways(where)
    if len(run.env.space.low) == 2 and ways is not None:
        with RunDirectory(where).writing():
            picture(asked, run, said, ways, where / "way.png")
        print(f"picture: {where / 'way.png'}")


def place(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UserError(
            f"--goal {text} is not numbers with commas between them: try 40,45"
        ) from None


# -------------------------------------------------------------------- what is said and shown


def words(asked: Request, run: Run, said: dict[str, Any]) -> str:
    """A result as a reader wants it."""
    policy, depth = said["policy"], run.tree[said["policy"]].depth
    lines = [f"goal {_named(asked)}, radius {asked.radius:g}, on {run.env.name}"]
    if asked.zero_shot:
        why = "the discriminator gives the goal to it"
    elif said["found"]:
        score, policies = said["selected"], len(run) - 1
        root = " and the root" if score["policies"] > policies else ""
        why = (
            f"of {policies} policies{root} it collected most, mean reward γ^steps {score['reward']:.3f}, "
            f"there in {score['paid']} of {score['episodes']} episodes"
        )
    else:
        why = "no policy has reached the goal: chosen blindly"
    lines.append(f"policy {policy} (depth {depth}): {why}")
    before = _said(said["before"], EVALUATION)
    lines.append(f"{'as it is' if asked.zero_shot else 'before'}: {before}")
    if not asked.zero_shot:
        lines.append(f"fine-tuned, without noise: {_said(said['finetuned'], 1)}")
        noisy = _said(said["stochastic"], EVALUATION)
        lines.append(f"fine-tuned, with exploration noise: {noisy}")
        as_it_was = "the policy as it was: fine-tuning made it no better"
        lines.append(f"kept: {'the fine-tuned chain' if said['tuned'] else as_it_was}")
    spent = f"interactions: {said['selection']:,} to select, {said['tuning']:,} to fine-tune"
    lines.append("interactions: none but these episodes" if asked.zero_shot else spent)
    return "\n".join(lines)


def _named(asked: Request) -> str:
    return ",".join(f"{x:g}" for x in asked.goals[0])


def _said(found: dict[str, Any], episodes: int) -> str:
    one = Measured(**found)
    there = f"there in {one.success * episodes:.0f} of {episodes} episodes"
    steps = "" if one.steps is None else f" after {one.steps:.0f} steps"
    return f"{there}{steps}, mean reward γ^steps {one.reward:.3f}"


def picture(
    asked: Request, run: Run, said: dict[str, Any], ways: dict[str, np.ndarray], path: Path
) -> None:
    from upside.figures import DPI
    from upside.figures.goal import way

    before, after = (len(ways[when]) - 1 for when in ("before", "after"))
    when = "as it is" if asked.zero_shot else "before"
    there = "best episode:" if said["before"]["success"] else "not there in"
    labelled = {f"{when}, {there} {before} steps": ways["before"]}
    if said["tuned"]:
        labelled[f"after: {after} steps"] = ways["after"]
    policy = said["policy"]
    title = f"{run.config.method} on {run.env.name}: policy {policy} to the goal {_named(asked)}"
    figure = way(
        run,
        np.asarray(asked.goals[0]),
        asked.radius,
        labelled,
        title,
        run.tree[policy].depth,
    )
    figure.savefig(path, dpi=DPI)
