"""How an episode is cut: follow the parents' skills, direct (T steps), diffuse (H steps)."""

from __future__ import annotations

import dataclasses

from upside.types import UserError, at_least


@dataclasses.dataclass(frozen=True)
class Plan:
    """Lengths of the two parts of a policy (Sect. 3.1). Without a diffusing part, H = 0."""

    T: int = 10
    """Steps of the directed skill (paper: 10 mazes, 50 control)."""
    H: int = 7
    """Steps of the diffusing part (paper: 10 mazes, 50 control)."""
    H_max: int = 200
    """Longest episode: a node whose children would exceed it is not expanded (paper: 200 mazes, 250 control)."""
    buffer_episodes: int = 10
    """Episodes in a state buffer, so B = buffer_episodes · H (paper: B = 10H)."""

    @property
    def words(self) -> str:
        """For the table of methods."""
        return f"T {self.T}, H {self.H}" if self.H else f"T {self.T}"

    @property
    def steps(self) -> int:
        """Steps of an episode from its node onwards."""
        return self.T + self.H

    def prefix(self, depth: int) -> int:
        """Steps along parents' skills before an episode at a node of that depth begins."""
        return depth * self.T

    def fits(self, depth: int) -> bool:
        """Whether children of a node of that depth stay within H_max."""
        return self.prefix(depth) + self.steps <= self.H_max

    def check(self) -> None:
        at_least(self, 1, "T")
        at_least(self, 0, "H")
        at_least(self, 4, "buffer_episodes")
        if not self.fits(0):
            raise UserError(
                f"--H-max {self.H_max} is less than --T {self.T} and --H {self.H} together: raise it"
            )
