"""What becomes of children: kept aside, dropped, or consolidated as nodes of the tree."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jaxtyping import Float

from upside.engine.discovery import Discovery
from upside.engine.learning import judge, weights
from upside.models.classes import move, widen
from upside.skills.growth import Child, Expansion

COPIES = 4  # of every state, where it stands for its surroundings
SETTLING = 3000  # updates of the judge at the end of a run, as many for every setting of K_discr


def keep(run: Discovery, x: Expansion) -> None:
    """Remember the set that meets the constraint, before a policy is added to it."""
    x.kept = [dataclasses.replace(c) for c in x.children]
    arrays = run.arrays
    run.set(
        kept_actors=arrays.learners.actor,
        kept_own=arrays.own.copy(),
        kept_counts=arrays.own_counts.copy(),
    )


def restore(run: Discovery, x: Expansion) -> None:
    """Back to the last set that met the constraint."""
    learners = dataclasses.replace(run.arrays.learners, actor=run.arrays.kept_actors)
    run.set(learners=learners, own=run.arrays.kept_own, own_counts=run.arrays.kept_counts)
    lost = {c.slot for c in x.children} - {c.slot for c in x.kept}
    _give_back(run, [c for c in x.children if c.slot in lost], x)
    x.children, x.kept = x.kept, []


def drop(run: Discovery, x: Expansion, child: Child) -> None:
    """Remove a policy from the set in training."""
    x.children.remove(child)
    _give_back(run, [child], x)


def _give_back(run: Discovery, children: list[Child], x: Expansion) -> None:
    for child in children:
        run.arrays.counts[run.capacity + child.slot] = 0
        if child.claim is not None:
            run.tree[x.node].tried.append(child.claim)


def discriminabilities(
    run: Discovery, x: Expansion | None, noise: np.ndarray | None = None
) -> np.ndarray:
    """d(z) of every class on the states of its buffer, with the children of `x` as classes too.

    On those states d is too high, since the judge was fitted on them. Copies of them with `noise`
    stand in for states never seen, at no interaction.
    """
    arrays = run.arrays
    classes = (weights(run, x) > 0) & (arrays.counts > 0)
    labels = np.arange(len(arrays.counts), dtype=np.int32)
    states = arrays.buffers if noise is None else surroundings(arrays.buffers, noise)
    counts = arrays.counts * np.int32(states.shape[1] // arrays.buffers.shape[1])
    d = run.programs.score(arrays.judge, states, counts, labels, classes)
    return np.asarray(d)[:, 0]


def surroundings(
    buffers: Float[np.ndarray, "n size feat"], noise: Float[np.ndarray, "n many feat"]
) -> Float[np.ndarray, "n many feat"]:
    """Each state several times, with noise."""
    return np.repeat(buffers, noise.shape[1] // buffers.shape[1], axis=1) + noise


def drop_trespassers(run: Discovery, x: Expansion) -> None:
    """Drop new policies until each satisfies η around its states, and none pushes a node below η.

    A node near η falls below it by chance, as the judge moves: only a drop of `harm` is blamed on the new ones.
    """
    growth, k_discr = run.method.growth, run.method.judge.k_discr
    classes, size, features = run.arrays.buffers.shape
    noise = run.rng().standard_normal((classes, COPIES * size, features), np.float32)
    noise *= growth.check_blur * run.radius * run.env.space.units
    before = discriminabilities(run, None, noise)
    while x.children:
        judge(run, x, 3 * k_discr)
        d = discriminabilities(run, x, noise)
        own = {child.slot: d[run.capacity + child.slot] for child in x.children}
        nodes = range(len(run.tree))
        harmed = [z for z in nodes if d[z] <= growth.eta and d[z] < before[z] - growth.harm]
        below = [c for c in x.children if own[c.slot] <= growth.eta or c.d <= growth.target]
        if not harmed and not below:
            return
        drop(run, x, min(x.children, key=lambda c: own[c.slot]))


def consolidate(run: Discovery, x: Expansion) -> list[int]:
    """The children become nodes of the tree, with the numbers that follow."""
    while len(run.tree) + len(x.children) > run.capacity:
        grow(run)
    arrays = run.arrays
    moved = np.arange(len(arrays.counts), dtype=np.int32)
    new = []
    for child in x.children:
        node = run.tree.add(x.node, child.d, run.counters.interactions, child.rho)
        new.append(node)
        count = int(arrays.own_counts[child.slot])
        arrays.buffers[node], arrays.counts[node] = arrays.own[child.slot], count
        arrays.counts[run.capacity + child.slot] = 0
        moved[node] = run.capacity + child.slot
        jax.tree.map(
            lambda bank, actors, node=node, slot=child.slot: bank.__setitem__(
                node, np.asarray(actors[slot])
            ),
            arrays.bank,
            arrays.learners.actor,
        )
    run.set(judge=move(arrays.judge, moved))
    run.expansion = None
    return new


def grow(run: Discovery) -> None:
    """Double the room for policies. The only moment at which programs are compiled anew."""
    old, n = run.capacity, run.method.growth.n_max

    def more(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.zeros_like(leaf[:old])])

    def split(leaf: np.ndarray) -> np.ndarray:
        """The children's rows stay last."""
        return np.concatenate([leaf[:old], np.zeros_like(leaf[:old]), leaf[old:]])

    arrays = run.arrays
    run.set(
        bank=jax.tree.map(more, arrays.bank),
        probes=jax.tree.map(more, arrays.probes),
        buffers=split(arrays.buffers),
        counts=split(arrays.counts),
        judge=widen(arrays.judge, old, 2 * old + n, run.rng()),
    )
    run.capacity = 2 * old


def settle(run: Discovery) -> None:
    """The tree is final: let the judge that is saved with it settle on all state buffers."""
    if len(run.tree) > 1 and run.arrays.counts[: len(run.tree)].any():
        judge(run, Expansion(0, [], []), SETTLING)
