"""Which node is expanded next, and whether at all: the free-space gate (docs/research.md)."""

from __future__ import annotations

import dataclasses
from typing import Literal

from upside.types import UserError, at_least, at_most


@dataclasses.dataclass(frozen=True)
class Gate:
    """A node is expanded only where its probes have found free space. The paper has no gate."""

    probes: int = 12
    """Episodes that look for free space around a consolidated policy."""
    free_share: float = 0.8
    """A probe is free if this share of its diffusing states is in free space."""
    order: Literal["gain", "discriminability"] = "gain"
    """Next node: most free space per interaction, or highest discriminability (paper)."""
    claim: bool = True
    """Each new policy claims a free probe: its class of the discriminator starts from that probe's states."""
    tries: int = 3
    """How often a free probe may be claimed in vain before it is left alone; once, when the gate is relaxed."""
    relax: float = 0.8
    """When no probe is free, look closer: the gate's distance is multiplied by this; 1: never."""
    least_reach: float = 0.5
    """The gate's distance is not relaxed below this share of the root's diffusing radius."""
    reprobes: int = 1
    """How often nodes are probed again, at the gate's first distance, once no free space is known."""

    def check(self) -> None:
        at_least(self, 1, "probes", "tries")
        at_least(self, 0, "free_share", "relax", "reprobes")
        at_most(self, 1, "free_share", "relax")
        if not self.least_reach > 0:
            raise UserError(f"--least-reach {self.least_reach} is not above 0: try 0.5")
        if self.order not in ("gain", "discriminability"):
            raise UserError(f"--order {self.order} is neither gain nor discriminability")
