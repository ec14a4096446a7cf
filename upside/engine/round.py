"""POLICYLEARNING's inner step (Alg. 2) as a handful of compiled programs.

Shapes depend on the configuration alone: children are padded to `n_max`, classes to a capacity.
How many of them are in use, how many updates to make and how to act are traced numbers, so a run
compiles each program once, however its tree grows. `TRACES` counts, for the test that holds it.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from upside.engine import collect
from upside.engine.method import UPDATE_CHUNK, Method
from upside.learners import replay as replays
from upside.learners import td3
from upside.models import discriminator as discriminators
from upside.nets import Actor
from upside.types import Environment, Trajectory

TRACES: collections.Counter[str] = collections.Counter()
RELABEL_CHUNK = 64  # episodes relabelled at once


class Programs:
    """The compiled programs of one method on one environment."""

    def __init__(self, env: Environment, method: Method, devices: int):
        self.env, self.method, self.devices = env, method, devices
        self.walk = _compiled("walk", self._walk)
        self.collect = _compiled("collect", functools.partial(collect.collect, env, method.plan))
        self.remember = _compiled("remember", self._remember)
        self.learn = _compiled("learn", self._learn)
        self.judge = _compiled("judge", self._judge)
        self.score = _compiled("score", discriminators.discriminability)

    def _walk(
        self, bank: Actor, path: Int[Array, " depth"], length: Array, key: PRNGKeyArray
    ) -> tuple[Any, Array]:
        """Where the episodes of the node at the end of `path` start, and the features of what was passed."""
        start, trace = collect.walk(self.env, bank, path, length, self.method.plan.T, key)
        return jax.tree.map(lambda leaf: leaf[None], start), jax.vmap(self.env.features)(trace)

    def _remember(
        self, replay: replays.Replay, episodes: Trajectory, keep: Bool[Array, "n e"]
    ) -> replays.Replay:
        """Put the episodes that `keep` marks into the replay buffer."""
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), episodes)
        judged = self.method.reward.judged(self.method.plan, flat)
        return replays.add(replay, flat, judged, keep.reshape(-1))

    def rewards(
        self,
        replay: replays.Replay,
        judge: discriminators.State,
        classes: Bool[Array, " capacity"],
        labels: Int[Array, " n"],
    ) -> Float[Array, "n episodes T 2"]:
        """Reward and achieved return of every stored transition for every sibling, by the current discriminator, in bulk."""
        plan, reward = self.method.plan, self.method.reward
        table = jnp.zeros((labels.size, *replay.rows.shape[:2], 2))

        def chunk(i: Array, table: Array) -> Array:
            start = jnp.minimum(i * RELABEL_CHUNK, replay.rows.shape[0] - width)
            judged = jax.lax.dynamic_slice_in_dim(replay.judged, start, width)
            q = jnp.exp(judge.log_prob(judged, classes)[..., labels])
            paid = reward.pay(plan, jnp.moveaxis(q, -1, 0))
            both = jnp.stack([paid, replays.returns(paid, self.method.learner.gamma)], axis=-1)
            return jax.lax.dynamic_update_slice_in_dim(table, both, start, axis=1)

        width = min(RELABEL_CHUNK, replay.rows.shape[0])
        chunks = (replay.size + RELABEL_CHUNK - 1) // RELABEL_CHUNK
        return jax.lax.fori_loop(0, chunks, chunk, table)

    def _learn(
        self,
        learners: td3.State,
        ages: Int[Array, " n"],
        replay: replays.Replay,
        judge: discriminators.State,
        classes: Bool[Array, " capacity"],
        labels: Int[Array, " n"],
        training: Bool[Array, " n"],
        updates: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[td3.State, Array]:
        """Relabel, then `updates` TD3 updates of each skill that `training` marks.

        With more than one device the slots are shared out among them.
        """
        table = self.rewards(replay, judge, classes, labels)
        slots = jnp.arange(training.size)
        update = self._update_skills
        if self.devices > 1:
            each, every = PartitionSpec("skills"), PartitionSpec()
            update = jax.shard_map(
                update,
                mesh=Mesh(np.asarray(jax.local_devices()[: self.devices]), ("skills",)),
                in_specs=(each, each, each, each, each, every, every, every),
                out_specs=(each, each),
                check_vma=False,
            )
        return update(learners, ages, table, training, slots, replay, updates, key)

    def _update_skills(
        self,
        learners: td3.State,
        ages: Int[Array, " n"],
        table: Float[Array, "n episodes T 2"],
        training: Bool[Array, " n"],
        slots: Int[Array, " n"],
        replay: replays.Replay,
        updates: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[td3.State, Array]:
        """The skills in training one after another, by a loop as long as there are: padding costs nothing.

        At the control size this is faster than `vmap` as well, and no skill's numbers depend on
        how many others there are or where they are computed.
        """
        order = jnp.argsort(~training, stable=True)
        chunks = (updates + UPDATE_CHUNK - 1) // UPDATE_CHUNK

        def one_skill(i: Array, carry: tuple[td3.State, Array]) -> tuple[td3.State, Array]:
            learners, ages = carry
            at = order[i]
            pick = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, at, keepdims=False)  # noqa: E731
            state, age = self._update_skill(
                jax.tree.map(pick, learners),
                ages[at],
                replay,
                table[at],
                chunks,
                jax.random.fold_in(key, slots[at]),
            )
            put = lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, at, 0)  # noqa: E731
            return jax.tree.map(put, learners, state), ages.at[at].set(age)

        return jax.lax.fori_loop(0, jnp.sum(training), one_skill, (learners, ages))

    def _update_skill(
        self,
        state: td3.State,
        age: Int[Array, ""],
        replay: replays.Replay,
        rewards: Float[Array, "episodes T 2"],
        chunks: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[td3.State, Int[Array, ""]]:
        """`chunks` times UPDATE_CHUNK updates of one skill; the actor holds still during its warm-up."""
        config, warmup = self.method.learner, self.method.growth.critic_warmup
        shape = (UPDATE_CHUNK // config.policy_delay, config.policy_delay, config.batch_pol)
        center, scale = state.actor.center, state.actor.scale

        def one(carry: tuple, draw: tuple[Array, Array]) -> tuple[tuple, None]:
            state, age = carry
            batches = jax.vmap(lambda d: replays.gather(replay, rewards, d))(draw[0])
            batches = batches._replace(
                obs=(batches.obs - center) / scale, next_obs=(batches.next_obs - center) / scale
            )
            state = td3.update(config, state, batches, draw[1], (age >= warmup).astype(float))
            return (state, age + config.policy_delay), None

        def chunk(i: Array, carry: tuple) -> tuple:
            draw_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
            draws = jax.random.uniform(draw_key, shape)
            noise = jax.random.normal(noise_key, (*shape, self.env.action_size))
            return jax.lax.scan(one, carry, (draws, noise))[0]

        return jax.lax.fori_loop(0, chunks, chunk, (state, age))

    def _judge(
        self,
        judge: discriminators.State,
        buffers: Float[Array, "capacity size feat"],
        counts: Int[Array, " capacity"],
        weights: Float[Array, " capacity"],
        own: Float[Array, "n size feat"],
        own_counts: Int[Array, " n"],
        labels: Int[Array, " n"],
        steps: Int[Array, ""],
        blur: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[discriminators.State, Array]:
        """Fit the discriminator on all state buffers, then score the children on their own states."""
        judge = discriminators.fit(
            self.method.discriminator, judge, buffers, counts, weights, steps, blur, key
        )
        classes = (weights > 0) & (counts > 0)
        return judge, discriminators.discriminability(judge, own, own_counts, labels, classes)


@functools.lru_cache(maxsize=8)
def programs(env: Environment, method: Method, devices: int = 1) -> Programs:
    """The programs of a method on an environment; runs with other seeds share them."""
    return Programs(env, method, devices)


def _compiled(name: str, function: Callable) -> Callable:
    """`jax.jit` that counts how often it had to trace."""

    @functools.wraps(function)
    def traced(*args: Any) -> Any:
        TRACES[name] += 1
        return function(*args)

    return jax.jit(traced)
