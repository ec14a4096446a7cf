"""How much of the environment a tree covers, and whether its policies are as distinct as they claim."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from upside.run import Rollouts, Run


def buckets(run: Run, rollouts: Rollouts) -> tuple[set[int], set[int]]:
    """Buckets passed by the deterministic skills alone, and with the diffusing parts (Table 2)."""
    import jax
    import jax.numpy as jnp

    feature = jax.vmap(run.env.features)
    directed = np.concatenate(
        [np.asarray(feature(jnp.asarray(path))) for path in rollouts.directed]
    )
    skills = set(run.env.space.bucket(directed).tolist()) - {-1}
    everywhere = run.env.space.bucket(rollouts.diffusing.reshape(-1, directed.shape[-1]))
    return skills, skills | (set(everywhere.tolist()) - {-1})


def report(run: Run, episodes: int = 100, seed: int = 0) -> dict[str, Any]:
    """The numbers of `upside coverage`; evaluation rollouts are not interactions of the run.

    Discriminability is given twice: on the state buffers the discriminator was fitted on, as the
    paper measures it, and on the diffusing states of `episodes` fresh episodes a policy (many,
    because the states of one episode are alike). Buckets covered with the diffusing parts are
    those of the first B / H episodes, as many as a state buffer holds.
    """
    rollouts = run.rollouts(episodes, seed)
    few = dataclasses.replace(
        rollouts, diffusing=rollouts.diffusing[:, : run.method.plan.buffer_episodes]
    )
    skills, everywhere = buckets(run, few)
    reachable = run.env.reachable()
    n, eta = len(run), run.method.growth.eta
    own = np.arange(n)
    stored = run.q(run.buffers)[own, :, own].mean(-1)
    fresh = run.q(rollouts.diffusing.reshape(n, -1, rollouts.diffusing.shape[-1]))
    fresh = fresh[own, :, own].mean(-1)
    total = int(np.sum(reachable)) if reachable is not None else None
    return {
        "env": run.config.env,
        "method": run.config.method,
        "seed": run.config.seed,
        "buckets": len(skills),
        "buckets_with_diffusing": len(everywhere),
        "reachable": total,
        "share_of_reachable": len(skills) / total if total else None,
        "policies": n - 1,
        "depth": max(node.depth for node in run.tree.nodes),
        "interactions": run.summary["interactions"],
        "interactions_without_prefix": run.summary["interactions_without_prefix"],
        "seconds": run.summary["seconds"],
        "eta": eta,
        "discriminability_on_buffers": float(stored.mean()),
        "share_above_eta_on_buffers": float((stored > eta).mean()),
        "discriminability_on_fresh_states": float(fresh.mean()),
        "share_above_eta_on_fresh_states": float((fresh > eta).mean()),
        "mutual_information_bits": _information(fresh_log_q(run, rollouts), n),
        "ended": run.summary["ended"],
    }


def fresh_log_q(run: Run, rollouts: Rollouts) -> np.ndarray:
    """log q(z | s) of each policy's fresh diffusing states under its own class."""
    n, own = len(run), np.arange(len(run))
    states = rollouts.diffusing.reshape(n, -1, rollouts.diffusing.shape[-1])
    return np.log(np.maximum(run.q(states)[own, :, own], 1e-12))


def _information(log_q: np.ndarray, n: int) -> float:
    from upside.evaluate.information import lower_bound

    return lower_bound(log_q, np.full(n, 1 / n))
