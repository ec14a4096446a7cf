"""Which policy of a run is worth fine-tuning: the one that collects most (Sect. 4).

Every policy is rolled out N_explo times: its chain of directed skills, then its diffusing part, which
goes on until H_max. The paper leaves open for how long it diffuses here; a place that is unknown
is found more often the longer. Policies without a diffusing part (DIAYN's) would do the same ten times
over: their actions have the noise with which they were learned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from upside.downstream.episodes import Episodes, discounted, judged
from upside.downstream.tasks import Task
from upside.engine import rollouts
from upside.engine.rollouts import Seen
from upside.run import Run
from upside.types import UserError, usable_cores


@dataclasses.dataclass(frozen=True)
class Choice:
    """The policy that collected most."""

    policy: int
    returns: np.ndarray
    """Mean discounted return of every candidate."""
    episodes: Episodes
    """Those of the one chosen."""
    interactions: int
    """Of all policies together: episodes end where the task is over."""

    @property
    def found(self) -> bool:
        """Whether any policy was ever paid, or charged."""
        return bool(self.returns.any())

    def numbers(self) -> dict[str, Any]:
        """What spoke for it: among how many policies, in how many of its episodes it was paid, and what."""
        paid = (np.asarray(self.episodes.reward) != 0).any(axis=-1)
        return {
            "policies": len(self.returns),
            "episodes": paid.size,
            "paid": int(paid.sum()),
            "reward": float(self.returns.max()),
        }


def candidates(run: Run) -> Sequence[int]:
    """The policies to choose from. The root is one by its diffusing part; where policies have none (DIAYN's), it would be
    a random walk that nobody has learned."""
    return range(0 if run.method.plan.H or len(run) == 1 else 1, len(run))


def explore(
    run: Run,
    episodes: int,
    horizon: int,
    seed: int,
    policies: Sequence[int] | None = None,
    cores: int = 0,
) -> Seen:
    """`episodes` of every candidate (or of some policies); the same for every task."""
    paths, lengths = run.paths(candidates(run) if policies is None else policies)
    roll, key = rollouts.of(run.env, cores or len(usable_cores())), jax.random.key(seed)
    plan, shape = run.method.plan, (len(paths), episodes, horizon, run.env.action_size)
    noise = np.zeros(shape, np.float32)
    if not plan.H:
        drawn = np.random.default_rng(seed).standard_normal(shape, np.float32)
        noise = np.float32(run.method.learner.sigma) * drawn
    return roll.explore(plan.T, horizon, episodes, run.actors, paths, lengths, noise, key)


def choose(
    task: Task,
    gamma: float,
    seen: Seen,
    policies: Sequence[int],
    rng: np.random.Generator,
) -> Choice:
    """Of these policies the one with the largest mean discounted return; where none was paid, any of them."""
    every = _judge(task, *seen)
    returns = np.asarray(discounted(every, gamma)).mean(axis=1)
    if not np.isfinite(returns).all():
        raise UserError("the reward is not a finite number at every state that was visited")
    best = np.flatnonzero(returns == returns.max())
    row = int(rng.choice(best))
    own = jax.tree.map(lambda leaf: leaf[row], every)
    return Choice(policies[row], returns, own, int(np.asarray(every.length).sum()))


def as_it_is(run: Run, task: Task, policy: int, episodes: int, horizon: int, seed: int) -> Episodes:
    """Episodes of one policy."""
    every = _judge(task, *explore(run, episodes, horizon, seed, [policy]))
    return jax.tree.map(lambda leaf: leaf[0], every)


@jax.jit
def _judge(task: Any, obs: Array, features: Array, action: Array) -> Episodes:
    return jax.vmap(jax.vmap(lambda *each: judged(task, *each)))(obs, features, action)
