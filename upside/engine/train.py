"""The outer loop (Alg. 2): which node, how many policies, when to stop. A generator of rounds.

Side effects live with the caller: it logs what is yielded, saves a checkpoint, draws progress.
Between two yields the whole state is in the `Discovery`, so a run may be cut and continued there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from upside.engine import consolidation, learning, probing
from upside.engine.discovery import BudgetSpent, Discovery
from upside.skills.gate import Gate
from upside.skills.growth import Child, Expansion

FIRST_LOOK = 3  # noise-free episodes of a skill that looks good, before the rest of its buffer


def rounds(run: Discovery) -> Iterator[str]:
    """Discover until no node can be expanded or the budget is spent; yields what has just happened."""
    ended = "nothing left to expand"
    try:
        if not run.starts_key:
            probing.plant(run)
            yield "root"
        if run.method.growth.max_depth == 0:
            while True:  # until the budget is spent
                probing.wander(run)
                yield "round"
        while run.expansion is not None or _next(run):
            x = run.expansion
            assert x is not None
            yield from _expand(run, x)
    except BudgetSpent:
        ended = "budget spent"
        if run.expansion is not None:
            _salvage(run, run.expansion)
    consolidation.settle(run)
    yield ended


# -------------------------------------------------------------------- which node


def _next(run: Discovery) -> bool:
    """Dequeue the best node and begin its expansion; False if there is none."""
    tree, gate = run.tree, run.method.gate
    nodes = [z for z in range(len(tree)) if _may_grow(run, z)]
    if gate is None:
        queue = [z for z in nodes if not tree[z].expansions]
        if queue:
            learning.begin(run, max(queue, key=lambda z: tree[z].discriminability), [])
        return bool(queue)
    while nodes:
        probing.measure(run)
        gains = {z: probing.gain(run, gate, z) for z in nodes}
        best = _best(run, gate, gains)
        if gains[best] > 0 and run.vain < gate.give_up:
            learning.begin(run, best, probing.claims(run, gate, best))
            return True
        if not _look_closer(run, gate, nodes):
            return False
    return False


def _may_grow(run: Discovery, node: int) -> bool:
    """Whether children of `node` would stay within the longest episode and the deepest tree."""
    depth, most = run.tree[node].depth, run.method.growth.max_depth
    return run.method.plan.fits(depth) and (most is None or depth < most)


def _best(run: Discovery, gate: Gate, gains: dict[int, float]) -> int:
    if gate.order == "gain":
        return max(gains, key=lambda z: gains[z])
    candidates = [z for z in gains if gains[z] > 0] or list(gains)
    return max(candidates, key=lambda z: run.tree[z].discriminability)


def _look_closer(run: Discovery, gate: Gate, nodes: list[int]) -> bool:
    """No node has a free probe, or gaps are tried in vain: look elsewhere, or closer; False if all that was done.

    First the gate is relaxed step by step: gaps are filled, and episodes that stray find passages. Then some
    probes of every node are made anew, for passages that none has found yet; when that was in vain several
    times, the gate is relaxed again.
    """
    closer, gave_up = run.reach * gate.relax, run.vain >= gate.give_up
    may_relax = gate.least_reach <= closer < run.reach and not gave_up
    looked = run.looks % gate.looks == 0
    run.vain = 0
    if may_relax and looked:
        run.reach = closer
    elif run.looks < gate.looks * gate.reprobes:
        _probe_again(run, gate, nodes)
    else:
        return False
    return True


def _probe_again(run: Discovery, gate: Gate, nodes: list[int]) -> None:
    run.looks, run.reach = run.looks + 1, gate.reach
    for z in sorted(nodes, key=lambda z: run.tree[z].depth):
        run.go_to(z)
        probing.probe(run, gate, z, probing.spent(run, gate, z)[: -(-gate.probes // gate.looks)])


# -------------------------------------------------------------------- how many policies


def _expand(run: Discovery, x: Expansion) -> Iterator[str]:
    """Node adaptation: learn, then add, remove, restore or accept (Alg. 2, lines 5-17)."""
    growth, gate = run.method.growth, run.method.gate
    if not x.rounds:
        learning.rehearse(run, x)
        yield _evaluate(run, x)
    while (move := growth.decide(x, more=gate is None or bool(x.waiting))) != "accept":
        if move == "continue":
            learning.train(run, x)
        elif move == "add":
            consolidation.keep(run, x)
            _turn(run, x, "add")
            learning.spawn(run, x)
            learning.rehearse(run, x)
        elif move == "remove":
            worst = max(x.children, key=lambda c: (growth.hopeless(c), -c.d))
            consolidation.drop(run, x, worst)
            _turn(run, x, "remove")
            if not x.children:
                break
        else:
            consolidation.restore(run, x)
            break
        yield _evaluate(run, x)
    new = _finish(run, x)
    if gate and gate.glean:
        probing.glean(run, gate, x.node)
    run.vain = run.vain + 1 if run.relaxed and not new else 0
    if new and not run.relaxed:
        run.looks = 0
    for node in new:
        if gate and _may_grow(run, node):
            run.go_to(node)
            probing.probe(run, gate, node, np.arange(gate.probes))
    yield "consolidated" if new else "no child"


def _turn(run: Discovery, x: Expansion, direction: Literal["add", "remove"]) -> None:
    """A new call of POLICYLEARNING, with one policy more or less."""
    x.direction = direction
    if run.method.growth.k_steps_of == "call":
        x.own_steps = 0
    if not run.method.judge.keep_discriminator:
        run.new_judge()


def _evaluate(run: Discovery, x: Expansion) -> str:
    """Collect state buffers, fit the judge, score; confirm those that now satisfy η."""
    x.rounds += 1
    run.counters.rounds += 1
    growth = run.method.growth
    learning.observe(run, x, [c for c in x.children if not c.frozen], run.method.practice.fresh)
    learning.judge(run, x, run.method.judge.k_discr)
    if run.method.gate is not None:
        learning.arrive(run, x, run.method.gate)
    passed = [c for c in x.children if not c.frozen and c.d > growth.target]
    if growth.freeze and passed:
        _confirm(run, x, passed)
    for child in x.children:
        child.frozen = child.frozen and child.d > growth.target
    return "round"


def _confirm(run: Discovery, x: Expansion, passed: list[Child]) -> None:
    """Freeze the skills that look good and fill their state buffers; those that no longer do go on training.

    The buffer is filled in two steps, since most of what looks good by chance fails the first.
    Until the judge has been fitted on the new states, d may be a little lower than it has to be.
    """
    growth, k_discr = run.method.growth, run.method.judge.k_discr
    for child in passed:
        child.frozen = True
        run.arrays.own_counts[child.slot] = 0
    looks = (FIRST_LOOK, run.method.plan.buffer_episodes - FIRST_LOOK)
    for episodes, doubt in zip(looks, (2 * growth.doubt, growth.doubt), strict=True):
        learning.observe(run, x, [c for c in passed if c.frozen], episodes)
        learning.judge(run, x, 0)
        for child in passed:
            child.frozen = child.frozen and child.d > growth.target - doubt
    for child in passed:
        child.arrived = child.arrived or child.frozen
    if any(c.frozen for c in passed):
        learning.judge(run, x, 3 * k_discr)


# -------------------------------------------------------------------- the end of an expansion


def _finish(run: Discovery, x: Expansion, over: bool = False) -> list[int]:
    """Line 18: the η-discriminable children become nodes; with `check_consolidated`, only if no old node suffers."""
    growth = run.method.growth
    for child in [c for c in x.children if not growth.keeps(c)]:
        consolidation.drop(run, x, child)
    if growth.check_consolidated and x.children:
        consolidation.drop_trespassers(run, x)
    new = consolidation.consolidate(run, x)
    for node in new:
        run.go_to(node, counted=not over)
    return new


def _salvage(run: Discovery, x: Expansion) -> None:
    """The budget is spent in the middle of an expansion: keep what met the constraint and was not touched since."""
    size = run.arrays.own.shape[1]
    if x.kept:
        consolidation.restore(run, x)
    else:
        for child in list(x.children):
            filled = bool(run.arrays.own_counts[child.slot] == size)
            if not run.method.growth.salvaged(child, filled):
                consolidation.drop(run, x, child)
    _finish(run, x, over=True)
