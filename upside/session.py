"""Discovery with its side effects: run directory, metrics, checkpoints, progress.

A run may be killed at any moment. The state is saved between rounds, so the run that resumes does
again, bit for bit, what was done after the last checkpoint; metrics written since are cut off.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from upside.engine import learning
from upside.engine.discovery import Discovery
from upside.engine.train import rounds
from upside.models.classes import narrow
from upside.run import Run
from upside.runs import GIVEN, Config, Pace, RunDirectory, unflatten
from upside.skills.growth import Expansion
from upside.types import UserError, World, usable_cores
from upside.version import commit

ERROR = "error.txt"  # what somebody else's code said when the run failed
SURVEYS = 40
"""How often in a run the buckets of policies that are in training to its end are counted."""
Listener = Callable[[Discovery, dict[str, Any]], None]


class Session:
    """One run, from its configuration to its end."""

    def __init__(
        self,
        config: Config,
        directory: RunDirectory | None = None,
        checkpoint_seconds: float = 5.0,
        cores: int = 0,
        env: World | None = None,
    ):
        """`cores` share the skills in training, 0: all there are; the result is the same.

        `env` is what the configuration names, where only its maker can make it.
        """
        if cores < 0:
            raise UserError(f"--cores {cores} is negative: give 0 for all there are")
        self.config, self.directory = config, directory
        self.checkpoint_seconds = checkpoint_seconds
        self._over = False  # before this sitting: it took no more time
        self.started, self.worked = time.perf_counter(), time.process_time()
        self.before = 0.0
        self.worked_before: float | None = 0.0
        self.ended, self.commit = "running", commit()
        self.history: list[dict[str, Any]] = []
        self.listeners: list[Listener] = []
        env, method = config.environment(env), config.build()
        cores = cores or (len(usable_cores()) if jax.default_backend() == "cpu" else 1)
        self.discovery = Discovery(env, method, config.seed, config.max_interactions, cores)
        self._found = directory.checkpoints() if directory else []
        """The checkpoints there were before one of them was read."""
        self._metrics: Any = None
        self._events: Any = None

    @classmethod
    def resume(
        cls,
        directory: RunDirectory,
        checkpoint_seconds: float = 5.0,
        cores: int = 0,
        env: World | None = None,
    ) -> Session:
        """Continue from the newest whole checkpoint, or from the start if there is none."""
        config = directory.config()
        session = cls(config, directory, checkpoint_seconds, cores, env)
        saved = directory.load_checkpoint()
        if saved is None and (directory.path / "tree.json").is_file() and not directory.began():
            raise UserError(
                f"{directory.path} is a saved copy without checkpoints: it cannot be resumed"
            )
        lines = 0
        if saved is not None:
            arrays, state = saved
            session.discovery = Discovery.restored(
                session.discovery, state["discovery"], lambda template: unflatten(template, arrays)
            )
            session.before, session.ended = state["seconds"], state["ended"]
            session.worked_before = state.get("core_seconds")  # older runs do not know
            session._over = session.ended != "running"
            if session._over:
                session.commit = state.get("commit")
            lines = state["lines"]
        session.history = directory.load_metrics()[:lines]
        return session

    @property
    def seconds(self) -> float:
        """Wall time spent on this run, compilation and earlier sittings included."""
        if self._over:
            return self.before
        return self.before + time.perf_counter() - self.started

    @property
    def core_seconds(self) -> float | None:
        """The same in time that cores have worked: what else the machine did meanwhile counts little."""
        if self.worked_before is None or self._over:
            return self.worked_before
        return round(self.worked_before + time.process_time() - self.worked, 3)

    def run(self) -> Run:
        """Discover until the end; returns what was found."""
        if self.directory is None:
            return self._run()
        with (
            self.directory.alone()
        ):  # only now may anything be cut off: another process may still be writing
            self.directory.save_metrics(self.history)
            (self.directory.path / ERROR).unlink(missing_ok=True)
            return self._run()

    def _run(self) -> Run:
        pace = Pace(self.checkpoint_seconds)
        try:
            for event in self._events_of_run():
                entry = self._entry(event)
                self._log(entry)
                for listen in self.listeners:
                    listen(self.discovery, entry)
                pace(self.checkpoint)
        except Interrupted:
            self.checkpoint()
            raise
        except UserError as error:
            raise self._failed(error) from error.__cause__
        finally:
            self._close()
        return self.checkpoint()

    def _failed(self, error: UserError) -> UserError:
        """What went wrong in the middle of a run, and how to go on; the whole of somebody else's error is kept."""
        if self.directory is None:
            return error
        said, path = str(error), self.directory.path
        if error.__cause__ is not None:
            with contextlib.suppress(UserError):  # the disk may be what failed
                self.directory.keep(ERROR, "".join(traceback.format_exception(error.__cause__)))
                said += f" (all of it is in {path / ERROR})"
        again = f"'upside resume {path}'"
        if GIVEN in (self.config.simulated or {}):
            again = f"upside.resume('{path}', env=...)"
        return UserError(f"{said}; once that is mended, {again} goes on")

    def _events_of_run(self) -> Iterator[str]:
        if self.ended != "running":
            return
        for event in rounds(self.discovery):
            if event in ("budget spent", "nothing left to expand"):
                self.ended = event
            yield event

    def _entry(self, event: str) -> dict[str, Any]:
        """One line of metrics."""
        run = self.discovery
        x = run.expansion
        covered = len(run.buckets)
        if x and run.method.growth.to_the_end:
            covered = self._surveyed(x)
        return {
            "event": event,
            "interactions": run.counters.interactions,
            "interactions_without_prefix": run.counters.interactions_without_prefix,
            "seconds": round(self.seconds, 3),
            "policies": len(run.tree) - 1,
            "buckets": covered,
            "visited": len(run.visited),
            "node": x.node if x else None,
            "discriminability": [round(c.d, 4) for c in x.children] if x else [],
            "direction": x.direction if x else None,
        }

    def _surveyed(self, x: Expansion) -> int:
        """Buckets of policies in training, counted anew every now and then."""
        last, spent = self.history[-1], self.discovery.counters.interactions
        mark = self.config.max_interactions / SURVEYS
        if spent // mark == last["interactions"] // mark:
            return last["buckets"]
        return len(learning.survey(self.discovery, x))

    def _log(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        if self.directory is None:
            return
        from tensorboardX import SummaryWriter

        step = entry["interactions"]
        with self.directory.writing():
            if self._metrics is None:
                self._metrics = (self.directory.path / "metrics.jsonl").open("a")
                events = str(self.directory.path / "events")
                self._events = SummaryWriter(events, purge_step=step, write_to_disk=True)
            self._metrics.write(json.dumps(entry) + "\n")
            self._metrics.flush()
            for name in ("policies", "buckets", "visited", "seconds"):
                self._events.add_scalar(name, entry[name], step)
            if entry["discriminability"]:
                self._events.add_scalar("active", len(entry["discriminability"]), step)
                mean = float(np.mean(entry["discriminability"]))
                self._events.add_scalar("discriminability", mean, step)

    def _close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._events.close()

    def checkpoint(self) -> Run:
        """Save the state to resume from, and the tree to look at; returns the latter."""
        result = self.result()
        if self.directory is None:
            return result
        state = {
            "discovery": self.discovery.state(),
            **{
                name: result.summary[name]
                for name in ("seconds", "core_seconds", "ended", "commit")
            },
            "lines": len(self.history),
        }
        arrays = jax.tree.map(np.asarray, self.discovery.arrays)
        self.directory.save_checkpoint(arrays, state)
        tree = {"nodes": result.tree.to_json(), "summary": result.summary}
        self.directory.save_tree(tree, result.arrays())
        return result

    def result(self) -> Run:
        """What has been found so far."""
        run = self.discovery
        n = len(run.tree)
        counters = run.counters
        summary = {
            "interactions": counters.interactions,
            "interactions_without_prefix": counters.interactions_without_prefix,
            "rounds": counters.rounds,
            "expansions": counters.expansions,
            "seconds": round(self.seconds, 3),
            "core_seconds": self.core_seconds,
            "ended": self.ended,
            "commit": self.commit,
        }
        return Run(
            config=self.config,
            env=run.env,
            method=run.method,
            tree=run.tree,
            actors=jax.tree.map(lambda leaf: leaf[:n], run.arrays.bank),
            buffers=run.arrays.buffers[:n],
            counts=run.arrays.counts[:n],
            judge=narrow(run.arrays.judge, n),
            summary=summary,
            history=self.history,
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what to do next."""


class Interruptible:
    """Ctrl-C, or SIGTERM, ends a run between two rounds, which saves it; a second one at once.

    An exception in the middle of a round may be raised inside a callback of JAX, which discards it.
    """

    def __init__(self, path: Path):
        self.path, self.asked, self.before = path, set[int](), dict[int, Any]()

    def __enter__(self) -> Interruptible:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _: object) -> None:
        # Of each kind: a terminal's Ctrl-C reaches a reproduction's runs, and then it ends them too.
        if number in self.asked:
            raise KeyboardInterrupt(f"continue with 'upside resume {self.path}'")
        self.asked.add(number)
        with contextlib.suppress(OSError):  # nobody may be listening any more
            # not print: it may be in the middle of another one
            os.write(2, b"\nupside: ending after this round; Ctrl-C again ends at once\n")

    def __call__(self, *_: object) -> None:
        if self.asked:
            raise Interrupted(f"continue with 'upside resume {self.path}'")


def train(
    config: Config,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    listeners: tuple[Listener, ...] = (),
    cores: int = 0,
    env: World | None = None,
) -> Run:
    """Discover, in a new run directory if one is given."""
    # First the session: it refuses what cannot run, and then nothing was touched.
    session = Session(config, cores=cores, env=env)
    if run_dir is not None:
        session.directory = RunDirectory.create(run_dir, config, overwrite)
    session.listeners.extend(listeners)
    return session.run()
