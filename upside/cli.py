"""The command. What a user can get wrong ends in one line and exit code 2, before any work."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import tyro

from upside.arguments import numbers, parse, take, valued
from upside.types import UserError, flag, unknown
from upside.version import __version__

if TYPE_CHECKING:
    from upside.engine.method import Method
    from upside.run import Run
    from upside.session import Session


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `upside`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module of the user's own, beside which the command is called
    try:
        with _interruptible():
            return _dispatch(arguments)
    except UserError as error:
        print(f"upside: {error}", file=sys.stderr)
        return _left(2, argv is None)
    except KeyboardInterrupt as stop:
        print(
            f"upside: interrupted; {stop}" if str(stop) else "upside: interrupted", file=sys.stderr
        )
        return _left(130, argv is None)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _left(code: int, at_once: bool) -> int:
    """The exit code; a process of ours ends here, if a simulator that does not come back would be waited for."""
    if at_once and any(t.name.startswith("episodes") for t in threading.enumerate()):
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C as Python has it, but not to be lost; and SIGTERM, with which clusters end a job, alike."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    ours = {number: old for number, old in usual.items() if signal.getsignal(number) == old}
    for number in ours:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, old in ours.items():
            signal.signal(number, old)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """What is raised inside JAX's callback of the garbage collector is discarded: then once more, a moment later."""
    while frame is not None:
        if frame.f_code.co_name == "_xla_gc_callback":
            again = threading.Timer(0.05, os.kill, [os.getpid(), number])
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        print(f"upside {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    return COMMANDS[name](rest) or 0


def _usage() -> str:
    lines = [f"  {name:<10} {(f.__doc__ or '').splitlines()[0]}" for name, f in COMMANDS.items()]
    return "\n".join(
        [
            "usage: upside COMMAND ...",
            "",
            "Unsupervised skill discovery: direct, then diffuse.",
            "",
            *lines,
            "",
            "'upside COMMAND --help' says more.",
        ]
    )


# -------------------------------------------------------------------- train, resume


@dataclasses.dataclass(frozen=True)
class Train:
    """Discover skills."""

    env: str = "bottleneck-maze"
    """Environment by name (see 'upside envs'), gymnasium:ID, or the path of a maze drawn in a text file."""
    discriminator_features: str | None = None
    """What tells places of a Gymnasium environment apart: obs:0,1 or info:x_position,y_position or module:function."""
    box: str | None = None
    """Where its coverage is counted, low and high of each feature: --box=-10,10,-10,10."""
    buckets: str | None = None
    """How many buckets each feature's range is cut into: 50, or 50,20."""
    seed: int = 0
    """Seed of everything random; the same seed gives the same tree."""
    max_interactions: int = 1_000_000
    """Environment steps the run may take, parents' skills and probes included."""
    run_dir: Path | None = None
    """Where the run is written (default: runs/METHOD-ENV-SEED)."""
    overwrite: bool = False
    """Replace the run that is in that directory."""
    figures: bool = True
    """Draw the pictures at the end."""
    checkpoint_seconds: float = 5.0
    """Save the state this often, or as seldom as costs a twentieth of the time; a kill costs at most as much work."""
    cores: int = 0
    """Cores that share the skills in training, 0: all there are; the result is the same."""


@dataclasses.dataclass(frozen=True)
class Learns(Train):
    """Discover skills."""

    kind_of_learner: Annotated[Literal["td3", "sac"] | None, tyro.conf.arg(name="learner")] = None
    """TD3 or SAC in the place that the method has for one (default: TD3). The options below are of the one named."""


def train(arguments: list[str]) -> None:
    """Discover skills: upside train METHOD --env ENV [--seed N] [--max-interactions N] [--run-dir DIR]"""
    from upside import envs, methods, runs

    if not arguments or arguments[0].startswith("-"):
        names = ", ".join(methods.METHODS)
        if arguments[:1] in (["-h"], ["--help"]):
            print(f"usage: upside train METHOD [--env ENV] [OPTIONS]\n\nmethods: {names}")
            print("'upside train METHOD --help' lists the options of a method.")
            return
        raise UserError(
            f"which method? It comes first: upside train METHOD [--env ENV], one of: {names}"
        )
    name, rest = arguments[0], arguments[1:]
    learner, rest = take(rest, "--learner")
    env, _ = take(rest, "--env")
    features, rest = take(rest, "--discriminator-features")
    box, rest = take(rest, "--box")
    buckets, rest = take(rest, "--buckets")
    world = envs.make(
        env or Train.env, features, numbers("--box", box, float), numbers("--buckets", buckets, int)
    )
    method = methods.get(name, learner, world)
    slots, idle = method.slots(), method.idle()
    offered = {
        k: part for k, part in slots.items() if {f.name for f in dataclasses.fields(part)} - idle
    }
    fields = [(k, *_without(part, idle)) for k, part in offered.items()]
    asks = Learns if "learner" in offered else Train
    kind = dataclasses.make_dataclass("Train", fields, bases=(asks,), frozen=True)
    kind.__doc__ = asks.__doc__
    _own_options(name, method, kind, rest)
    conf = (tyro.conf.OmitArgPrefixes, tyro.conf.SuppressFixed)
    options = parse(kind, f"train {name}", rest, config=conf)
    chosen = {
        k: dataclasses.replace(part, **dataclasses.asdict(getattr(options, k)))
        for k, part in offered.items()
    }
    config = runs.configure(
        name,
        dataclasses.replace(method, **chosen),
        world,
        options.seed,
        options.max_interactions,
        options.env,
    )
    label = Path(options.env).stem.replace(":", "-")
    where = options.run_dir or Path("runs") / f"{name}-{label}-{options.seed}"
    from upside.session import Session

    _start_jax()
    session = Session(config, None, options.checkpoint_seconds, options.cores, world)
    session.directory = runs.RunDirectory.create(where, config, options.overwrite)
    _discover(session, options.figures)


def _own_options(name: str, method: Method, kind: type, arguments: list[str]) -> None:
    """Refuse an option that only other methods, or another learner, have: the parser would guess at one spelt alike."""
    from upside import methods

    def settings(method: Method) -> set[str]:
        fields = {f.name for part in method.slots().values() for f in dataclasses.fields(part)}
        return fields - method.idle()

    own = settings(method) | {f.name for f in dataclasses.fields(kind)}
    for word in arguments:
        option = word.partition("=")[0]
        setting = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or setting in own:
            continue
        for learner in methods.LEARNERS if issubclass(kind, Learns) else ():
            if setting in settings(methods.get(name, learner)):
                raise UserError(f"{option} is an option of {learner}: give --learner {learner}")
        whose = [other for other in methods.METHODS if setting in settings(methods.get(other))]
        if whose:
            raise UserError(f"{name} has no option {option}: it is one of {', '.join(whose)}")


def _without(part: Any, idle: set[str]) -> tuple[type, Any]:
    """A slot's kind with the settings in `idle` fixed, so that they are no options, and its default."""
    kinds = get_type_hints(type(part))
    fixed = [
        (f.name, Annotated[kinds[f.name], tyro.conf.Fixed], getattr(part, f.name))
        for f in dataclasses.fields(part)
        if f.name in idle
    ]
    kind = dataclasses.make_dataclass(type(part).__name__, fixed, bases=(type(part),), frozen=True)
    kind.__doc__ = type(part).__doc__
    return kind, dataclasses.field(default=kind(**dataclasses.asdict(part)))


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run, or a request of 'upside reach', that was interrupted; the result is the same, bit for bit."""

    run_dir: tyro.conf.Positional[Path]
    """The run directory."""
    figures: bool = True
    """Draw the pictures at the end."""
    checkpoint_seconds: float = 5.0
    """Save the state this often, or as seldom as costs a twentieth of the time; a kill costs at most as much work."""
    cores: int = 0
    """Cores that share the skills in training, 0: all there are; the result is the same."""


def resume(arguments: list[str]) -> None:
    """Continue an interrupted run, or the reaching of goals: upside resume DIR."""
    from upside.runs import RunDirectory

    options = parse(Resume, "resume", arguments)
    from upside import goals
    from upside.downstream.request import Request
    from upside.session import Session

    _start_jax()
    if asked := Request.read(options.run_dir):
        goals.resume(options.run_dir, asked, options.cores)
        return
    directory = RunDirectory.open(options.run_dir)
    session = Session.resume(directory, options.checkpoint_seconds, options.cores)
    if session.ended != "running":
        print("this run had ended before: there was nothing left to do")
    else:
        spent, budget = session.discovery.counters.interactions, session.config.max_interactions
        print(f"going on at {spent:,} of {budget:,} interactions")
    _discover(session, options.figures)


def _discover(session: Session, figures: bool) -> None:
    """Run a session with a live display in a terminal, quietly elsewhere; then say what was found."""
    from rich.console import Console

    from upside.runs import COVERAGE
    from upside.session import Interruptible

    console = Console()
    assert session.directory is not None
    path = session.directory.path
    with contextlib.ExitStack() as stack:
        session.listeners.append(stack.enter_context(Interruptible(path)))
        if console.is_terminal:
            from upside.progress import Progress

            session.listeners.append(stack.enter_context(Progress(console)))
        run = session.run()
    found = run.coverage()
    session.directory.keep(COVERAGE, json.dumps(found, indent=1) + "\n")
    _print_coverage(run, found)
    if said := _early(run):
        print(said)
    if figures:
        from upside.figures import draw_all

        with session.directory.writing():
            draw_all(run, path / "figures")
        print(f"pictures: {path / 'figures'}")
    print(f"run directory: {path}")


def _early(run: Run) -> str:
    """What to try where a run on somebody's environment found no free space long before its budget was spent."""
    from upside.envs.host import HostEnv

    left, plan = run.config.max_interactions - run.summary["interactions"], run.method.plan
    gate, early = run.method.gate, left > run.config.max_interactions // 10
    early = early and run.summary["ended"] != "budget spent"  # else the next episodes cost more
    if gate is None or not early or not isinstance(run.env, HostEnv):
        return ""
    said = f"{left:,} interactions are left: its probes find no free space. "
    if len(run) < 2:
        return f"{said}Where an episode may start anywhere, chance reaches all of it (docs/environments.md)"
    longer = 5 * plan.T
    tries = [f"longer skills (--T {longer})"] if longer + plan.H <= plan.H_max else []
    tries += ["probes that swing (--probe rhythm)"] if gate.probe != "rhythm" else []
    go = f"Skills of {plan.T} steps may not get farther than chance in as many: try "
    return said + (
        go + ", or ".join(tries) if tries else f"--reprobes {10 * gate.reprobes} looks on"
    )


def _start_jax() -> None:
    """Compiled programs are kept between runs: the second start is faster."""
    import jax

    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    where = os.environ.get("UPSIDE_CACHE", str(home / "upside" / "jax"))
    if where:
        jax.config.update("jax_compilation_cache_dir", where)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


# -------------------------------------------------------------------- coverage, plot


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Measure what a run has discovered."""

    run_dir: tyro.conf.Positional[Path]
    """The run directory."""
    json: bool = False
    """Print JSON."""
    episodes: int | None = None
    """Fresh diffusing parts per policy (default: 100, on the host 10); they are evaluation, not interactions of the run."""
    seed: int = 0
    """Seed of those diffusing parts."""


def coverage(arguments: list[str]) -> None:
    """Buckets covered by a run's policies: upside coverage DIR [--json]."""
    from upside.run import Run

    options = parse(Coverage, "coverage", arguments)
    if options.episodes is not None and options.episodes < 1:
        raise UserError(f"--episodes {options.episodes} is less than 1: give at least 1")
    run = Run.load(options.run_dir)
    _start_jax()
    if options.json:
        print(json.dumps(run.coverage(episodes=options.episodes, seed=options.seed), indent=2))
    else:
        _print_coverage(run, run.coverage(episodes=options.episodes, seed=options.seed))


def _enough(run: Run) -> int:
    """Interactions that leave room for policies: looking around the root is paid first, and each policy costs more."""
    gate, plan = run.method.gate, run.method.plan
    return 5 * max((gate.probes if gate else 0) + 8 * plan.buffer_episodes, 40) * plan.steps


def _print_coverage(run: Run, r: dict[str, Any]) -> None:
    of = f" of {r['reachable']} reachable" if r["reachable"] else ""
    print(f"{r['method']} on {r['env']}, seed {r['seed']}: {r['ended']}")
    more = f" ({r['buckets_with_diffusing']} with the diffusing parts)" if run.method.plan.H else ""
    print(f"buckets: {r['buckets']}{of}{more}")
    print(f"policies: {r['policies']}, deepest at depth {r['depth']}")
    if not r["policies"] and r["ended"] == "budget spent" and run.method.growth.max_depth != 0:
        print(
            f"no policy was finished within the budget: give a larger --max-interactions, {_enough(run):,} or more "
            "(an environment that starts anywhere has none to find: docs/environments.md)"
        )
    print(
        f"interactions: {r['interactions']:,} "
        f"({r['interactions_without_prefix']:,} without the parents' skills), "
        f"{r['seconds']:.0f} s"
    )
    if not r["policies"]:
        return
    print(
        f"policies above η = {r['eta']}: {r['share_above_eta_on_buffers']:.0%} on their state "
        f"buffers, {r['share_above_eta_on_fresh_states']:.0%} on fresh states"
    )


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the pictures of a run."""

    run_dir: tyro.conf.Positional[Path]
    """The run directory."""
    figure: str | None = None
    """Only this one, by name."""
    output: Path | None = None
    """Where to (default: the run directory's figures)."""


def plot(arguments: list[str]) -> None:
    """Draw a run's pictures again: upside plot DIR [--figure NAME] [--output DIR]."""
    from upside import figures
    from upside.run import Run
    from upside.runs import RunDirectory

    options = parse(Plot, "plot", arguments)
    if options.figure is not None and options.figure not in figures.names():
        raise unknown("figure", options.figure, figures.names())
    run = Run.load(options.run_dir)
    _start_jax()
    where = options.output or options.run_dir / "figures"
    with RunDirectory(where).writing():
        where.mkdir(parents=True, exist_ok=True)
        for name in [options.figure] if options.figure else figures.names():
            figures.draw(name, run, where / f"{name}.png")
    print(f"pictures: {where}")


# -------------------------------------------------------------------- lists, bench


@dataclasses.dataclass(frozen=True)
class Methods:
    """What the methods are made of."""

    name: tyro.conf.Positional[str | None] = None
    """A method whose settings are shown beside the paper's UPSIDE."""


def methods_(arguments: list[str]) -> None:
    """List the methods and what fills their slots; with a name, its settings: upside methods [NAME]."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from upside import methods
    from upside.experiments.catalogue import CHOSEN

    name = parse(Methods, "methods", arguments).name
    console = Console(width=None if sys.stdout.isatty() else 120)
    if name is not None:
        one, paper = methods.get(name).settings(), methods.get("upside-paper").settings()
        table = Table("setting", name, "upside-paper")
        for key, value in one.items():
            table.add_row(key, str(value), str(paper.get(key, "-")))
        console.print(table)
        chosen = CHOSEN.get(name, {})
        if chosen:
            options = " ".join(f"{flag(key)} {value:g}" for key, value in chosen.items())
            print(
                f"The tables of docs/baselines.md have it with {options}, as model selection chose."
            )
        return
    for name, entry in methods.METHODS.items():
        print(f"{name:<14} {entry.about}")
    slots = list(methods.get("upside").words())
    table = Table("method", *slots, box=box.SIMPLE)
    for name, entry in methods.METHODS.items():
        words = entry.method.words()
        table.add_row(name, *(words.get(slot, "-") for slot in slots))
    console.print(table)
    print("'upside methods NAME' shows every setting.")


def envs_(arguments: list[str]) -> None:
    """List the environments."""
    from upside import envs

    parse(_Nothing, "envs", arguments)
    for name, about in envs.describe().items():
        print(f"{name:<18} {about}")
    print(
        f"{'gymnasium:ID':<18} any Gymnasium environment with continuous actions, module:ID included"
    )
    print(f"{'PATH.txt':<18} a maze drawn in a text file: # solid, . free, S start")


def _few(names: list[str], most: int = 20) -> str:
    """The names, or the first of them and how many more there are."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def reproduce(arguments: list[str]) -> int:
    """Repeat a table or figure of the paper: upside reproduce [NAME] [--rows ...] [--envs ...] [--seeds ...] ..."""
    from upside.experiments import catalogue
    from upside.experiments import reproduce as reproductions

    if not arguments or arguments[0].startswith("-"):
        if arguments and arguments[0] not in ("-h", "--help"):
            raise UserError(
                f"which? upside reproduce NAME, one of: {', '.join(catalogue.EXPERIMENTS)}"
            )
        for name, entry in catalogue.EXPERIMENTS.items():
            print(f"{name:<23} {entry.about}")
            print(f"{'':<23} {entry.size()}; rows: {_few(list(entry.rows))}")
        if arguments:
            parse(reproductions.Reproduce, "reproduce NAME", arguments)
        return 0
    name = arguments[0]
    catalogue.get(name)
    valued(arguments, "--rows", "--seeds", "--envs")
    options = parse(reproductions.Reproduce, f"reproduce {name}", arguments[1:])
    return reproductions.reproduce(name, options)


def reach(arguments: list[str]) -> None:
    """Fine-tune a run's most promising policy for a goal: upside reach DIR --goal X,Y [--budget N] [--zero-shot]."""
    from upside import goals

    options = parse(goals.Reach, "reach", arguments)
    _start_jax()
    goals.reach(options)


def film(arguments: list[str]) -> None:
    """Film a policy, mazes and bodies alike: upside film DIR --policy 7 [--output FILE.gif]."""
    from upside import film as films

    options = parse(films.Film, "film", arguments)
    _start_jax()
    films.film(options)


def bench(arguments: list[str]) -> None:
    """Measure speed beside Stable-Baselines3 and SBX (pip install 'upside[bench]')."""
    from upside import bench as benches

    benches.main(parse(benches.Bench, "bench", arguments))


@dataclasses.dataclass(frozen=True)
class _Nothing:
    """No options."""


COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "train": train,
    "resume": resume,
    "coverage": coverage,
    "plot": plot,
    "film": film,
    "reach": reach,
    "methods": methods_,
    "envs": envs_,
    "reproduce": reproduce,
    "bench": bench,
}

if __name__ == "__main__":
    sys.exit(main())
