"""Which node is expanded next, and whether at all: the free-space gate (docs/research.md)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from upside.types import UserError, at_least, at_most, flag


@dataclasses.dataclass(frozen=True)
class Gate:
    """A node is expanded only where its probes have found free space. The paper has no gate."""

    probes: int = 12
    """Episodes that look for free space around a consolidated policy."""
    probe: Literal["held", "rhythm"] = "held"
    """What a probe does: hold an action, which moves a point, or swing all of them in a rhythm, which moves legs."""
    spread: bool = True
    """Probes leave a node in all directions: their actions are a low-discrepancy sequence, not drawn independently."""
    reach: float = 2.0
    """The gate's distance: how far from consolidated states a free one is, in diffusing radii of the root."""
    free_share: float = 0.8
    """A probe is free if this share of its diffusing states is in free space."""
    order: Literal["gain", "discriminability"] = "gain"
    """Next node: most free space per interaction, or highest discriminability (paper)."""
    claim: bool = True
    """Each new policy claims a free probe: its class of the discriminator starts from that probe's states."""
    arrive: float = 0.5
    """Discriminability on its claim at which a policy's class is fitted on its own states instead; 1: when confirmed."""
    tries: int = 3
    """How often new ground may be claimed in vain before it is left alone; gaps between policies: once."""
    relax: float = 0.8
    """When no probe is free, look closer: the gate's distance is multiplied by this; 1: never."""
    least_reach: float = 0.5
    """The gate's distance is not relaxed below this, in diffusing radii of the root."""
    give_up: int = 40
    """Expansions in a row that may keep no child once the gate is relaxed, before new probes are made, or the run ends."""
    glean: bool = True
    """Training episodes that ended on new ground become probes, in the place of the least useful."""
    looks: int = 3
    """Looks in vain for new ground before the gate is relaxed again; n looks make all probes anew, each one n-th of them."""
    reprobes: int = 3
    """How often that is done before a run ends without new ground."""

    words: ClassVar[str] = "free space"

    def check(self) -> None:
        at_least(self, 1, "probes", "tries", "give_up", "looks")
        at_least(self, 0, "free_share", "relax", "reprobes", "arrive")
        at_most(self, 1, "free_share", "relax")
        for name, fit in (("reach", 2), ("least_reach", 0.5)):
            if not getattr(self, name) > 0:
                raise UserError(f"{flag(name)} {getattr(self, name)} is not above 0: try {fit}")
        if self.probe not in ("held", "rhythm"):
            raise UserError(f"--probe {self.probe} is neither held nor rhythm")
        if self.order not in ("gain", "discriminability"):
            raise UserError(f"--order {self.order} is neither gain nor discriminability")
