"""`upside bench --env ENV`: where the time of a run goes, and how fast its parts are while they work;
`upside bench --goals RUN`: what it gains to reach many goals at once.

Stepping and learning take turns: an episode needs the actors that the updates before it have made. Each has all
cores while it works, but a round has few episodes and few skills to share them. Alone, both have as many as there may be.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from upside import envs, methods, runs
from upside.downstream.reach import Finetuning
from upside.downstream.tasks import Task, goal
from upside.downstream.tune import Tuning
from upside.engine.collect import RANDOM
from upside.engine.discovery import Discovery
from upside.engine.train import rounds
from upside.envs.host import HostEnv
from upside.experiments.goals import sample
from upside.run import Run
from upside.types import UserError, usable_cores

GOALS = 48
ALONE, SECONDS = 200, 3.0  # steps of an episode of a simulator that is timed, and for how long
LONGER = 20  # times what is measured: a round may be long
POOL = 8  # of EnvPool's environments that advance together
COMMANDS = 6  # of `upside reach`, from which the time of GOALS of them is extrapolated
PARTS = {"walk": "stepping", "collect": "stepping", "learn": "updates", "judge": "discriminator"}


class Timed:
    """Something whose methods are watched: how long each took until its result was there."""

    def __init__(self, watched: Any, spent: dict[str, float], done: dict[str, int]):
        self.watched, self.spent, self.done = watched, spent, done
        self.last: dict[str, tuple] = {}
        """The arguments of each method when it was called last."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.watched, name)
        if name not in PARTS:
            return found

        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            result = jax.block_until_ready(found(*arguments))
            self.spent[PARTS[name]] += time.perf_counter() - begin
            self.last[name] = arguments
            if name == "learn":  # cores, learners, ages, replay, paid, training, updates, key
                self.done["updates"] += int(np.sum(arguments[5])) * int(arguments[6])
            return result

        return timed


def default(env: str, interactions: int) -> Discovery:
    """A run of our default method that is longer than what is measured."""
    world, budget = envs.make(env), LONGER * interactions
    method = methods.get("upside", None, world)
    runs.configure("upside", method, world, 0, budget)
    return Discovery(world, method, 0, budget, len(usable_cores()))


def measure(run: Discovery, interactions: int) -> dict[str, Any]:
    """Of so many interactions, or some more, after as many that compile and warm up."""
    spent: dict[str, float] = defaultdict(float)
    done: dict[str, int] = defaultdict(int)
    timed: Any = Timed
    run.rollouts = timed(run.rollouts, spent, done)
    run.programs = timed(run.programs, spent, done)
    begin, first, before = time.perf_counter(), 0, 0
    for _ in rounds(run):
        if first and run.counters.interactions >= first + interactions:
            break
        if not first and run.counters.interactions >= interactions:
            spent.clear()
            done.clear()
            begin, first = time.perf_counter(), run.counters.interactions
            before = _executed(run)
    wall = time.perf_counter() - begin
    steps = _executed(run) - before
    shares = {part: spent[part] / wall for part in dict.fromkeys(PARTS.values())}
    one = simulator(run.env, run.cores) if isinstance(run.env, HostEnv) else {}
    return {
        "env": run.env.name,
        "cores": run.cores,
        "simulator_steps_per_second": one,
        "seconds": wall,
        "interactions": run.counters.interactions - first,
        "shares": {**shares, "rest": 1.0 - sum(shares.values())},
        "steps_per_second": {
            "alone": _stepping_alone(run),
            **_rates(steps, spent["stepping"], wall),
        },
        "updates_per_second": {
            "alone": _updates_alone(run),
            **_rates(done["updates"], spent["updates"], wall),
        },
    }


def _stepping_alone(run: Discovery) -> float:
    """Steps a second on all cores, of as many random episodes as one call may have."""
    each, steps = run.method.plan.buffer_episodes, run.method.plan.steps
    wants = np.full(run.method.growth.n_max, each)
    return _repeated(lambda: run.collect(each, wants, steps, RANDOM, 0.0), int(wants.sum()) * steps)


def _updates_alone(run: Discovery) -> float:
    """Updates a second on all cores, where as many skills learn as may be in training."""
    programs: Any = run.programs
    cores, learners, ages, _, paid, training, _, key = programs.last["learn"]
    every, updates = np.ones_like(training), run.method.practice.k_pol
    # The replay buffer of that call is no more: its place was given to the next one.
    again = (cores, learners, ages, run.arrays.replay, paid, every, np.int32(updates), key)
    return _repeated(lambda: programs.watched.learn(*again), every.size * updates)


def _repeated(call: Callable[[], Any], units: int) -> float:
    """Units a second, after a call that may compile."""
    jax.block_until_ready(call())
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        jax.block_until_ready(call())
        done += units
    return done / (time.perf_counter() - begin)


def simulator(env: HostEnv, cores: int) -> dict[str, float]:
    """Steps a second on one core with random actions: of one simulator by itself, of one through our adapter, and
    of EnvPool's, on one core and on all, where that is installed and has the id: would an adapter of its own be worth it?"""
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (ALONE, env.action_size))

    def rate(step: Callable[[np.ndarray], Any]) -> float:
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < SECONDS:
            simulated.reset(0)
            for action in actions:
                step(action)
            done += len(actions)
        return done / (time.perf_counter() - begin)

    with env.simulators(1) as (simulated,):
        itself = simulated.simulated.step
        raw = rate(lambda action: itself(simulated.stretched(action)))
        ours = {
            "a simulator by itself, on one core": raw,
            "through the adapter, on one core": rate(simulated.step),
        }
        return {**ours, **_envpool(env, 1), **(_envpool(env, cores) if cores > 1 else {})}


def _envpool(env: HostEnv, cores: int) -> dict[str, float]:
    """The same of POOL environments of EnvPool, which advance together; with the body's own options where it has them."""
    try:
        import envpool  # an optional package: nothing but this measurement uses it
    except ImportError:
        return {}
    gym_id = (env.source or {}).get("gym_id")
    if gym_id not in envpool.list_all_envs():
        return {}
    known = envpool.make_spec(gym_id).config._asdict()
    options = {name: value for name, value in (env.source or {}).items() if name in known}
    pool = envpool.make_gymnasium(gym_id, num_envs=POOL, num_threads=cores, **options)
    rng, shape = np.random.default_rng(0), (ALONE, POOL, *pool.action_space.shape)
    actions = rng.uniform(pool.action_space.low, pool.action_space.high, shape)
    pool.reset()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        for action in actions:
            pool.step(action)
        done += actions.shape[0] * POOL
    pool.close()
    where = f"on {cores} core{'s' if cores > 1 else ''}"
    return {f"EnvPool's, {POOL} together, {where}": done / (time.perf_counter() - begin)}


def _executed(run: Discovery) -> int:
    """Steps that were executed: where parents' ends are put back, their skills are counted but not executed."""
    if run.rollouts.walks and not getattr(run.env, "repeats", False):
        return run.counters.interactions
    return run.counters.interactions_without_prefix


def _rates(number: int, busy: float, wall: float) -> dict[str, float]:
    return {"while it works": number / busy if busy else 0.0, "in the run": number / wall}


def show(found: dict[str, Any]) -> None:
    """One line a part."""
    from rich.console import Console
    from rich.table import Table

    cores = found["cores"]
    title = f"upside on {found['env']}, {found['interactions']:,} interactions, {cores} cores"
    rates = ("alone", "while it works", "in the run")
    table = Table("", "share of the time", *(f"a second, {how}" for how in rates), title=title)
    for part, share in found["shares"].items():
        said = found.get({"stepping": "steps_per_second"}.get(part, f"{part}_per_second"), {})
        table.add_row(part, f"{share:.0%}", *(f"{said[how]:,.0f}" for how in rates if said))
    Console().print(table)
    for what, rate in found["simulator_steps_per_second"].items():
        print(f"{what}: {rate:,.0f} steps a second")


def together(run_dir: Path, interactions: int) -> dict[str, Any]:
    """48 goals at once, one after another, and by a command for each, with the same budget.

    Compilation is part of the first two. Commands find it in the cache, but for the first, and start a process each.
    """
    run = Run.load(run_dir)
    if len(run.env.space.low) != 2:
        raise UserError(f"--goals {run_dir}: {run.env.name} has not two features")
    places = list(sample(run.env).values())[:GOALS]
    goals: list[Task] = [goal(run.env, np.asarray(place), 1.0) for place in places]
    budget = len(run) * Tuning().n_explo * run.method.plan.H_max + interactions

    def reach(some: list[Task]) -> tuple[float, list[float]]:
        begin = time.perf_counter()
        tuned = Finetuning(run, some, budget)
        while not tuned.done:
            tuned.advance()
        return time.perf_counter() - begin, tuned.history[-1]["best"]

    at_once, best = reach(goals)
    alone = [reach([one]) for one in goals]
    some = np.linspace(0, len(places) - 1, min(COMMANDS, len(places))).astype(int)
    commands = [_command(run_dir, places[i], budget) for i in some]
    return {
        "env": run.config.env,
        "policies": len(run) - 1,
        "goals": len(goals),
        "cores": len(usable_cores()),
        "budget_per_goal": budget,
        "seconds_at_once": at_once,
        "seconds_one_after_another": sum(seconds for seconds, _ in alone),
        "seconds_of_commands": commands,
        "same_results": best == [one for _, (one,) in alone],
    }


def _command(run_dir: Path, place: Any, budget: int) -> float:
    """Seconds of one `upside reach`."""
    goal = ",".join(f"{float(x):.3f}" for x in place)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as where:
        options = ["--goal", goal, "--budget", str(budget), "--output", f"{where}/goal"]
        command = [sys.executable, "-m", "upside.cli", "reach", str(run_dir), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def show_goals(found: dict[str, Any]) -> None:
    at_once, alone = found["seconds_at_once"], found["seconds_one_after_another"]
    each = float(np.median(found["seconds_of_commands"]))  # the first one compiles
    print(f"{found['goals']} goals on {found['env']}, {found['cores']} cores, compilation included")
    print(f"at once: {at_once:.0f} s")
    print(f"one after another in one process: {alone:.0f} s, {alone / at_once:.1f} times")
    times = found["goals"] * each / at_once
    print(
        f"a command for each: {each:.0f} s; {found['goals']} such commands: {times:.1f} times "
        f"(from {len(found['seconds_of_commands'])} of them)"
    )
    print("every goal's best return is the same" if found["same_results"] else "results DIFFER")
