"""What the figures show of a run: computed once, however many of them are drawn."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from upside.evaluate.coverage import buckets
from upside.figures import colors

if TYPE_CHECKING:
    from upside.run import Rollouts, Run


@dataclasses.dataclass
class Scene:
    """A run and its rollouts, in the coordinates of the discriminator's features."""

    run: Run

    @property
    def dimension(self) -> int:
        """Number of features."""
        return len(self.run.env.space.low)

    @functools.cached_property
    def rollouts(self) -> Rollouts:
        """The same rollouts as those of `upside coverage`, so that the numbers agree."""
        return self.run.rollouts()

    @functools.cached_property
    def start(self) -> Float[np.ndarray, " feat"]:
        """Features of s_0."""
        return self.skills[0, 0]

    @functools.cached_property
    def skills(self) -> Float[np.ndarray, "policies steps feat"]:
        """The last skill of each policy, from its parent's end to its own; the root stays at s_0."""
        steps = self.run.method.plan.T + 1
        ends = [path[-steps:] for path in self.rollouts.directed]
        ends[0] = np.repeat(ends[0], steps, axis=0)
        return np.stack(ends)

    @functools.cached_property
    def colors(self) -> Float[np.ndarray, "policies 3"]:
        """sRGB of each policy. They depend on where skills end, which has no noise."""
        space = self.run.env.space
        diagonal = float(np.linalg.norm(np.subtract(space.high, space.low)))
        return colors.of_policies(self.skills[:, -1], diagonal)

    def place(self, policy: int) -> Float[np.ndarray, " feat"]:
        """Where a policy ends up: the middle of its diffusing part, or the end of its skill."""
        states = self.rollouts.diffusing[policy].reshape(-1, self.dimension)
        return states.mean(axis=0) if len(states) else self.skills[policy, -1]

    @functools.cached_property
    def covered(self) -> tuple[set[int], set[int]]:
        """Buckets covered by skills alone, and with diffusing parts."""
        return buckets(self.run, self.rollouts)

    @functools.cached_property
    def reachable(self) -> np.ndarray | None:
        """Which buckets can be reached; None if the environment does not know."""
        return self.run.env.reachable()

    @property
    def name(self) -> str:
        """What was run: the first line of every title."""
        config = self.run.config
        return f"{config.method} on {Path(config.env).name}, seed {config.seed}"

    @property
    def size(self) -> str:
        """What came out in numbers: the second line."""
        interactions = thousands(self.run.summary["interactions"])
        return f"{policies(len(self.run) - 1)}, {interactions} interactions"


def policies(number: int) -> str:
    """'1 policy', '2 policies': the root is not counted, as in Table 2."""
    return f"{number} {'policy' if number == 1 else 'policies'}"


def thousands(number: int) -> str:
    """A number of interactions as a reader says it: 120k, 3.5M."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"
