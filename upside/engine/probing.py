"""The root, and looking for free space around a node (`skills/freespace.py` says what that is)."""

from __future__ import annotations

import jax
import numpy as np

from upside.engine.collect import LOOSE_PROBE, LOOSE_RHYTHM, PROBE, RANDOM, RHYTHM
from upside.engine.discovery import Discovery, labels
from upside.skills import freespace
from upside.skills.gate import Gate

MODES = {
    ("held", True): PROBE,
    ("held", False): LOOSE_PROBE,
    ("rhythm", True): RHYTHM,
    ("rhythm", False): LOOSE_RHYTHM,
}
ROOT_WALKS = 80  # at most, from which the gate's unit of distance is measured: it decides much and costs little


def plant(run: Discovery) -> None:
    """The root: a state buffer from the diffusing part around s_0, which also sets the scale."""
    run.go_to(0)
    if run.method.plan.H:
        _diffuse_around_root(run)
    judge = run.method.judge
    prepared = judge.prepare(run.arrays.judge, run.env, run.radius, labels(run), run.rng())
    run.set(judge=prepared)
    if run.method.gate:
        probe(run, run.method.gate, 0, np.arange(run.method.gate.probes))


def _diffuse_around_root(run: Discovery) -> None:
    plan, n_max = run.method.plan, run.method.growth.n_max
    walks = min(ROOT_WALKS, n_max * plan.buffer_episodes) if run.method.gate else 0
    walks = max(walks, plan.buffer_episodes)
    run.spend(walks, 0, plan.H)
    episodes = run.collect(plan.buffer_episodes, run.spread(walks), plan.H, RANDOM, 0.0)
    # A diffusing part is H uniformly random steps: the first H of a random episode.
    around = np.asarray(episodes.features[..., : plan.H, :]).reshape(
        -1, plan.H, len(run.env.space.low)
    )
    first = around[: plan.buffer_episodes].reshape(-1, around.shape[-1])
    run.arrays.buffers[0], run.arrays.counts[0] = first, len(first)
    seen = around[:walks].reshape(-1, around.shape[-1])
    run.radius = freespace.radius(seen / run.env.space.units)


def wander(run: Discovery) -> None:
    """The root diffuses on, several episodes at once: all there is to do where nothing may grow."""
    plan = run.method.plan
    left = (run.budget - run.counters.interactions) // plan.H
    episodes = max(1, min(left, run.method.growth.n_max * plan.buffer_episodes))
    run.go_to(0)
    run.spend(episodes, 0, plan.H)
    run.collect(plan.buffer_episodes, run.spread(episodes), plan.H, RANDOM, 0.0)
    run.counters.rounds += 1


def probe(run: Discovery, gate: Gate, node: int, slots: np.ndarray) -> None:
    """Look for free space around `node`, where `go_to` left us; kept for its expansion."""
    mode = MODES[gate.probe, gate.spread]
    while slots.size:
        wants = run.spread(slots.size)
        got = run.episodes(node, wants, mode, 0.0)
        taken, now = np.arange(got.action.shape[1]) < wants[:, None], slots[: wants.sum()]
        for store, new in zip(run.arrays.probes, got, strict=True):
            store[node, now] = np.asarray(new)[taken]
        run.tree[node].forget(now.tolist())
        slots = slots[now.size :]


def spent(run: Discovery, gate: Gate, node: int) -> np.ndarray:
    """The probes of `node`, those first that may make room: of no use any more, or near what is taken."""
    gaps = run.clearances[node].mean(-1)
    return np.argsort(np.where(_left(run, gate, node), gaps, 0.0), kind="stable")


def measure(run: Discovery) -> None:
    """How far is every probe's diffusing part from what is consolidated?"""
    states = _diffusing(run)[: len(run.tree)]
    run.clearances = freespace.clearance(states, _taken(run))


def _diffusing(run: Discovery) -> np.ndarray:
    """The diffusing states of every node's probes, measured alike along all features."""
    return np.asarray(run.arrays.probes.features)[:, :, run.method.plan.T :] / run.env.space.units


def _taken(run: Discovery) -> np.ndarray:
    """All states of consolidated policies, in the same way."""
    buffers = run.arrays.buffers[: len(run.tree)]
    return buffers.reshape(-1, buffers.shape[-1]) / run.env.space.units


def glean(run: Discovery, gate: Gate, node: int) -> None:
    """Training episodes from `node` that ended on new ground become probes, in the place of the least useful.

    They were paid for already. New ground is far from consolidated policies, and from the node's own
    probes: what those have claimed in vain is not claimed again under another number.
    """
    T, replay, probes = run.method.plan.T, run.arrays.replay, run.arrays.probes
    judged = np.asarray(replay.judged)[: int(replay.size), -run.method.plan.H :]
    states = judged / run.env.space.units
    known = _diffusing(run)[node].reshape(-1, states.shape[-1])
    taken, distance = np.concatenate([_taken(run), known]), gate.reach * run.radius
    far = np.flatnonzero(freespace.clearance(states[:, -1], taken) > distance)
    if not far.size:
        return
    gaps = freespace.clearance(states[far], taken)
    found = freespace.mutually_free(states[far], gaps, distance, gate.free_share, gate.probes)
    measure(run)
    o, a = run.env.observation_size, run.env.action_size
    for slot, episode in zip(spent(run, gate, node), far[found], strict=False):
        row = np.asarray(replay.rows[episode])
        stored = len(row)  # its directed steps, or all of them
        probes.obs[node, slot, : stored + 1] = np.concatenate([row[:, :o], row[-1:, o + a : -1]])
        probes.action[node, slot, :stored] = row[:, o : o + a]
        probes.features[node, slot, T:] = judged[episode]
        run.tree[node].forget([int(slot)])


def claims(run: Discovery, gate: Gate, node: int) -> list[int]:
    """Free probes of `node` that are free of one another, without those tried too often in vain.

    What is free at the gate's first distance is new ground, worth several tries; what is free only
    since it was relaxed is a gap between policies, worth one.
    """
    states = _diffusing(run)[node]
    gaps = np.where(_left(run, gate, node)[:, None], run.clearances[node], 0.0)
    distance, most = run.reach * run.radius, run.method.growth.n_max
    return freespace.mutually_free(states, gaps, distance, gate.free_share, most)


def _left(run: Discovery, gate: Gate, node: int) -> np.ndarray:
    """Which probes of `node` may still be claimed."""
    new_ground = freespace.free(run.clearances[node], gate.reach * run.radius, gate.free_share)
    return _tries(run, gate, node) < np.where(new_ground, gate.tries, 1)


def gain(run: Discovery, gate: Gate, node: int) -> float:
    """Space beyond the gate's distance that `node`'s claims would take, per interaction.

    Half for every time one was in vain. More than two radii beyond it make no difference.
    """
    free = claims(run, gate, node)
    space = run.clearances[node, free].mean(-1) - run.reach * run.radius
    beyond = np.clip(space, 0.01 * run.radius, 2 * run.radius)
    worth = float(np.sum(beyond * 0.5 ** _tries(run, gate, node)[free]))
    return worth / (run.prefix(node) + run.method.plan.steps)


def _tries(run: Discovery, gate: Gate, node: int) -> np.ndarray:
    """How often each probe of `node` was claimed in vain."""
    return np.bincount(run.tree[node].tried, minlength=gate.probes)


def remember(run: Discovery, gate: Gate, node: int) -> None:
    """A node's probes are the first data of its expansion."""
    probes = jax.tree.map(lambda leaf: leaf[node], run.arrays.probes)
    n, each = run.method.growth.n_max, run.method.plan.buffer_episodes
    for first in range(0, gate.probes, n * each):
        wants = run.spread(gate.probes - first)

        def pad(leaf: np.ndarray, first: int = first, wants: np.ndarray = wants) -> np.ndarray:
            out = np.zeros((n, each, *leaf.shape[1:]), leaf.dtype)
            out[np.arange(each) < wants[:, None]] = leaf[first : first + wants.sum()]
            return out

        run.remember(jax.tree.map(pad, probes), wants)
