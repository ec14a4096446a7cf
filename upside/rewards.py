"""What a skill is paid: Eq. 2 as two choices, which states judge it (𝒥) and how their score is paid.

Scores are q_φ(z | s) in [0, 1] (footnote of Sect. 3.4), not log q - log ρ.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from upside.skills.plan import Plan
from upside.types import Trajectory


@dataclasses.dataclass(frozen=True)
class DiffusingReward:
    """UPSIDE: 𝒥 = {T+1, …, T+H}. The mean score of the diffusing states is paid at the skill's end."""

    def count(self, plan: Plan) -> int:
        """|𝒥|."""
        return plan.H

    def judged(self, plan: Plan, episodes: Trajectory) -> Float[Array, "*n J feat"]:
        """The states of 𝒥."""
        return episodes.features[..., plan.T :, :]

    def pay(self, plan: Plan, scores: Float[Array, "*n J"]) -> Float[Array, "*n T"]:
        """The reward of each directed transition."""
        end = jnp.arange(plan.T) == plan.T - 1
        return jnp.where(end, jnp.mean(scores, axis=-1)[..., None], 0.0)
