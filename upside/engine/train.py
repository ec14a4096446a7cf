"""The outer loop (Alg. 2): which node, how many policies, when to stop. A generator of rounds.

Side effects live with the caller: it logs what is yielded, saves a checkpoint, draws progress.
Between two yields the whole state is in the `Discovery`, so a run may be cut and continued there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from upside.engine.discovery import BudgetSpent, Discovery
from upside.skills.growth import Expansion, decide


def rounds(run: Discovery) -> Iterator[str]:
    """Discover until no node can be expanded or the budget is spent; yields what has just happened."""
    try:
        if not run.counters.rounds and not run.arrays.counts[0]:
            run.plant()
            yield "root"
        while run.expansion is not None or _next(run):
            x = run.expansion
            assert x is not None
            yield from _expand(run, x)
    except BudgetSpent:
        if run.expansion is not None:
            _finish(run, run.expansion)
        yield "budget spent"
        return
    yield "nothing left to expand"


def _next(run: Discovery) -> bool:
    """Dequeue the best node and begin its expansion; False if there is none."""
    growth, tree = run.method.growth, run.tree
    if not growth.probes:
        queue = [z for z in range(len(tree)) if not tree[z].expansions]
        if queue:
            run.begin(max(queue, key=lambda z: tree[z].discriminability), [])
        return bool(queue)
    while True:
        run.measure_free_space()
        gains = {
            z: len(run.claims(z)) / (run.prefix(z) + run.method.plan.steps)
            for z in range(len(tree))
        }
        if growth.order == "gain":
            best = max(gains, key=lambda z: gains[z])
        else:
            open_nodes = [z for z in gains if gains[z] > 0] or [0]
            best = max(open_nodes, key=lambda z: tree[z].discriminability)
        if gains[best] > 0:
            run.begin(best, run.claims(best))
            return True
        again = [z for z in range(len(tree)) if tree[z].reprobes < growth.reprobes]
        if not again:
            return False
        node = min(again, key=lambda z: (tree[z].reprobes, tree[z].depth))
        tree[node].reprobes += 1
        tree[node].tried.clear()
        run.probe(node)


def _expand(run: Discovery, x: Expansion) -> Iterator[str]:
    """Node adaptation: learn, then add, remove, restore or accept (Alg. 2, lines 5-17)."""
    growth, k_discr = run.method.growth, run.method.discriminator.k_discr
    if not x.rounds:
        _evaluate(run, x)
    while True:
        x.rounds += 1
        run.counters.rounds += 1
        yield "round"
        move = decide(growth, x)
        if move == "continue":
            run.train(x)
        elif move == "add":
            run.keep(x)
            x.direction, x.stalled, x.best = "add", 0, 0.0
            _restart_discriminator(run)
            run.spawn(x)
        elif move == "remove":
            worst = min(x.children, key=lambda c: c.d)
            run.drop(x, worst)
            x.direction, x.stalled, x.best = "remove", 0, 0.0
            _restart_discriminator(run)
            if not x.children:
                break
        elif move == "restore":
            run.restore(x)
            run.judge(x, k_discr)
            break
        else:
            break
        _evaluate(run, x)
    yield from _accept(run, x)


def _restart_discriminator(run: Discovery) -> None:
    if not run.method.discriminator.keep_discriminator:
        run.new_discriminator()


def _evaluate(run: Discovery, x: Expansion) -> None:
    """Collect state buffers, fit the discriminator, score; confirm those that now satisfy η."""
    growth, k_discr = run.method.growth, run.method.discriminator.k_discr
    run.observe(x, [c for c in x.children if not c.frozen], growth.fresh)
    run.judge(x, k_discr)
    if not growth.freeze:
        return
    passed = [c for c in x.children if not c.frozen and c.d > growth.eta]
    if passed:
        for child in passed:
            child.frozen = child.arrived = True
            run.arrays.own_counts[child.slot] = 0
        run.observe(x, passed, run.method.plan.buffer_episodes)
        run.judge(x, 3 * k_discr)
    for child in x.children:
        child.frozen = child.frozen and child.d > growth.eta


def _accept(run: Discovery, x: Expansion) -> Iterator[str]:
    """Consolidate what satisfies the constraint, then look around from the new nodes."""
    new = _finish(run, x)
    yield "consolidated" if new else "no child"
    for node in new:
        run.probe(node)
        if not run.method.growth.probes:
            run.go_to(node)


def _finish(run: Discovery, x: Expansion) -> list[int]:
    """Line 18: the η-discriminable children become nodes; with `check_consolidated`, only if no old node suffers."""
    growth = run.method.growth
    for child in [c for c in x.children if c.d <= growth.eta or not c.arrived]:
        run.drop(x, child)
    if growth.check_consolidated and x.children:
        _drop_trespassers(run, x)
    return run.consolidate(x)


def _drop_trespassers(run: Discovery, x: Expansion) -> None:
    """Drop new policies until every node and every new policy has its η on its state buffer."""
    growth, k_discr = run.method.growth, run.method.discriminator.k_discr
    while x.children:
        run.judge(x, 3 * k_discr)
        d = run.discriminabilities(x)
        for child in x.children:
            child.d = float(d[run.capacity + child.slot])
        harmed = [z for z in range(len(run.tree)) if d[z] <= growth.eta]
        below = [c for c in x.children if c.d <= growth.eta]
        if not harmed and not below:
            return
        run.drop(x, min(x.children, key=lambda c: c.d))
