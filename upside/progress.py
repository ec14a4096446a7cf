"""The live display of a run in a terminal."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn
from rich.progress import Progress as Bars
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from upside.downstream.reach import Finetuning
from upside.engine.discovery import Discovery


class Progress:
    """A session's listener that draws; use as a context manager."""

    def __init__(self, console: Console):
        self.live = Live(console=console, refresh_per_second=8, transient=True)
        self.started, self.first = time.perf_counter(), 0

    def __enter__(self) -> Progress:
        self.live.start()
        self.live.update(Text("compiling the first programs …", style="dim"))
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def __call__(self, run: Discovery, entry: dict[str, Any]) -> None:
        self.first = self.first or entry["interactions"]
        elapsed = time.perf_counter() - self.started
        rate = (entry["interactions"] - self.first) / elapsed
        left = (run.budget - entry["interactions"]) / rate if rate > 0 else float("inf")
        self.live.update(Group(self._numbers(run, entry, rate, left), *self._children(run)))

    def _numbers(self, run: Discovery, entry: dict[str, Any], rate: float, left: float) -> Table:
        grid = Table.grid(padding=(0, 2))
        reachable = run.env.reachable()
        total = f" of {int(reachable.sum())}" if reachable is not None else ""
        grid.add_row("policies", str(entry["policies"]))
        grid.add_row("buckets", f"{entry['buckets']}{total}")
        grid.add_row("interactions", f"{entry['interactions']:,} of {run.budget:,}")
        grid.add_row("", ProgressBar(total=run.budget, completed=entry["interactions"], width=40))
        grid.add_row("rate", f"{rate:,.0f} interactions/s")
        remaining = "unknown" if left == float("inf") else f"at most {_clock(left)}"
        grid.add_row("time", f"{_clock(entry['seconds'])}, left: {remaining}")
        return grid

    def _children(self, run: Discovery) -> list[Text | Table]:
        """The node being expanded and its children's discriminabilities, with η as the mark to reach."""
        x, growth = run.expansion, run.method.growth
        if x is None:
            return []
        depth = run.tree[x.node].depth
        title = Text(
            f"\nexpanding node {x.node} (depth {depth}), round {x.rounds}, η = {growth.eta}"
        )
        table = Table.grid(padding=(0, 2))
        for child in sorted(x.children, key=lambda c: c.slot):
            bar = ProgressBar(total=1.0, completed=child.d, width=30)
            state = "satisfied" if growth.satisfied(child) else "training"
            table.add_row(f"  child {child.slot}", bar, f"d = {child.d:.2f}", state)
        return [title, table]


class Reaching:
    """The same for goals that are being reached; nothing where nobody looks."""

    def __init__(self, console: Console):
        columns = (
            "{task.description}",
            BarColumn(),
            "{task.percentage:.0f} %",
            "{task.fields[best]}",
        )
        self.live = Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.live.add_task("compiling the first round", total=1.0, best="")

    def __enter__(self) -> Reaching:
        self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def __call__(self, tuned: Finetuning) -> None:
        best = tuned.each(lambda share: share.best_return)
        said = f"best return {best.max():.3f}" if best.size == 1 else f"{(best > 0).sum()} reached"
        said = said if np.isfinite(best).any() else ""
        self.live.update(self.task, description="fine-tuning", completed=tuned.progress, best=said)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"
