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
    """A run and its rollouts, in the coordinates of the discriminator's features.

    Where there is but one, it is drawn over the steps of an episode.
    """

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
    def start(self) -> Float[np.ndarray, " 2"]:
        """s_0, as it is drawn."""
        return self.line(0)[0]

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

    @property
    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """Corners of the plane that is drawn."""
        space = self.run.env.space
        if self.dimension == 1:
            steps = float(self.run.method.plan.H_max)
            return np.array([0.0, *space.low]), np.array([steps, *space.high])
        return np.array(space.low), np.array(space.high)

    @property
    def axes(self) -> list[str]:
        """What the plane's axes are called."""
        env = self.run.env
        numbered = [f"feature {i + 1}" for i in range(self.dimension)]
        names = list(getattr(env, "feature_names", numbered))
        return ["steps of the episode", *names] if self.dimension == 1 else names

    def _drawn(self, features: np.ndarray, first: int) -> Float[np.ndarray, "*steps 2"]:
        """Features of consecutive steps in the plane."""
        if self.dimension != 1:
            return features
        steps = np.broadcast_to(first + np.arange(features.shape[-2])[:, None], features.shape)
        return np.concatenate([steps, features], axis=-1)

    def line(self, policy: int) -> Float[np.ndarray, "steps 2"]:
        """The last skill of a policy, as it is drawn."""
        T = self.run.method.plan.T
        return self._drawn(self.skills[policy], T * max(self.run.tree[policy].depth - 1, 0))

    def dots(self, policy: int) -> Float[np.ndarray, "states 2"]:
        """The diffusing states of a policy, as they are drawn."""
        states = self.rollouts.diffusing[policy]
        first = self.run.method.plan.prefix(self.run.tree[policy].depth) + 1
        return self._drawn(states, first).reshape(-1, 2)

    def place(self, policy: int) -> Float[np.ndarray, " 2"]:
        """Where a policy ends up: the middle of its diffusing part, or the end of its skill."""
        states = self.dots(policy)
        return states.mean(axis=0) if len(states) else self.line(policy)[-1]

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
