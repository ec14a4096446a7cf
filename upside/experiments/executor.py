"""Who computes the runs: processes on this machine, or a Ray cluster.

Both take tasks and yield each with what went wrong (nothing, if all is well). Scheduling, retries
after a lost machine and placement are Ray's.
"""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from upside.experiments.tasks import ENVIRONMENT, Work, perform, perform_here
from upside.types import UserError

ANSWERS = 5.0  # seconds in which a Ray cluster's head must answer


def local(tasks: Sequence[Work], workers: int) -> Iterator[tuple[Work, str]]:
    """A process for each run, `workers` at a time: one that is killed takes no other with it.

    Whoever ends the whole ends them too: each saves what it has.
    """
    under_way: set[subprocess.Popen] = set()
    with ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(perform, task.path, under_way): task for task in tasks}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            for process in list(under_way):
                process.terminate()
            raise


def answers(address: str) -> None:
    """Refuse an address that is none, or where nobody listens: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(
            f"--ray {address} is no address: try 10.0.0.1:6379, or auto to start Ray here"
        )
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--ray {address}: nobody answers there ({error})") from None


def ray(tasks: Sequence[Work], address: str) -> Iterator[tuple[Work, str]]:
    """Tasks of a Ray cluster, one core each; `auto` starts one here if there is none.

    The run directories must be on storage that all machines share. A task whose machine is lost is
    given to another one, where it continues from its run directory.
    """
    import ray as cluster

    options: dict[str, Any] = {} if address == "auto" else {"address": address}
    try:
        cluster.init(log_to_driver=False, logging_level=logging.WARNING, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"--ray {address}: {str(error).splitlines()[0]}") from None
    # In the worker itself, a fresh one for each run: when its machine is lost, so is the run, and
    # no orphan writes on beside the one that continues it.
    remote = cluster.remote(
        num_cpus=1, max_retries=-1, max_calls=1, runtime_env={"env_vars": ENVIRONMENT}
    )(perform_here)
    try:
        waiting = {remote.remote(task.path.absolute()): task for task in tasks}
        while waiting:
            (done,), _ = cluster.wait(list(waiting), num_returns=1)
            task = waiting.pop(done)
            try:
                yield task, cluster.get(done)
            except cluster.exceptions.RayError as error:
                yield task, str(error).splitlines()[-1]
    finally:
        cluster.shutdown()
