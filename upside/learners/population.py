"""Many skills and the networks behind them: one network each, or one for all.

The engine asks a population for its learners, for room for a new skill, and for updates. Skills in
training learn from the same replay buffer, each with rewards of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from upside.learners import replay as replays
from upside.learners.sac import SAC
from upside.learners.td3 import TD3
from upside.nets import Actor, put, stack
from upside.rewards import Lookup, Table

UPDATE_CHUNK = 10
"""Skill updates whose random numbers are drawn at once: drawing is cheap in bulk."""
Learner = TD3 | SAC


@dataclasses.dataclass(frozen=True)
class Distinct:
    """Skills share no weights, as in the paper."""

    words: ClassVar[str] = "distinct"

    def empty(self, learner: Learner, n: int, obs: int, act: int, rng: np.random.Generator) -> Any:
        """Learners for n slots."""
        zero, one = np.zeros(obs, np.float32), np.ones(obs, np.float32)
        return stack([learner.init(zero, one, act, rng) for _ in range(n)])

    def renew(
        self,
        learner: Learner,
        learners: PyTree,
        slot: int,
        outlook: tuple[np.ndarray, np.ndarray],
        code: np.ndarray | None,
        act: int,
        rng: np.random.Generator,
    ) -> PyTree:
        """A skill that knows nothing in place `slot`."""
        return put(learners, slot, learner.init(*outlook, act, rng))

    def update(
        self,
        learner: Learner,
        warmup: int,
        learners: PyTree,
        ages: Int[Array, " n"],
        paid: Table | Lookup,
        training: Bool[Array, " n"],
        replay: replays.Replay,
        updates: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Array]:
        """`updates` of each skill in training, one skill after another: padding costs nothing.

        At the control size this is faster than `vmap` as well, and no skill's numbers depend on
        how many others there are or where they are computed.
        """
        order = jnp.argsort(~training, stable=True)
        chunks = (updates + UPDATE_CHUNK - 1) // UPDATE_CHUNK

        def one_skill(i: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
            learners, ages = carry
            at = order[i]
            pick = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, at, keepdims=False)  # noqa: E731
            state = jax.tree.map(pick, learners)
            center, scale = state.actor.center, state.actor.scale

            def batches(index: Array, draws: Array) -> Any:
                if learner.imitation:  # half of what is drawn is its best episode
                    index = jnp.where(draws < 0.5, paid.best(at, index), index)
                drawn = replays.gather(replay, index, paid.at(at, index))
                return drawn._replace(
                    obs=(drawn.obs - center) / scale, next_obs=(drawn.next_obs - center) / scale
                )

            own = jax.random.fold_in(key, at)
            state, age = practise(learner, warmup, state, ages[at], replay, batches, chunks, own)
            put = lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, at, 0)  # noqa: E731
            return jax.tree.map(put, learners, state), ages.at[at].set(age)

        return jax.lax.fori_loop(0, jnp.sum(training), one_skill, (learners, ages))

    def shares(self, training: Bool[np.ndarray, " n"], cores: int) -> list[np.ndarray]:
        """The skills in training, shared out among at most so many cores."""
        number, rank = min(cores, int(training.sum())), np.cumsum(training) - 1
        return [training & (rank % number == i) for i in range(number)] or [training]

    def check(self) -> None:
        """Nothing can be wrong."""


class SharedState(eqx.Module):
    """One learner for all skills, whose observation ends with a skill's code."""

    shared: PyTree
    codes: Float[Array, "n code"]
    actor: Actor
    """The same network for each skill by itself: its code is a constant, absorbed by the first bias."""


@dataclasses.dataclass(frozen=True)
class Shared:
    """One network for all skills, told which one it is by a code (EDL)."""

    code_size: int = 16
    """Numbers in a code (paper: 16)."""
    words: ClassVar[str] = "shared"

    def empty(
        self, learner: Learner, n: int, obs: int, act: int, rng: np.random.Generator
    ) -> SharedState:
        wide = np.zeros(obs + self.code_size, np.float32)
        shared = learner.init(wide, wide + 1, act, rng)
        codes = jnp.asarray(np.zeros((n, self.code_size), np.float32))
        return SharedState(shared, codes, absorb(shared.actor, codes))

    def renew(
        self,
        learner: Learner,
        learners: SharedState,
        slot: int,
        outlook: tuple[np.ndarray, np.ndarray],
        code: np.ndarray | None,
        act: int,
        rng: np.random.Generator,
    ) -> SharedState:
        """Skill `slot` gets its code; the network is nobody's own and stays."""
        assert code is not None, "a shared network needs a judge that has codes"
        center = np.concatenate([outlook[0], np.zeros(self.code_size, np.float32)])
        scale = np.concatenate([outlook[1], np.ones(self.code_size, np.float32)])
        where = lambda s: (s.actor.center, s.actor.scale)  # noqa: E731
        shared = eqx.tree_at(where, learners.shared, (jnp.asarray(center), jnp.asarray(scale)))
        if hasattr(shared, "actor_target"):
            where = lambda s: (s.actor_target.center, s.actor_target.scale)  # noqa: E731
            shared = eqx.tree_at(where, shared, (jnp.asarray(center), jnp.asarray(scale)))
        codes = np.array(learners.codes)
        codes[slot] = code
        return SharedState(shared, jnp.asarray(codes), absorb(shared.actor, jnp.asarray(codes)))

    def update(
        self,
        learner: Learner,
        warmup: int,
        learners: SharedState,
        ages: Int[Array, " n"],
        paid: Table | Lookup,
        training: Bool[Array, " n"],
        replay: replays.Replay,
        updates: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[SharedState, Array]:
        """As many updates as all skills would get by themselves, on batches that mix them.

        Every stored transition is one of any skill, with that skill's reward; so are those of
        skills with networks of their own.
        """
        state, obs = learners.shared, replay.observation_size
        center, scale = state.actor.center[:obs], state.actor.scale[:obs]
        order, number = jnp.argsort(~training, stable=True), jnp.sum(training)

        def batches(index: Array, draws: Array) -> Any:
            skill = order[jnp.minimum((draws * number).astype(int), number - 1)]
            drawn = replays.gather(replay, index, paid.at(skill, index))
            code = learners.codes[skill]
            wide = lambda x: jnp.concatenate([(x - center) / scale, code], axis=-1)  # noqa: E731
            return drawn._replace(obs=wide(drawn.obs), next_obs=wide(drawn.next_obs))

        chunks = number * ((updates + UPDATE_CHUNK - 1) // UPDATE_CHUNK)
        age = jnp.max(ages)
        state, age = practise(learner, warmup, state, age, replay, batches, chunks, key)
        ages = jnp.where(training, age, ages)
        return SharedState(state, learners.codes, absorb(state.actor, learners.codes)), ages

    def shares(self, training: Bool[np.ndarray, " n"], cores: int) -> list[np.ndarray]:
        """There is but one network to train."""
        return [training]

    def check(self) -> None:
        """Whether codes fit the judge's is for the method to say."""


def absorb(actor: Actor, codes: Float[Array, "n code"]) -> Actor:
    """An actor on observations and a code, as one actor for each code on observations alone."""
    first, bias = actor.mlp.weights[0], actor.mlp.biases[0]
    obs = first.shape[0] - codes.shape[1]
    n = codes.shape[0]
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), actor)
    where = lambda a: (a.mlp.weights[0], a.mlp.biases[0], a.center, a.scale)  # noqa: E731
    new = (
        many.mlp.weights[0][:, :obs],
        bias + codes @ first[obs:],
        many.center[:, :obs],
        many.scale[:, :obs],
    )
    return eqx.tree_at(where, many, new)


def practise(
    learner: Learner,
    warmup: int,
    state: PyTree,
    age: Int[Array, ""],
    replay: replays.Replay,
    batches: Callable[[Array, Array], Any],
    chunks: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[PyTree, Int[Array, ""]]:
    """`chunks` times UPDATE_CHUNK updates of one learner; the actor holds still during its warm-up."""
    delay = learner.policy_delay
    shape = (UPDATE_CHUNK // delay, delay, learner.batch_pol)

    def one(carry: tuple, drawn: tuple[Any, Array]) -> tuple[tuple, None]:
        state, age = carry
        moves = (age >= warmup).astype(float)
        return (learner.update(state, *drawn, moves), age + delay), None

    def chunk(i: Array, carry: tuple) -> tuple:
        where_key, whose_key, noise_key = jax.random.split(jax.random.fold_in(key, i), 3)
        where, whose = jax.random.uniform(where_key, shape), jax.random.uniform(whose_key, shape)
        noise = jax.random.normal(noise_key, (*shape, learner.draws(replay.action_size)))
        drawn = batches(replays.index(replay, where), whose)
        return jax.lax.scan(one, carry, (drawn, noise))[0]

    return jax.lax.fori_loop(0, chunks, chunk, (state, age))
