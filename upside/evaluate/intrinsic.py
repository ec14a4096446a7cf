"""What the policies of a run earn without a task: the paper's model selection for the baselines (App. C)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from upside.engine import collect
from upside.rewards import Scores

if TYPE_CHECKING:
    from upside.run import Run


def intrinsic_reward(run: Run, episodes: int = 20, seed: int = 0) -> float:
    """Cumulated intrinsic reward of an episode, mean over policies and stochastic roll-outs.

    For policies that start at s_0: a set of them, not a tree.
    """
    method, n = run.method, len(run) - 1
    if n < 1:
        return float("nan")
    walk_key, act_key = jax.random.split(jax.random.key(seed))
    path, length = jnp.zeros(1, int), jnp.asarray(0)
    start, _ = collect.walk(run.env, run.actors, path, length, method.plan.T, walk_key)
    starts = jax.tree.map(lambda leaf: leaf[None], start)
    actors = jax.tree.map(lambda leaf: leaf[1:], run.actors)
    sigma = method.learner.sigma
    got = collect.collect(
        run.env, method.plan, episodes, actors, starts, collect.POLICY, sigma, act_key
    )
    states = method.reward.judged(method.plan, got)
    flat = states.reshape(n, -1, states.shape[-1])
    scores = Scores(
        judge=run.judge,
        classes=run.counts > 0,
        labels=np.arange(1, n + 1),
        log_rho=np.full(n, -np.log(n), np.float32),
        recent=flat,
        recent_counts=np.full(n, flat.shape[1]),
    )
    earned = method.reward.total(method.plan, run.env.space, states, scores)
    return float(jnp.mean(earned))
