"""How much of the environment a tree covers, and whether its policies are as distinct as they claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from upside.engine import rollouts
from upside.evaluate.information import lower_bound
from upside.types import usable_cores

if TYPE_CHECKING:
    from upside.run import Rollouts, Run


def buckets(run: Run, rollouts: Rollouts) -> tuple[set[int], set[int]]:
    """Buckets passed by the deterministic skills alone, and with the diffusing parts (Table 2)."""
    directed = np.concatenate(rollouts.directed)
    skills = run.env.space.covered(directed)
    return skills, skills | run.env.space.covered(rollouts.diffusing)


def with_noise(run: Run, episodes: int = 10, seed: int = 0) -> set[int]:
    """Buckets that the policies pass as they practised: with the noise of exploration on their skills, and with
    their diffusing parts (Fig. 3: "the same amount of injected noise")."""
    plan, (paths, lengths) = run.method.plan, run.paths(range(len(run)))
    horizon = plan.T * int(lengths.max()) + plan.H
    shape = (len(run), episodes, horizon, run.env.action_size)
    noise = np.random.default_rng(seed).standard_normal(shape, np.float32)
    noise *= np.float32(run.method.learner.sigma)
    roll, key = rollouts.of(run.env, len(usable_cores())), jax.random.key(seed)
    _, features, _ = roll.explore(plan.T, horizon, episodes, run.actors, paths, lengths, noise, key)
    passed = [own[:, : plan.T * n + plan.H + 1] for own, n in zip(features, lengths, strict=True)]
    return set().union(*(run.env.space.covered(np.asarray(own)) for own in passed))


def judged(run: Run, rollouts: Rollouts) -> list[np.ndarray]:
    """Fresh states of 𝒥 (Eq. 2), policy by policy: those the discriminator is meant for.

    Without a diffusing part they are states of the directed skill, which is noise-free here.
    """
    if run.method.plan.H:
        return [part.reshape(-1, part.shape[-1]) for part in rollouts.diffusing]
    count = run.method.reward.count(run.method.plan)
    return [path[1:][-count:] for path in rollouts.directed]


def report(run: Run, episodes: int | None = None, seed: int = 0) -> dict[str, Any]:
    """The numbers of `upside coverage`; evaluation rollouts are not interactions of the run.

    Discriminability is given twice: on the state buffers the discriminator was fitted on, as the
    paper measures it, and on the judged states of `episodes` fresh episodes a policy (many,
    because the states of one episode are alike). Buckets covered with the diffusing parts are
    those of ten episodes, the same that pictures show.
    """
    if episodes is None:  # simulators on the host take their time
        episodes = int(getattr(run.env, "episodes", 100))
    shown = run.rollouts(seed=seed)
    rollouts = shown if episodes == len(shown.diffusing[0]) else run.rollouts(episodes, seed)
    skills, everywhere = buckets(run, shown)
    reachable = run.env.reachable()
    n, eta = len(run), run.method.growth.eta
    known = 1 + np.flatnonzero(run.counts[1:])  # the root is no policy
    fresh = judged(run, rollouts)
    on_buffers = np.array([run.q(run.buffers[z, : run.counts[z]])[:, z].mean() for z in known])
    log_q = [np.log(np.maximum(run.q(fresh[z])[:, z], 1e-12)) for z in known]
    on_fresh = np.array([np.exp(part).mean() for part in log_q])
    rho = np.array([node.rho for node in run.tree.nodes])[known]
    total = int(np.sum(reachable)) if reachable is not None else None
    visited = run.history[-1].get("visited") if run.history else None  # older runs do not say
    covered = len(skills)
    if run.method.growth.max_depth == 0 and visited is not None:  # no policies: what chance reached
        covered = visited
    return {
        "env": run.config.env,
        "method": run.config.method,
        "seed": run.config.seed,
        "buckets": covered,
        "buckets_with_diffusing": max(covered, len(everywhere)),
        "visited": visited,
        "reachable": total,
        "share_of_reachable": covered / total if total else None,
        "policies": n - 1,
        "depth": max(node.depth for node in run.tree.nodes),
        "interactions": run.summary["interactions"],
        "interactions_without_prefix": run.summary["interactions_without_prefix"],
        "seconds": run.summary["seconds"],
        "core_seconds": run.summary.get("core_seconds"),  # older runs do not say
        "eta": eta,
        "discriminability_on_buffers": _mean(on_buffers),
        "share_above_eta_on_buffers": _mean(on_buffers > eta),
        "discriminability_on_fresh_states": _mean(on_fresh),
        "share_above_eta_on_fresh_states": _mean(on_fresh > eta),
        "mutual_information_bits": lower_bound(np.stack(log_q), rho / rho.sum())
        if known.size
        else 0.0,
        "ended": run.summary["ended"],
    }


def _mean(values: np.ndarray) -> float:
    """0 of nothing."""
    return float(np.mean(values)) if values.size else 0.0
