"""What became of a task: how good a policy was before and after, and the chain of skills that is kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from upside.downstream.episodes import Episodes, discounted
from upside.nets import Actor
from upside.run import Run
from upside.types import UserError

EVALUATION = 10
"""Stochastic episodes that measure a policy at the end; not interactions of learning."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A policy under a task."""

    reward: float
    """Mean discounted return: γ^τ for a goal reached with the τ-th step, 0 if it is not."""
    success: float
    """Share of episodes that ended by the task."""
    steps: float | None
    """Mean steps of those that did; None if none did."""
    total: float
    """Mean return without discount."""

    @classmethod
    def of(cls, episodes: Episodes, gamma: float) -> Measured:
        over = np.asarray(episodes.over)
        steps = float(np.asarray(episodes.length)[over].mean()) if over.any() else None
        total = float(np.asarray(episodes.reward).sum(-1).mean())
        return cls(float(discounted(episodes, gamma).mean()), float(over.mean()), steps, total)


@dataclasses.dataclass(frozen=True)
class Skills:
    """A chain of skills: observation and step of the episode to an action in [-1, 1]."""

    actors: Actor
    """Stacked: one acts for T steps, then the next; the last one until the end, or until the chain diffuses."""
    T: int
    action_size: int
    diffuses: bool = False
    """A policy as it was found: after its last skill it takes uniformly random actions, for which it needs a key."""

    @classmethod
    def of(cls, run: Run, policy: int) -> Skills:
        """A policy as it was found."""
        path, plan = np.array(run.tree.path(policy), int), run.method.plan
        chain = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[path]), run.actors)
        return cls(chain, plan.T, run.env.action_size, diffuses=plan.H > 0)

    def __len__(self) -> int:
        return len(self.actors.center)

    def __call__(
        self, obs: Float[Array | np.ndarray, " obs"], step: int, key: PRNGKeyArray | None = None
    ) -> Float[Array, " act"]:
        stage = step // self.T
        if self.diffuses and stage >= len(self):
            if key is None:
                raise UserError(
                    f"from step {len(self) * self.T} on this policy diffuses: give a key that is new at "
                    "every step, skills(obs, step, key)"
                )
            return jax.random.uniform(key, (self.action_size,), minval=-1.0, maxval=1.0)
        stage = min(stage, len(self) - 1)
        return jax.tree.map(lambda leaf: leaf[stage], self.actors)(obs)


@dataclasses.dataclass(frozen=True, repr=False)
class Reached:
    """What became of one task."""

    policy: int
    """The policy that was chosen."""
    depth: int
    """How many skills follow one another in it."""
    found: bool
    """Whether any policy was paid while one was chosen; if not, the choice was blind."""
    before: Measured
    """The policy as it was: its chain of skills, then its diffusing part until H_max, in fresh episodes."""
    finetuned: Measured
    """Noise-free, with the actors of its best noise-free episode."""
    stochastic: Measured
    """The same with the learner's exploration noise, in EVALUATION episodes."""
    after: Measured
    """The better of the two: as it was, or fine-tuned."""
    tuned: bool
    """Whether fine-tuning made it better; if not, `skills` are those of the policy as it was."""
    selected: dict[str, Any]
    """What spoke for it in selection (`Choice.numbers`); empty where nothing was tried."""
    selection: int
    """Interactions to choose."""
    tuning: int
    """Interactions to fine-tune."""
    path_before: np.ndarray
    """Features of the best of EVALUATION fresh episodes of the policy as it was, until it was over."""
    path_after: np.ndarray
    skills: Skills
    """The chain that is kept."""

    def __repr__(self) -> str:
        before, after = self.before.reward, self.after.reward
        kept = "fine-tuned" if self.tuned else "as it was"
        blind = "" if self.found else ", chosen blindly: no policy was paid"
        return (
            f"<Reached by policy {self.policy} of depth {self.depth}{blind}: mean return {before:.3f} before, "
            f"{after:.3f} after, kept {kept}, {self.selection + self.tuning:,} interactions>"
        )

    def numbers(self) -> dict[str, Any]:
        """All but paths and skills, ready for JSON."""
        names = ("policy", "depth", "found", "tuned", "selected", "selection", "tuning")
        measured = ("before", "finetuned", "stochastic", "after")
        said = {name: getattr(self, name) for name in names}
        return said | {name: dataclasses.asdict(getattr(self, name)) for name in measured}
