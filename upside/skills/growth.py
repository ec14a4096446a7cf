"""How the set of policies grows: Alg. 2's node adaptation, with every ingredient a switch.

Pure bookkeeping on small numbers: the engine asks what to do next and does it. The values of
`upside/methods.py` say which switches App. B has on; what the others add is in docs/research.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np


@dataclasses.dataclass(frozen=True)
class Growth:
    """When policies are added, removed, consolidated, and which node is expanded next."""

    eta: float = 0.8
    """η, the discriminability every consolidated policy must have (paper: 0.8)."""
    margin: float = 0.03
    """What a policy must have beyond η when it is consolidated, to hold η on states never seen (paper: 0)."""
    n_start: int = 4
    """N_start, children an expansion begins with (paper: 4 in the wall-free maze)."""
    n_max: int = 8
    """N_max, children an expansion may reach (paper: 8 in the wall-free maze)."""
    k_steps: int = 50_000
    """K_steps, interactions of one call of POLICYLEARNING, parents' skills not counted (paper: 5e4 mazes, 1e5 control)."""
    k_initial: int = 0
    """K_initial, random transitions for each new policy (paper: 1000; here probes take their place)."""
    j: int = 1
    """J, rounds of rollouts and policy updates per discriminator fit (paper: 1 or 10)."""
    k_pol: int = 100
    """K_pol, TD3 updates of a skill per rollout (paper: 10 or 100)."""
    rollouts: int = 1
    """Noisy training episodes of each child per round (paper: 1)."""
    fresh: int = 0
    """Noise-free episodes of each child per round into its state buffer (paper: 10); 0: its training episodes serve."""
    reuse: bool = True
    """Noise-free episodes enter the replay buffer too (paper: off)."""
    rehearsal: int = 300
    """TD3 updates of a new policy on its parent's probes, before its first rollout (paper: none)."""
    critic_warmup: int = 100
    """Critic updates before a new actor moves (paper: none stated)."""
    order: Literal["gain", "discriminability"] = "gain"
    """Next node: most free space per interaction, or highest discriminability (paper)."""
    probes: int = 16
    """Episodes that look for free space around a consolidated policy; 0 switches the gate off (paper: 0)."""
    free_share: float = 0.8
    """A probe is free if this share of its diffusing states is in free space."""
    claim: bool = True
    """Each new policy claims a free probe: its class of the discriminator starts from that probe's states (paper: off)."""
    freeze: bool = True
    """Train only the children that do not satisfy η yet (paper: off)."""
    patience: int = 8
    """Rounds after which a policy whose discriminability does not rise is given up; 0: never (paper: 0)."""
    check_consolidated: bool = True
    """Drop a new policy that pushes an old one below η (paper: off)."""
    tries: int = 3
    """How often a free probe may be claimed in vain before it is left alone."""
    relax: float = 0.8
    """When no probe is free, look closer: the gate's distance is multiplied by this; 1: never (paper: no gate)."""
    least_reach: float = 0.5
    """The gate's distance is not relaxed below this share of the root's diffusing radius."""
    reprobes: int = 1
    """How often nodes are probed again once no free space is known."""

    @property
    def target(self) -> float:
        """The discriminability that a policy needs to be consolidated."""
        return self.eta + self.margin


@dataclasses.dataclass
class Child:
    """A policy in training, in one of the N_max slots."""

    slot: int
    claim: int | None = None
    """The probe of its parent that it claimed."""
    arrived: bool = True
    """Its class is fitted on its own states, no longer on the claimed probe's."""
    frozen: bool = False
    """It satisfied η; its skill is not trained further."""
    d: float = 0.0
    """Discriminability on its own state buffer."""
    best: float = 0.0
    """The highest `d` so far."""
    stalled: int = 0
    """Rounds since `d` was last higher than ever before."""


@dataclasses.dataclass
class Expansion:
    """One node being expanded: everything of Alg. 2's inner loops that is not an array."""

    node: int
    children: list[Child]
    waiting: list[int]
    """Free probes not claimed yet; one is claimed for each policy added."""
    direction: Literal["start", "add", "remove"] = "start"
    kept: list[Child] = dataclasses.field(default_factory=list)
    """The last set that met the constraint, to return to when an addition fails."""
    own_steps: int = 0
    """Interactions of this call of POLICYLEARNING, to be compared with K_steps."""
    rounds: int = 0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Expansion:
        data = dict(data)
        for key in ("children", "kept"):
            data[key] = [Child(**c) for c in data[key]]
        return cls(**data)

    def slots(self, children: list[Child], n_max: int) -> np.ndarray:
        """`children` as a mask over slots."""
        mask = np.zeros(n_max, bool)
        mask[[c.slot for c in children]] = True
        return mask

    def free_slot(self, n_max: int) -> int:
        """A slot for a new child, by turns from the two halves: with two devices, each trains half."""
        taken = {c.slot for c in self.children} | {c.slot for c in self.kept}
        half = (n_max + 1) // 2
        free = [s for s in range(n_max) if s not in taken]
        return min(free, key=lambda s: (s % half, s))


def hopeless(growth: Growth, child: Child) -> bool:
    """Whether a policy in training is given up before the expansion's budget is spent."""
    return 0 < growth.patience <= child.stalled


Move = Literal["continue", "add", "remove", "accept", "restore"]


def decide(growth: Growth, x: Expansion) -> Move:
    """Alg. 2, lines 5-17: what follows from the children's discriminabilities.

    Progress is noted in the children; whoever carries out the move changes the rest.
    """
    met = all(c.d > growth.target and c.arrived for c in x.children)
    if met:
        room = len(x.children) < growth.n_max and (not growth.probes or x.waiting)
        return "add" if x.direction != "remove" and room else "accept"
    for child in x.children:
        below = child.d <= growth.target or not child.arrived
        child.stalled = child.stalled + 1 if below and child.d <= child.best + 0.01 else 0
        child.best = max(child.best, child.d)
    if x.own_steps < growth.k_steps and not any(hopeless(growth, c) for c in x.children):
        return "continue"
    return "restore" if x.direction == "add" else "remove"
