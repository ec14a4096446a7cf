"""`upside bench`: skill updates per second beside Stable-Baselines3, SBX and the core's own limit.

Every entry is a process of its own, pinned to its core and held to one thread there. All are
started first and then take turns, so a drift of the machine's speed meets them alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from upside.types import Space, Trajectory, UserError, usable_cores
from upside.version import __version__, commit

BATCH, DELAY, UPDATES = 64, 2, 500  # per update; critic updates per actor's; per skill and call
QUIET = 0.95  # share of its core below which an entry was disturbed
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0", "OMP_NUM_THREADS": "1"}
ENVIRONMENT["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
Result = dict[str, Any]
Prepared = tuple[Callable[[], object], float]  # what to time; updates (or operations) per call


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure speed beside Stable-Baselines3 and SBX."""

    size: Literal["maze", "control", "both"] = "both"
    """Networks of the paper's mazes (2 observations, 64 hidden units), of its control tasks (27, 256), or both."""
    skills: int = 8
    """Skills that we train at once, each with weights of its own."""
    seconds: float = 5.0
    """How long each entry is measured per turn, after compilation."""
    repeats: int = 3
    """Turns of each entry; the median counts."""
    json: Path | None = None
    """Write the results here as well."""
    peers: bool = True
    """Measure the other libraries, where they are installed."""
    env: str | None = None
    """Measure something else instead: where the time of a run on this environment goes."""
    goals: Path | None = None
    """Or: how much faster all goals of `goals-...` are fine-tuned at once than one after another, from this run."""
    interactions: int = 20_000
    """How many of that run are measured, after as many to warm up; or for each goal, once a policy is chosen."""

    def check(self) -> None:
        """Refuse what cannot be measured, before any work."""
        for name in ("skills", "seconds", "repeats", "interactions"):
            if not getattr(self, name) > 0:
                raise UserError(f"--{name} {getattr(self, name)} is not positive: try 3")
        if self.env is not None and self.goals is not None:
            raise UserError("--env and --goals are two measurements: give one of them")
        if self.json is not None and not self.json.parent.is_dir():
            raise UserError(f"--json {self.json}: make the directory {self.json.parent} first")


class Size(NamedTuple):
    """Sizes of the layers, and the length T = H of a skill."""

    observation: int
    action: int
    hidden: int
    steps: int


SIZES = {"maze": Size(2, 2, 64, 10), "control": Size(27, 8, 256, 50)}


def flops(size: Size) -> float:
    """Floating point operations of one TD3 update: its matrix products, nothing element-wise.

    A layer of i·o weights costs 2·BATCH·i·o forward, as much for its weights' gradient and as much
    for its inputs'. Critics: target actor and both targets forward; both critics forward and back,
    but not into their inputs. Actor, once in DELAY: itself and the first critic forward, back
    through that critic to the action alone (no weights), then back through itself.
    """
    o, a, h, _ = size
    actor, critic = o * h + h * h + h * a, (o + a) * h + h * h + h
    critics = actor + 2 * critic + 2 * (2 * critic + h * h + h)
    actors = (2 * actor + h * h + h * a) + (critic + h * h + h + a * h)
    return 2.0 * BATCH * (critics + actors / DELAY)


@dataclasses.dataclass(frozen=True)
class Blank:
    """An environment of the right sizes. Nobody steps it: what is measured is learning."""

    observation_size: int
    action_size: int
    name, deterministic = "blank", True
    space = Space((-1.0, -1.0), (1.0, 1.0), (10, 10))

    def reset(self, *_: Any) -> Any: ...

    step = features = reachable = reset


def ours(size: Size, skills: int) -> Prepared:
    """The program in which a run spends its time: relabel a full replay buffer, then update."""
    import jax

    from upside.engine.discovery import Discovery
    from upside.engine.method import Method
    from upside.learners.td3 import TD3
    from upside.rewards import Scores
    from upside.skills.growth import Growth
    from upside.skills.plan import Plan

    learner = TD3(hidden=size.hidden, batch_pol=BATCH, policy_delay=DELAY)
    plan, growth = Plan(T=size.steps, H=size.steps, H_max=250), Growth(n_max=skills, n_start=1)
    method = Method(plan=plan, learner=learner, growth=growth)
    run = Discovery(Blank(size.observation, size.action), method, seed=0, budget=0)
    arrays, replay, rng = run.arrays, run.arrays.replay, np.random.default_rng(0)
    some = (skills, plan.buffer_episodes)
    draw: Any = lambda *more: rng.uniform(-1, 1, (*some, *more)).astype(np.float32)  # noqa: E731
    obs, action = draw(plan.steps + 1, size.observation), draw(plan.steps, size.action)
    never: Any = np.zeros((*some, plan.steps), bool)
    episodes = Trajectory(obs, action, never, never, draw(plan.steps, 2))
    for _ in range(-(-replay.rows.shape[0] // (some[0] * some[1]))):
        replay = run.programs.remember(replay, episodes, np.ones(some, bool))
    labels = np.arange(run.capacity, run.capacity + skills, dtype=np.int32)
    classes, rho = np.ones(len(arrays.counts), bool), np.zeros(skills, np.float32)
    scores = Scores(arrays.judge, classes, labels, rho, arrays.own, arrays.own_counts)
    everyone, updates = np.ones(skills, bool), np.int32(UPDATES)
    inputs = (
        len(usable_cores()),
        arrays.learners,
        arrays.ages,
        replay,
    )
    rest = (everyone, updates, run.key())
    nothing = method.reward.unpaid(plan, replay, skills, learner.gamma)
    every = np.int32(0), np.int32(len(replay.rows))

    def learn() -> Any:
        paid = run.programs.pay(replay, scores, nothing, *every)
        return jax.block_until_ready(run.programs.learn(*inputs, paid, *rest))

    return learn, UPDATES * skills


def peer(package: str, size: Size, updates: int) -> Prepared:
    """`train` of a library with Stable-Baselines3's interface, on a full replay buffer."""
    import gymnasium
    import torch
    from stable_baselines3.common.logger import Logger

    torch.set_num_threads(1)
    env: gymnasium.Env = gymnasium.Env()
    env.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (size.observation,))
    env.action_space = gymnasium.spaces.Box(-1.0, 1.0, (size.action,))
    options = {"batch_size": BATCH, "policy_delay": DELAY, "buffer_size": 25_000, "device": "cpu"}
    options["policy_kwargs"] = {"net_arch": [size.hidden, size.hidden]}
    model = importlib.import_module(package).TD3("MlpPolicy", env, **options)
    model.set_logger(Logger(None, []))
    rng, buffer = np.random.default_rng(0), model.replay_buffer
    for stored in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards):
        stored[:] = rng.uniform(-1, 1, stored.shape)
    buffer.full = True
    return lambda: model.train(gradient_steps=updates, batch_size=BATCH), updates


def gemm() -> Prepared:
    """The fastest square matrix product of this core, counted in floating point operations."""
    import jax

    product = jax.jit(lambda x: x @ x)

    def one(n: int) -> Prepared:
        x = jax.device_put(np.ones((n, n), np.float32))
        jax.block_until_ready(product(x))
        return lambda: jax.block_until_ready(product(x)), 2.0 * n**3

    return max(map(one, (128, 256, 512, 1024)), key=lambda p: timed(p[0], p[1], 0.2)["rate"])


ENTRIES: dict[str, Callable[[Size, int], Prepared]] = {
    "upside": ours,
    "SBX, 500 updates per call": lambda size, _: peer("sbx", size, 500),
    "SBX, 1 per call (default)": lambda size, _: peer("sbx", size, 1),
    "Stable-Baselines3": lambda size, _: peer("stable_baselines3", size, UPDATES),
    "limit: matrix products": lambda size, _: gemm(),
}
OURS, *PEERS, LIMIT = ENTRIES
TWICE, ONCE = "upside, twice on 2 cores", "upside, once on 2 cores"


def timed(call: Callable[[], object], units: float, seconds: float) -> dict[str, float]:
    """Units per second, and the processor time it took as a share of the time that passed."""
    calls, begin, busy = 0, time.perf_counter(), time.process_time()
    while not calls or time.perf_counter() - begin < seconds:
        call()
        calls += 1
    wall = time.perf_counter() - begin
    return {"rate": calls * units / wall, "busy": (time.process_time() - busy) / wall}


def work(entry: str, size: str, skills: str, *cores: str) -> None:
    """A worker: prepare, call twice and say how long each took; then one measurement a line."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(map(int, cores)))  # XLA takes as many threads as cores
    call, units = ENTRIES[entry](SIZES[size], int(skills))
    print(json.dumps([units / timed(call, units, 0.0)["rate"] for _ in range(2)]), flush=True)
    for seconds in sys.stdin:
        print(json.dumps(timed(call, units, float(seconds))), flush=True)


class Worker:
    """A process on its cores, ready to be measured. It ends when nobody holds its input."""

    def __init__(self, entry: str, size: str, skills: int, *cores: int):
        self.entry, self.cores, begin = entry, len(cores), time.perf_counter()
        command = [sys.executable, "-m", "upside.bench", entry, size, *map(str, (skills, *cores))]
        variables = {**os.environ, **ENVIRONMENT}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=variables, **pipes)
        first, second = self.read()
        self.compile, self.start = max(0.0, first - second), time.perf_counter() - begin - second

    def go(self, seconds: float) -> None:
        print(seconds, file=self.process.stdin, flush=True)

    def read(self) -> Any:
        if line := self.process.stdout.readline():  # type: ignore[union-attr]
            return json.loads(line)
        self.process.communicate()
        raise UserError(f"'{self.entry}' could not be measured: see its error above")


def measure(options: Bench, size: str, names: list[str]) -> dict[str, Result]:
    """Every entry turn by turn: its rate, its share of its cores; and how long it took to start."""
    one, *more = usable_cores()
    start = lambda entry, *cores: Worker(entry, size, options.skills, *cores)  # noqa: E731
    teams = {name: [start(name, one)] for name in names}
    if more and OURS in names:
        teams[TWICE] = [start(OURS, one), start(OURS, more[0])]
        teams[ONCE] = [start(OURS, one, more[0])]
    results: dict[str, Result] = {
        name: {"rates": [], "busy": [], "compile_seconds": w.compile, "start_seconds": w.start}
        for name, (w, *_) in teams.items()
    }
    for name in list(teams) * options.repeats:
        for worker in teams[name]:
            worker.go(options.seconds)
        got = [worker.read() for worker in teams[name]]
        results[name]["rates"].append(sum(g["rate"] for g in got))
        results[name]["busy"].append(min(g["busy"] for g in got) / teams[name][0].cores)
    for worker in (worker for team in teams.values() for worker in team):
        worker.process.communicate()
    return results


def summarise(raw: dict[str, Result], size: Size) -> dict[str, Result]:
    """Add medians, half ranges, and ratios taken turn by turn; the limit becomes updates too."""
    limit = [rate / flops(size) for rate in raw[LIMIT]["rates"]]
    gflops = statistics.median(raw[LIMIT]["rates"]) / 1e9
    entries = {**raw, LIMIT: {**raw[LIMIT], "rates": limit, "gflops": gflops}}

    def ratio(ones: list[float], others: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(ones, others, strict=True))

    return {
        name: {
            **entry,
            "median": statistics.median(entry["rates"]),
            "half_range": (max(entry["rates"]) - min(entry["rates"])) / 2,
            "upside_over_this": ratio(raw[OURS]["rates"], entry["rates"]),
            "share_of_limit": ratio(entry["rates"], limit) / (1 + (name in (TWICE, ONCE))),
        }
        for name, entry in entries.items()
    }


def show(size: str, entries: dict[str, Result]) -> None:
    """One table, and the lines that explain it."""
    from rich.console import Console
    from rich.table import Table

    o, a, hidden, _ = SIZES[size]
    title = f"{size}: {o} observations, {a} actions, {hidden} hidden units, batch {BATCH}, one core"
    table = Table("", "updates/s", "upside / this", "of the limit", title=title)
    for name, e in entries.items():
        ratio, share = f"{e['upside_over_this']:.2f}×", f"{e['share_of_limit']:.0%}"
        table.add_row(name, f"{e['median']:,.0f} ± {e['half_range']:,.0f}", ratio, share)
    Console().print(table)
    us, rate = entries[OURS], entries[LIMIT]["gflops"]
    busy = min(min(e["busy"]) for e in entries.values())
    print(
        f"upside: compiled in {us['compile_seconds']:.1f} s; first call ({UPDATES} updates a skill)"
    )
    print(f"done {us['start_seconds']:.1f} s after its process began")
    print(f"limit: {rate:.0f} GFLOP/s a core, {flops(SIZES[size]) / 1e6:.2f} MFLOP an update")
    if busy < QUIET:
        print(f"noisy: an entry had only {busy:.0%} of its core; use a machine at rest")


def machine() -> Result:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    versions = {"upside": __version__, "python": platform.python_version()}
    for package in ("jax", "jaxlib", "torch", "stable-baselines3", "sbx-rl"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {"cpu": model, "cores": len(usable_cores()), "versions": versions}


def main(options: Bench) -> None:
    """Measure, show, and write."""
    options.check()
    if options.env is not None:
        from upside import timing

        found = timing.measure(
            timing.default(options.env, options.interactions), options.interactions
        )
        timing.show(found)
        write(options, found)
        return
    if options.goals is not None:
        from upside import timing

        found = timing.together(options.goals, options.interactions)
        timing.show_goals(found)
        write(options, found)
        return
    missing = [p for p in ("torch", "stable_baselines3", "sbx") if not importlib.util.find_spec(p)]
    if options.peers and missing:
        print(f"no peers, for want of {', '.join(missing)}: pip install 'upside[bench]'")
    names = [OURS, *(PEERS if options.peers and not missing else []), LIMIT]
    results = {}
    for size in SIZES if options.size == "both" else (options.size,):
        results[size] = summarise(measure(options, size, names), SIZES[size])
        show(size, results[size])
    write(options, results)


def write(options: Bench, results: Result) -> None:
    """What was measured, on what and how, if it is asked for."""
    if options.json is not None:
        paths = {"json": str(options.json), "goals": options.goals and str(options.goals)}
        settings = {**dataclasses.asdict(options), **paths}
        asked = " ".join(["upside", *sys.argv[1:]])
        about = {"command": asked, "version": __version__, "commit": commit()}
        report = {**about, "settings": settings, "machine": machine(), "results": results}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
        print(f"results: {options.json}")


if __name__ == "__main__":
    work(*sys.argv[1:])
