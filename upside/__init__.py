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

from upside.types import UserError, as_arguments
from upside.version import __version__

if TYPE_CHECKING:
    from upside.downstream.reached import Skills
    from upside.run import Run

__all__ = [
    "UserError",
    "__version__",
    "discover",
    "environment",
    "load",
    "load_skills",
    "resume",
]


@as_arguments()
def discover(
    method: str = "upside",
    env: Any = "bottleneck-maze",
    seed: int = 0,
    max_interactions: int = 1_000_000,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    cores: int = 0,
    **settings: Any,
) -> Run:
    """Discover skills; `settings` are the method's hyper-parameters by name (see `upside methods`).

    `env` is a name, or an environment itself: what `upside.environment` makes of one of yours, or one
    written in JAX (`upside.types.Environment`). `cores` share the skills in training, 0: all there
    are; the result is the same.
    """
    from upside import envs, methods, runs, session
    from upside.types import number

    seed = number("seed", seed, whole=True)
    max_interactions = number("max_interactions", max_interactions, whole=True)
    world = envs.given(env)
    value = methods.get(method, settings.pop("learner", None), world).replace(settings)
    called = env if isinstance(env, str) else None
    config = runs.configure(method, value, world, seed, max_interactions, called)
    return session.train(config, run_dir, overwrite, cores=cores, env=world)


@as_arguments()
def environment(
    make: Any,
    name: str = "environment",
    features: Any = None,
    box: Any = None,
    buckets: Any = None,
) -> Any:
    """An environment of your own: `make` is a function that returns a `gymnasium.Env`, or "gymnasium:ID".

    `features` is what the discriminator sees ("obs:0,1", "info:x_position", or a function of observation and
    info), `box` its low and high for each feature, `buckets` how finely coverage is counted.
    """
    from upside import envs
    from upside.envs.host import HostEnv
    from upside.types import UserError, numbers

    if not (features is None or isinstance(features, str) or callable(features)):
        raise UserError(f"features {features!r}: try 'obs:0,1', 'info:x' or a function of both")
    sides = None if box is None else numbers("box", box)
    cut = None if buckets is None else numbers("buckets", buckets, True)
    if isinstance(make, str):
        if callable(features):
            raise UserError(
                f"features {features!r}: of an id they are said in words, such as 'my_module:my_function'"
            )
        return envs.make(make, features, sides, cut)
    return HostEnv(make, name, features, sides, cut)


def load(run_dir: str | Path, env: Any = None) -> Run:
    """A run from its directory; `env` only if it was given in Python."""
    from upside.run import Run

    return Run.load(run_dir, env)


def load_skills(reach_dir: str | Path) -> Skills:
    """The chain that `upside reach` kept: a function of observation and step of the episode.

    Where the policy as it was is no worse, it ends with its diffusing part, which needs a random key as well.
    """
    from upside.downstream.request import load

    return load(Path(reach_dir))


@as_arguments()
def resume(run_dir: str | Path, env: Any = None, cores: int = 0) -> Run:
    """Continue a run that was interrupted; `env` only if it was given in Python."""
    from upside.runs import RunDirectory
    from upside.session import Session

    return Session.resume(RunDirectory.open(run_dir), cores=cores, env=env).run()
