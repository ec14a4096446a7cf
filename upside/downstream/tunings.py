"""Ways of fine-tuning by name: as the skills were learned, or as one learns from scratch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from upside.downstream.tune import Tuning
from upside.learners.sac import SAC
from upside.learners.td3 import TD3
from upside.models.curiosity import ICM
from upside.run import Run
from upside.types import unknown


def like(run: Run, tuning: Tuning) -> Tuning:
    """Actions are executed as they were when the skills were learned."""
    skills, learner = run.method.learner, tuning.learner
    if isinstance(skills, TD3) and isinstance(learner, TD3):
        learner = dataclasses.replace(learner, snap=skills.snap)
    return dataclasses.replace(tuning, learner=learner)


def default(run: Run) -> Tuning:
    """Fine-tuning with the kind of learner and the size of networks that the skills have."""
    learner = run.method.learner
    if isinstance(learner, SAC):
        return _sac(run)
    return Tuning(learner=dataclasses.replace(Tuning().learner, hidden=learner.hidden))


def _sac(run: Run) -> Tuning:
    """SAC explores with its policy's own randomness, which is new at every step."""
    return Tuning(learner=SAC(hidden=run.method.learner.hidden), hold=1)


TUNINGS: dict[str, Callable[[Run], Tuning]] = {
    "default": lambda run: default(run),
    "td3": lambda run: dataclasses.replace(default(run), eager=True),
    "sac": lambda run: dataclasses.replace(_sac(run), eager=True),
    "icm": lambda run: dataclasses.replace(default(run), eager=True, bonus=ICM()),
}
"""Ways of learning, by name: what the skills were learned with, and three from scratch."""


def named(run: Run, name: str) -> Tuning:
    """The way of that name, or an error with those there are."""
    if name not in TUNINGS:
        raise unknown("way of fine-tuning", name, TUNINGS)
    return TUNINGS[name](run)
