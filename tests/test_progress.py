"""What is seen while it works, in a terminal."""

import io
from typing import Any

from rich.console import Console

from upside import envs, methods, runs, session
from upside.engine.discovery import Discovery
from upside.experiments import catalogue, reproduce
from upside.experiments.tasks import perform_here
from upside.progress import Progress


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def said(console: Console, shown: object) -> str:
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_a_run_shows_its_numbers_and_the_children_in_training(tmp_path):
    env, console, shown = envs.make("wall-free-maze"), terminal(), []
    method = methods.get("upside", None, env).replace({"k_pol": 10, "probes": 6})
    config = runs.configure("upside", method, env, 0, 3000)
    with Progress(console) as live:

        def look(run: Discovery, entry: dict[str, Any]) -> None:
            live(run, entry)
            shown.append(said(console, live.live.renderable))

        run = session.train(config, listeners=(look,))
    assert any("expanding node 0 (depth 0), round 1" in text for text in shown)
    assert any("d = " in text and "training" in text for text in shown)
    assert f"{run.summary['interactions']:,} of 3,000" in shown[-1]


def test_a_reproduction_shows_what_is_done_and_how_far_the_others_are(tmp_path, monkeypatch):
    only = {"rows": ["random"], "seeds": [0, 1], "envs": ["u-maze"]}
    every = catalogue.tasks("coverage-mazes", tmp_path, interactions=2000, **only)
    for task in every:
        task.start()
    display = reproduce._display(every, every)
    assert "0 of 2 done" in said(terminal(), display._table())
    assert perform_here(every[0].path) == ""
    monkeypatch.setattr(type(every[1]), "progress", lambda task: 0.25)
    text = said(terminal(), display._table())
    assert "1 of 2 done" in text
    assert f"{every[1].path.name}  25%" in text
