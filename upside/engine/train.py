"""The outer loop (Alg. 2): which node, how many policies, when to stop. A generator of rounds.

Side effects live with the caller: it logs what is yielded, saves a checkpoint, draws progress.
Between two yields the whole state is in the `Discovery`, so a run may be cut and continued there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from upside.engine.discovery import BudgetSpent, Discovery
from upside.skills.growth import Child, Expansion, decide, hopeless

FIRST_LOOK = 3  # noise-free episodes of a skill that looks good, before the rest of its buffer


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
            _salvage(run, run.expansion)
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
        gains = {z: run.gain(z) for z in range(len(tree))}
        if growth.order == "gain":
            best = max(gains, key=lambda z: gains[z])
        else:
            open_nodes = [z for z in gains if gains[z] > 0] or [0]
            best = max(open_nodes, key=lambda z: tree[z].discriminability)
        if gains[best] > 0:
            run.begin(best, run.claims(best))
            return True
        if not _look_closer(run):
            return False


def _look_closer(run: Discovery) -> bool:
    """No node has a free probe: relax the gate, else probe a node anew; False if all this was done."""
    growth, tree = run.method.growth, run.tree
    if growth.relax < 1 and run.reach * growth.relax >= growth.least_reach * run.radius:
        run.reach *= growth.relax
        return True
    again = [z for z in range(len(tree)) if tree[z].reprobes < growth.reprobes]
    if again:
        z = min(again, key=lambda z: (tree[z].reprobes, tree[z].depth))
        tree[z].reprobes += 1
        tree[z].tried.clear()
        run.go_to(z)
        run.probe(z)
    return bool(again)


def _expand(run: Discovery, x: Expansion) -> Iterator[str]:
    """Node adaptation: learn, then add, remove, restore or accept (Alg. 2, lines 5-17)."""
    growth = run.method.growth
    if not x.rounds:
        run.rehearse(x)
        yield _evaluate(run, x)
    while (move := decide(growth, x)) != "accept":
        if move == "continue":
            run.train(x)
        elif move == "add":
            run.keep(x)
            _turn(run, x, "add")
            run.spawn(x)
            run.rehearse(x)
        elif move == "remove":
            run.drop(x, max(x.children, key=lambda c: (hopeless(growth, c), -c.d)))
            _turn(run, x, "remove")
            if not x.children:
                break
        else:
            run.restore(x)
            break
        yield _evaluate(run, x)
    new = _finish(run, x)
    for node in new:
        run.go_to(node)
        run.probe(node)
    yield "consolidated" if new else "no child"


def _turn(run: Discovery, x: Expansion, direction: Literal["add", "remove"]) -> None:
    """A new call of POLICYLEARNING, with one policy more or less."""
    x.direction, x.own_steps = direction, 0
    if not run.method.discriminator.keep_discriminator:
        run.new_discriminator()


def _evaluate(run: Discovery, x: Expansion) -> str:
    """Collect state buffers, fit the discriminator, score; confirm those that now satisfy η."""
    x.rounds += 1
    run.counters.rounds += 1
    growth, k_discr = run.method.growth, run.method.discriminator.k_discr
    run.observe(x, [c for c in x.children if not c.frozen], growth.fresh)
    run.judge(x, k_discr)
    if growth.freeze:
        _confirm(run, x, [c for c in x.children if not c.frozen and c.d > growth.target])
    return "round"


def _confirm(run: Discovery, x: Expansion, passed: list[Child]) -> None:
    """Freeze the skills that look good and fill their state buffers; those that no longer do go on training.

    The buffer is filled in two steps, since most of what looks good by chance fails the first.
    """
    growth, k_discr = run.method.growth, run.method.discriminator.k_discr
    for child in passed:
        child.frozen = True
        run.arrays.own_counts[child.slot] = 0
    for episodes in (FIRST_LOOK, run.method.plan.buffer_episodes - FIRST_LOOK):
        run.observe(x, [c for c in passed if c.frozen], episodes)
        run.judge(x, 0)
        for child in passed:
            child.frozen = child.frozen and child.d > growth.target
    for child in passed:
        child.arrived = child.arrived or child.frozen
    if any(c.frozen for c in passed):
        run.judge(x, 3 * k_discr)
    for child in x.children:
        child.frozen = child.frozen and child.d > growth.target


def _finish(run: Discovery, x: Expansion) -> list[int]:
    """Line 18: the η-discriminable children become nodes; with `check_consolidated`, only if no old node suffers."""
    growth = run.method.growth
    for child in [c for c in x.children if c.d <= growth.target or not c.arrived]:
        run.drop(x, child)
    if growth.check_consolidated and x.children:
        _drop_trespassers(run, x)
    new = run.consolidate(x)
    for node in new:
        run.go_to(node)
    return new


def _salvage(run: Discovery, x: Expansion) -> None:
    """The budget is spent in the middle of an expansion: keep what met the constraint and was not touched since."""
    size = run.method.plan.buffer_episodes * run.method.plan.H
    if x.kept:
        run.restore(x)
    else:
        for child in list(x.children):
            if not child.frozen or run.arrays.own_counts[child.slot] < size:
                run.drop(x, child)
    _finish(run, x)


def _drop_trespassers(run: Discovery, x: Expansion) -> None:
    """Drop new policies until each has its target, and no node falls below it that was above without them."""
    growth, k_discr = run.method.growth, run.method.discriminator.k_discr
    before = run.discriminabilities(None)
    while x.children:
        run.judge(x, 3 * k_discr)
        d = run.discriminabilities(x)
        for child in x.children:
            child.d = float(d[run.capacity + child.slot])
        harmed = [z for z in range(len(run.tree)) if d[z] <= growth.target < before[z]]
        below = [c for c in x.children if c.d <= growth.target]
        if not harmed and not below:
            return
        run.drop(x, min(x.children, key=lambda c: c.d))
