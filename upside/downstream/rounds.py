"""Rounds of many chains in training.

Where episodes can be part of a compiled program, a chain has all of its next rounds in one call: nothing is done
for a single round in Python, and no chain waits for another one. Where they need the host, round follows round.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from upside.downstream.episodes import judged
from upside.downstream.tune import Chain, Tuning, chances, ended, practise
from upside.engine.compiled import QUICKER, compiled
from upside.engine.rollouts import Chase, Rollouts, Seen

BLOCK = 16  # the most rounds of one call


class Line(NamedTuple):
    """What is known of a chain after a round."""

    went: Bool[Array, "*n"]
    """Whether it had this round: not once it is ended."""
    spent: Int[Array, "*n"]
    gained: Float[Array, "*n"]
    """The noise-free return."""
    best: Float[Array, "*n"]


Work = tuple[Chain, Any, Any, Any]
"""Stacked chains, their tasks, budgets, and for each of them the words of BLOCK rounds' keys."""


def block(roll: Rollouts, tuning: Tuning, T: int, number: int, work: Work) -> tuple[Chain, Line]:
    """So many rounds, BLOCK at most, of every chain that is not ended; lines with axes chains, rounds."""
    if roll.inside is not None:
        return _inside(roll.inside, tuning, T, np.int32(number), *work)
    chains, tasks, budgets, words = work
    lines = []
    for now in range(number):
        chains, line = _on_host(roll, tuning, T, tasks, chains, budgets, words[:, now])
        lines.append(jax.tree.map(np.asarray, line))  # the next round donates the chains' arrays
    return chains, jax.tree.map(lambda *rows: np.stack(rows, axis=1), *lines)


def still(chains: Chain, number: int) -> Line:
    """The lines of chains that are ended."""
    spent, best = np.asarray(chains.spent), np.asarray(chains.best_return)
    rows = [np.zeros(len(spent), bool), spent, np.full(len(spent), np.nan), best]
    columns: Any = [np.repeat(row[:, None], number, axis=1) for row in rows]
    return Line(*columns)


# -------------------------------------------------------------------- several rounds of one chain


def _block(chase: Chase, tuning: Tuning, T: int, number: Array, *work: Any) -> tuple[Chain, Line]:
    """One chain after another: the numbers of one do not depend on which others there are."""

    def one(work: Work) -> tuple[Chain, Line]:
        chain, task, budget, words = work

        def maybe(chain: Chain, x: tuple[Array, Array]) -> tuple[Chain, Line]:
            now, words = x
            goes = ~ended(tuning, chain, budget) & (now < number)
            chain, gained = jax.lax.cond(
                goes,
                lambda: _round(chase, tuning, T, task, chain, _key(words)),
                lambda: (chain, jnp.asarray(jnp.nan)),
            )
            return chain, Line(goes, chain.spent, gained, chain.best_return)

        return jax.lax.scan(maybe, chain, (jnp.arange(len(words)), words))

    return jax.lax.map(one, work)


def _round(
    chase: Chase, tuning: Tuning, T: int, task: PyTree, chain: Chain, key: PRNGKeyArray
) -> tuple[Chain, Array]:
    noise, noisy_from, env_key, key = chances(tuning, chain, key)
    seen = chase(T, chain.stages.actor, chain.last, noise, noisy_from, env_key)
    new = jax.vmap(functools.partial(judged, task))(*seen)
    return practise(tuning, T, chain, new, key)


def _key(words: UInt32[Array, " 2"]) -> PRNGKeyArray:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


_inside = compiled("rounds", _block, 0, 1, 2, donate=(4,), options=QUICKER)


# -------------------------------------------------------------------- one round of several chains


def _on_host(
    roll: Rollouts, tuning: Tuning, T: int, tasks: PyTree, chains: Chain, budgets: Any, words: Any
) -> tuple[Chain, Line]:
    """Episodes of all of them, then updates of all of them."""
    going, noise, noisy_from, env_keys, keys = _chances(tuning, chains, budgets, words)
    if not np.any(going):
        gained = jnp.full(len(words), jnp.nan)
    else:
        way = (chains.stages.actor, chains.last, noise, noisy_from, going, env_keys)
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], tasks) for i in range(len(words))]
        seen = roll.chase(T, *way, over=[task.over_at for task in each])
        chains, gained = _practise(tuning, T, tasks, chains, seen, going, keys)
    return chains, Line(going, chains.spent, gained, chains.best_return)


@functools.partial(jax.jit, static_argnums=0)
def _chances(tuning: Tuning, chains: Chain, budgets: Array, words: Array) -> tuple[Array, ...]:
    drawn = jax.vmap(lambda chain, words: chances(tuning, chain, _key(words)))(chains, words)
    return ~ended(tuning, chains, budgets), *drawn


def _practised(
    tuning: Tuning, T: int, tasks: PyTree, chains: Chain, seen: Seen, going: Array, keys: Array
) -> tuple[Chain, Float[Array, " n"]]:
    """One chain after another, as above."""

    def one(x: tuple) -> tuple[Chain, Array]:
        task, chain, seen, going, key = x

        def practised() -> tuple[Chain, Array]:
            new = jax.vmap(functools.partial(judged, task))(*seen)
            return practise(tuning, T, chain, new, key)

        return jax.lax.cond(going, practised, lambda: (chain, jnp.asarray(jnp.nan)))

    return jax.lax.map(one, (tasks, chains, seen, going, keys))


_practise = compiled("practise", _practised, 0, 1, donate=(3,), options=QUICKER)
