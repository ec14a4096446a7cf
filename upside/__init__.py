"""`upside`: unsupervised skill discovery. Direct, then diffuse.

import upside

run = upside.discover("upside", env="bottleneck-maze", seed=0, max_interactions=100_000)
run.coverage(), run.tree, run.rollout(3), run.plot("policies", "policies.png")
run.save("my-run")
run = upside.load("my-run")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from upside.types import UserError
from upside.version import __version__

if TYPE_CHECKING:
    from upside.run import Run

__all__ = ["UserError", "__version__", "discover", "load"]


def discover(
    method: str = "upside",
    env: str = "bottleneck-maze",
    seed: int = 0,
    max_interactions: int = 1_000_000,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    cores: int = 0,
    **settings: Any,
) -> Run:
    """Discover skills; `settings` are the method's hyper-parameters by name (see `upside methods`).

    `cores` share the skills in training, 0: all there are; the result is the same.
    """
    from upside import methods, runs, session

    value = methods.get(method, settings.pop("learner", None)).replace(settings)
    config = runs.configure(method, value, env, seed, max_interactions)
    return session.train(config, run_dir, overwrite, cores=cores)


def load(run_dir: str | Path) -> Run:
    """A run from its directory."""
    from upside.run import Run

    return Run.load(run_dir)
