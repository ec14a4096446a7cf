"""How the set of policies grows: Alg. 2's node adaptation, or a number fixed in advance.

Pure bookkeeping on small numbers: the engine asks what to do next and does it. The values of
`upside/methods.py` say which switches App. B has on; what the others add is in docs/research.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import numpy as np

from upside.types import UserError, at_least

Move = Literal["continue", "add", "remove", "accept", "restore"]


@dataclasses.dataclass(frozen=True)
class Growth:
    """Alg. 2: policies are added while all are η-discriminable, removed while they are not."""

    eta: float = 0.8
    """η, the discriminability every consolidated policy must have (paper: 0.8)."""
    margin: float = 0.03
    """What a policy must have beyond η when it is consolidated, to hold η on states never seen (paper: 0)."""
    n_start: int = 4
    """N_start, children an expansion begins with (paper: 4 in the wall-free maze)."""
    n_max: int = 8
    """N_max, children an expansion may reach (paper: 8 in the wall-free maze)."""
    k_steps: int = 50_000
    """K_steps, interactions to learn in, parents' skills not counted (paper: 5e4 mazes, 1e5 control)."""
    k_steps_of: Literal["call", "expansion"] = "call"
    """What K_steps is the limit of: one call of POLICYLEARNING, or all of an expansion together (paper: expansion)."""
    max_depth: int | None = None
    """Skills that may follow one another; 1: a flat set, None: no limit but H_max (paper: none)."""
    freeze: bool = True
    """Train only the children that do not satisfy η yet (paper: off)."""
    patience: int = 8
    """Rounds after which a policy whose discriminability does not rise is given up; 0: never (paper: 0)."""
    smooth: float = 0.3
    """Weight of the newest discriminability in the running mean whose rise patience waits for (paper: no patience)."""
    check_consolidated: bool = True
    """Drop a new policy that pushes an old one below η (paper: off)."""
    check_blur: float = 0.5
    """Noise on the states of that check, in diffusing radii of the root: as if never seen (paper: no check)."""
    harm: float = 0.05
    """How much an old one must lose by the new ones to be pushed: near η it falls below it by chance (paper: no check)."""
    doubt: float = 0.05
    """How far below its target d may be before it is fitted on a whole buffer; twice that on part of it (paper: 0)."""

    @property
    def words(self) -> str:
        """For the table of methods."""
        if self.max_depth == 0:
            return "none"
        kind = "tree" if self.max_depth is None else "set"
        return f"{kind}, N {self.n_start}-{self.n_max}"

    @property
    def target(self) -> float:
        """The discriminability that a policy needs to be consolidated."""
        return self.eta + self.margin

    def satisfied(self, child: Child) -> bool:
        """Whether a policy in training meets the constraint, on a whole buffer of states of its own."""
        return child.d > self.target and child.arrived and (child.frozen or not self.freeze)

    keeps = satisfied
    """Whether a policy becomes a node when its expansion ends."""
    to_the_end: ClassVar[bool] = False
    """Whether policies are in training until the run ends."""

    def hopeless(self, child: Child) -> bool:
        """Whether a policy in training is given up before the expansion's budget is spent."""
        return 0 < self.patience <= child.stalled

    def salvaged(self, child: Child, filled: bool) -> bool:
        """Whether a policy is kept when the budget ends in the middle of its expansion."""
        return child.frozen and filled

    def decide(self, x: Expansion, more: bool) -> Move:
        """Alg. 2, lines 5-17: what follows from the children's discriminabilities.

        `more` says whether there is anything left for another policy to go to. Progress is noted
        in the children; whoever carries out the move changes the rest.
        """
        if all(map(self.satisfied, x.children)):
            room = len(x.children) < self.n_max and more
            return "add" if x.direction != "remove" and room else "accept"
        for child in x.children:
            below = not self.satisfied(child)
            child.trend += self.smooth * (child.d - child.trend)
            child.stalled = child.stalled + 1 if below and child.trend <= child.best + 0.01 else 0
            child.best = max(child.best, child.trend)
        if x.own_steps < self.k_steps and not any(map(self.hopeless, x.children)):
            return "continue"
        return "restore" if x.direction == "add" else "remove"

    def check(self) -> None:
        if not 0.0 < self.eta < 1.0:
            raise UserError(f"--eta {self.eta} is outside (0, 1): try 0.8, the paper's value")
        at_least(self, 0, "margin", "patience", "check_blur", "harm", "doubt")
        if not 0 < self.smooth <= 1:
            raise UserError(f"--smooth {self.smooth} is outside (0, 1]: try 0.3")
        if self.max_depth is not None:
            at_least(self, 0, "max_depth")
        at_least(self, 1, "n_start", "k_steps")
        if self.k_steps_of not in ("call", "expansion"):
            raise UserError(f"--k-steps-of {self.k_steps_of} is neither call nor expansion")
        if self.target >= 1.0:
            raise UserError(
                f"--eta {self.eta} and --margin {self.margin} add up to 1 or more: lower one"
            )
        if self.n_start > self.n_max:
            raise UserError(
                f"--n-start {self.n_start} exceeds --n-max {self.n_max}: lower the one or raise the other"
            )


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A number of policies given in advance, trained side by side until the budget is spent."""

    num_skills: int = 10
    """N_Z, the number of policies (paper: 10, 20 or 50)."""

    eta: ClassVar[float] = 0.8
    """Only to be compared with: nothing depends on it."""
    target: ClassVar[float] = -1.0
    max_depth: ClassVar[int] = 1
    freeze: ClassVar[bool] = False
    check_consolidated: ClassVar[bool] = False
    check_blur: ClassVar[float] = 0.0
    harm: ClassVar[float] = 0.0
    doubt: ClassVar[float] = 0.0
    k_steps_of: ClassVar[str] = "call"
    to_the_end: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """For the table of methods."""
        return f"set, N {self.num_skills}"

    @property
    def n_start(self) -> int:
        return self.num_skills

    @property
    def n_max(self) -> int:
        return self.num_skills

    @property
    def k_steps(self) -> int:
        """No limit but the run's budget."""
        return 10**12

    def hopeless(self, child: Child) -> bool:
        return False

    def satisfied(self, child: Child) -> bool:
        return child.d > self.eta

    def keeps(self, child: Child) -> bool:
        """All are kept."""
        return True

    def salvaged(self, child: Child, filled: bool) -> bool:
        return True

    def decide(self, x: Expansion, more: bool) -> Move:
        return "continue"

    def check(self) -> None:
        at_least(self, 1, "num_skills")


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
    trend: float = 0.0
    """A running mean of `d`: one episode says little."""
    best: float = 0.0
    """The highest `trend` so far."""
    stalled: int = 0
    """Rounds since `trend` was last higher than ever before."""
    rho: float = 1.0
    """ρ(z), how often it is sampled, as a multiple of 1/N."""


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
    """Interactions to be compared with K_steps."""
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
        """A slot for a new child."""
        taken = {c.slot for c in self.children} | {c.slot for c in self.kept}
        return min(s for s in range(n_max) if s not in taken)
