"""What a round of POLICYLEARNING consists of (App. B): rollouts, updates, and the data they use."""

from __future__ import annotations

import dataclasses

from upside.types import at_least


@dataclasses.dataclass(frozen=True)
class Practice:
    """How skills in training practise between two looks at their discriminability."""

    j: int = 1
    """J, rounds of rollouts and policy updates per discriminator fit (paper: 1 or 10)."""
    k_pol: int = 100
    """K_pol, updates of a skill per rollout (paper: 10 or 100)."""
    rollouts: int = 1
    """Noisy training episodes of each child per round (paper: 1)."""
    fresh: int = 0
    """Noise-free episodes of each child per round into its state buffer (paper: 10); 0: its training episodes serve."""
    reuse: bool = True
    """Noise-free episodes enter the replay buffer too (paper: off)."""
    replay_size: int = 1_000_000
    """Transitions the replay buffer holds at most (paper: 1e6)."""
    k_initial: int = 0
    """K_initial, random transitions for each new policy (paper: 1000; here probes take their place)."""
    rehearsal: int = 300
    """Updates of a new policy on its parent's probes, before its first rollout (paper: none)."""
    critic_warmup: int = 100
    """Critic updates before a new actor moves (paper: none stated)."""

    def check(self) -> None:
        at_least(self, 1, "j", "k_pol", "rollouts", "replay_size")
        at_least(self, 0, "fresh", "k_initial", "rehearsal", "critic_warmup")
