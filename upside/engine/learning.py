"""The children of a node: how they come to be, practise, and are judged (POLICYLEARNING, App. B)."""

from __future__ import annotations

import jax
import numpy as np

from upside.engine import probing
from upside.engine.collect import POLICY, RANDOM, host_key
from upside.engine.discovery import Discovery, labels
from upside.rewards import Scores
from upside.skills.gate import Gate
from upside.skills.growth import Child, Expansion
from upside.types import Trajectory

# -------------------------------------------------------------------- new policies


def begin(run: Discovery, node: int, claims: list[int]) -> None:
    """Dequeue `node`: a new replay buffer, its probes in it, N_start children (Alg. 2, lines 3-5)."""
    growth, gate = run.method.growth, run.method.gate
    run.counters.expansions += 1
    run.tree[node].expansions += 1
    run.forget()
    if not run.method.judge.keep_discriminator:
        run.new_judge()
    run.arrays.own_counts[:] = 0
    run.go_to(node)
    if gate:
        probing.remember(run, gate, node)
    run.expansion = x = Expansion(node, [], claims)
    for _ in range(min(growth.n_start, len(claims)) if gate else growth.n_start):
        spawn(run, x)


def spawn(run: Discovery, x: Expansion) -> None:
    """One more policy in training: a fresh learner, a fresh class, data to start from."""
    gate = run.method.gate
    slot = x.free_slot(run.method.growth.n_max)
    child = Child(slot, x.waiting.pop(0), not gate.claim) if gate else Child(slot)
    if run.method.practice.k_initial:
        _initial_data(run, x.node)
    ages, label = np.array(run.arrays.ages), run.capacity + slot
    ages[slot] = 0
    learners = run.method.population.renew(
        run.method.learner,
        run.arrays.learners,
        slot,
        _outlook(run),
        run.arrays.judge.code(label),
        run.env.action_size,
        run.rng(),
    )
    judge = run.arrays.judge.renew(label, run.rng())
    run.set(learners=learners, ages=ages, judge=judge)
    run.arrays.own_counts[slot] = 0
    x.children.append(child)
    if child.claim is not None:
        states = run.arrays.probes.features[x.node, child.claim, run.method.plan.T :]
        run.arrays.claims[slot] = states


def _initial_data(run: Discovery, node: int) -> None:
    """K_initial uniformly random transitions into the replay buffer (App. B)."""
    episodes = -(-run.method.practice.k_initial // run.method.plan.T)
    while episodes > 0:
        wants = run.spread(episodes)
        run.remember(run.episodes(node, wants, RANDOM, 0.0), wants)
        episodes -= int(wants.sum())


def _outlook(run: Discovery) -> tuple[np.ndarray, np.ndarray]:
    """Where a new skill sees the world from (its start), and in which unit (how far its data went)."""
    replay, o = run.arrays.replay, run.env.observation_size
    seen = np.asarray(replay.rows)[: int(replay.size), :, -1 - o : -1].reshape(-1, o)
    center = np.asarray(run.starts[1])[0]
    scale = np.sqrt(np.mean((seen - center) ** 2, axis=0))
    return center, np.maximum(scale, 1e-3).astype(np.float32)


# -------------------------------------------------------------------- practice


def train(run: Discovery, x: Expansion) -> None:
    """J times: noisy rollouts of the children in training, then K_pol updates of each."""
    practice = run.method.practice
    children = [c for c in x.children if not c.frozen]
    for _ in range(practice.j):
        wants = _wants(run, children)
        episodes = run.episodes(x.node, wants, POLICY, run.method.learner.sigma)
        run.remember(episodes, wants)
        if not practice.fresh:
            _note(run, children, episodes, wants)
        _learn(run, x, children, practice.k_pol)


def _wants(run: Discovery, children: list[Child]) -> np.ndarray:
    """Training episodes of each slot: as many for each child, or as often as ρ has it."""
    rollouts, most = run.method.practice.rollouts, run.method.plan.buffer_episodes
    wants = np.zeros(run.method.growth.n_max, int)
    slots = [c.slot for c in children]
    if run.method.reward.prior == "uniform":
        wants[slots] = rollouts
    else:
        rho = np.array([c.rho for c in children])
        drawn = run.rng().multinomial(rollouts * len(children), rho / rho.sum())
        wants[slots] = np.minimum(drawn, most)
    return wants


def rehearse(run: Discovery, x: Expansion) -> None:
    """The judge learns what was claimed, new policies what the replay buffer holds already."""
    if run.method.gate is None or not run.method.gate.claim:
        return
    judge(run, x, run.method.judge.k_discr)
    if run.method.practice.rehearsal:
        ages = np.asarray(run.arrays.ages)
        new = [c for c in x.children if not ages[c.slot]]
        _learn(run, x, new, run.method.practice.rehearsal)


def _learn(run: Discovery, x: Expansion, children: list[Child], updates: int) -> None:
    arrays, scores = run.arrays, _scores(run, x)
    # no state is worth anything to a class without states
    seen = np.asarray(scores.classes)[labels(run)]
    learners, ages = run.programs.learn(
        run.cores,
        arrays.learners,
        arrays.ages,
        arrays.replay,
        run.pay(scores),
        x.slots(children, run.method.growth.n_max) & seen,
        np.int32(updates),
        run.key(),
    )
    run.set(learners=learners, ages=ages)


def _scores(run: Discovery, x: Expansion) -> Scores:
    """What the rewards of the children in training are computed from."""
    arrays, n = run.arrays, run.method.growth.n_max
    _place(run, x)
    log_rho = np.zeros(n, np.float32)
    for child in x.children:
        log_rho[child.slot] = np.log(child.rho / len(x.children))
    classes = (weights(run, x) > 0) & (arrays.counts > 0)
    own, counts = arrays.own.copy(), arrays.own_counts.copy()  # edited while they are still read
    return Scores(arrays.judge, classes, labels(run), log_rho, own, counts)


def survey(run: Discovery, x: Expansion) -> set[int]:
    """Buckets that the policies in training pass as they are now, without noise: evaluation, not interactions."""
    actors, passed = jax.tree.map(np.asarray, run.arrays.learners.actor), set()
    for child in x.children:
        path = np.array([child.slot], np.int32)
        key = host_key(run.seed, run.counters.interactions, child.slot)
        _, trace = run.rollouts.walk(run.method.plan.T, actors, path, np.int32(1), key)
        passed |= run.env.space.covered(np.asarray(trace))
    return passed


# -------------------------------------------------------------------- judging


def observe(run: Discovery, x: Expansion, children: list[Child], episodes: int) -> None:
    """Noise-free episodes of `children` into their own state buffers."""
    wants = np.where(x.slots(children, run.method.growth.n_max), episodes, 0)
    if not wants.any():
        return
    got = run.episodes(x.node, wants, POLICY, 0.0)
    if run.method.practice.reuse:
        run.remember(got, wants)
    _note(run, children, got, wants)


def _note(run: Discovery, children: list[Child], got: Trajectory, wants: np.ndarray) -> None:
    """Judged states into the children's own state buffers, newest first."""
    states = np.asarray(run.method.reward.judged(run.method.plan, got))
    own, counts = run.arrays.own, run.arrays.own_counts
    for child in children:
        new = states[child.slot, : wants[child.slot]].reshape(-1, own.shape[-1])
        own[child.slot] = np.concatenate([new, own[child.slot]])[: own.shape[1]]
        counts[child.slot] = min(counts[child.slot] + len(new), own.shape[1])


def judge(run: Discovery, x: Expansion, steps: int) -> None:
    """Fit the judge for `steps` and tell every child its discriminability.

    A child in training is scored on its newest episodes, a frozen one on its whole buffer.
    """
    growth, arrays = run.method.growth, run.arrays
    looked_at = arrays.own.shape[1] if growth.freeze else _newest(run)
    _place(run, x)
    frozen = x.slots([c for c in x.children if c.frozen], growth.n_max)
    scored = np.where(frozen, arrays.own_counts, np.minimum(arrays.own_counts, _newest(run)))
    fitted, d = run.programs.judge(
        arrays.judge,
        arrays.buffers,
        arrays.counts,
        weights(run, x),
        arrays.own[:, :looked_at],
        scored.astype(np.int32),
        labels(run),
        np.int32(steps),
        run.method.judge.jitter * run.radius * run.env.space.units,
        run.key(),
    )
    run.set(judge=fitted)
    values = np.asarray(d)
    for child in x.children:
        child.d = float(values[child.slot, 0])
    if run.method.reward.prior == "learned":
        _learn_prior([c for c in x.children if scored[c.slot]], values[:, 1])


def arrive(run: Discovery, x: Expansion, gate: Gate) -> None:
    """A policy whose newest states are mostly its claim's is there: its class is now fitted on states of its own."""
    for child in x.children:
        if not child.arrived and child.d > gate.arrive:
            child.arrived = True
            counts = run.arrays.own_counts
            counts[child.slot] = min(counts[child.slot], _newest(run))


def _newest(run: Discovery) -> int:
    """Judged states of a child's newest episodes, before which it was another policy.

    Where ρ is learned, of its whole buffer: E[log q] of one final state says little, and exp of it too much.
    """
    plan, practice = run.method.plan, run.method.practice
    if run.method.reward.prior == "learned":
        return plan.buffer_episodes * run.method.reward.count(plan)
    return (practice.fresh or practice.rollouts) * run.method.reward.count(plan)


def _learn_prior(children: list[Child], log_q: np.ndarray, rate: float = 0.1) -> None:
    """VIC: a step towards the ρ ∝ exp E[log q(z | s)] that maximises the bound for these skills.

    What they have of ρ together stays the same: skills without states keep their part of it.
    """
    if not children:
        return
    best = np.exp(log_q[[c.slot for c in children]])
    best *= sum(c.rho for c in children) / best.sum()
    for child, rho in zip(children, best, strict=True):
        child.rho += rate * (float(rho) - child.rho)


def _place(run: Discovery, x: Expansion) -> None:
    """What each child's class is fitted on: its own states, or the probe it has claimed."""
    arrays = run.arrays
    for child in x.children:
        row = run.capacity + child.slot
        count = int(arrays.own_counts[child.slot])
        states = arrays.own[child.slot, :count] if child.arrived else arrays.claims[child.slot]
        arrays.buffers[row, : len(states)] = states
        arrays.counts[row] = len(states)


def weights(run: Discovery, x: Expansion | None) -> np.ndarray:
    """How often each class is drawn: as ρ has it, consolidated policies more often than those in training."""
    weights = np.zeros(len(run.arrays.counts), np.float32)
    weights[: len(run.tree)] = [node.rho for node in run.tree.nodes]
    weights *= run.method.judge.consolidated_weight
    if x is not None:
        weights[[run.capacity + c.slot for c in x.children]] = [c.rho for c in x.children]
    return weights
