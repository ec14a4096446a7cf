"""Every method, one declaration each: read them side by side to see how they differ.

A method is a `Method` value over the same engine. `upside methods` prints what differs from the
paper's settings.
"""

from __future__ import annotations

import dataclasses

from upside.engine.method import Method
from upside.learners.td3 import TD3
from upside.models.discriminator import Discriminator
from upside.skills.growth import Growth
from upside.types import unknown

UPSIDE = Method()
"""Our default: Alg. 2 with the free-space gate, claims, cheap rounds, freezing and giving up."""

PAPER = Method(
    learner=TD3(tau=0.005, self_imitation=False),
    discriminator=Discriminator(keep_discriminator=False, jitter=0.0),
    growth=Growth(
        margin=0.0,
        k_initial=1000,
        k_pol=100,
        rollouts=1,
        fresh=10,
        reuse=False,
        rehearsal=0,
        critic_warmup=0,
        order="discriminability",
        probes=0,
        claim=False,
        freeze=False,
        patience=0,
        check_consolidated=False,
        relax=1.0,
        reprobes=0,
    ),
)
"""App. B and C as written; of a range, the value that early experiments preferred. docs/method.md lists our readings."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A method by name."""

    method: Method
    about: str


METHODS: dict[str, Entry] = {
    "upside": Entry(UPSIDE, "UPSIDE with the free-space gate and cheap expansions (our default)"),
    "upside-paper": Entry(PAPER, "UPSIDE as App. B and C of the paper describe it"),
}


def get(name: str) -> Method:
    """The method of that name, or an error that names the nearest ones."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name].method
