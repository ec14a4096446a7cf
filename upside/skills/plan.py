"""How an episode is cut: follow the parents' skills, direct (T steps), diffuse (H steps)."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Plan:
    """Lengths of the two parts of a policy (Sect. 3.1)."""

    T: int = 10
    """Steps of the directed skill (paper: 10 mazes, 50 control)."""
    H: int = 10
    """Steps of the diffusing part (paper: 10 mazes, 50 control)."""
    buffer_episodes: int = 10
    """Diffusing parts in a state buffer, so B = buffer_episodes · H (paper: B = 10H)."""

    @property
    def steps(self) -> int:
        """Steps of an episode from its node onwards."""
        return self.T + self.H
