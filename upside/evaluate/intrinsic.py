"""What the policies of a run earn without a task: the paper's model selection for the baselines (App. C)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from upside.engine import rollouts
from upside.engine.collect import POLICY
from upside.rewards import Scores
from upside.types import UserError

if TYPE_CHECKING:
    from upside.run import Run


def intrinsic_reward(run: Run, episodes: int = 20, seed: int = 0) -> float:
    """Cumulated intrinsic reward of an episode, mean over stochastic roll-outs of policies drawn by ρ.

    For policies that start at s_0: a set of them, not a tree.
    """
    method, n = run.method, len(run) - 1
    if any(node.depth != 1 for node in run.tree.nodes[1:]) or not run.counts[1:].any():
        raise UserError("intrinsic reward is that of a set of trained policies, not of a tree")
    reset_key, act_key = jax.random.split(jax.random.key(seed))
    roll, plan = rollouts.of(run.env), method.plan
    nowhere = np.zeros(1, np.int32)
    starts, _ = roll.walk(plan.T, run.actors, nowhere, np.int32(0), reset_key)
    actors = jax.tree.map(lambda leaf: jnp.asarray(leaf)[1:], run.actors)
    mode, sigma = np.int32(POLICY), np.float32(method.learner.sigma)
    wants = np.full(n, episodes)
    got = roll.collect(plan, episodes, actors, starts, mode, sigma, wants, plan.steps, act_key)
    states = method.reward.judged(plan, got)
    rho = np.array([node.rho for node in run.tree.nodes[1:]])
    rho /= rho.sum()
    flat = states.reshape(n, -1, states.shape[-1])
    scores = Scores(
        judge=run.judge,
        classes=jnp.asarray(run.counts > 0),
        labels=np.arange(1, n + 1),
        log_rho=np.log(rho).astype(np.float32),
        recent=flat,
        recent_counts=np.full(n, flat.shape[1]),
    )
    earned = method.reward.total(method.plan, run.env.space, states, scores)
    return float(rho @ np.mean(earned, axis=1))
