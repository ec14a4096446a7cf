"""POLICYLEARNING's inner step (Alg. 2) as a handful of compiled programs.

Shapes depend on the configuration alone: children are padded to `n_max`, classes to a capacity.
How many of them are in use, how many updates to make and how to act are traced numbers, so a run
compiles each program once, however its tree grows.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree

from upside.engine.compiled import compiled
from upside.engine.method import Method
from upside.learners import replay as replays
from upside.rewards import Lookup, Scores, Table
from upside.types import Trajectory, World

LEAST = -20.0  # log q counts no lower than this


class Programs:
    """The compiled programs of one method on one environment."""

    def __init__(self, env: World, method: Method):
        self.env, self.method = env, method
        self.remember = compiled("remember", self._remember, donate=(0,))
        self.pay = compiled("pay", self._pay)
        learner = method.learner.paid_in(method.reward.unit(method.learner.gamma))
        update = functools.partial(method.population.update, learner, method.practice.critic_warmup)
        self.update = compiled("update", update)
        self.merge = compiled("merge", _merge)
        self.judge = compiled("judge", self._judge)
        self.score = compiled("score", discriminability)

    def _remember(
        self, replay: replays.Replay, episodes: Trajectory, keep: Bool[Array, "n e"]
    ) -> replays.Replay:
        """Put the episodes that `keep` marks into the replay buffer, in place: a copy would be of all it holds."""
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), episodes)
        reward = self.method.reward
        judged = reward.judged(self.method.plan, flat)
        return replays.add(replay, flat, judged, keep.reshape(-1), reward.ends)

    def learn(
        self,
        cores: int,
        learners: PyTree,
        ages: Int[ArrayLike, " n"],
        replay: replays.Replay,
        paid: Table | Lookup,
        training: Bool[np.ndarray, " n"],
        updates: Int[ArrayLike, ""],
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Array]:
        """`updates` updates of each skill that `training` marks, with what `pay` says that episodes are worth.

        Returns at once: with more than one core, the skills are shared out among threads that go on
        beside whatever is asked for next. JAX runs what one thread asks for in that order, so each
        share has a thread of its own, and nothing is merged by the caller's. The numbers are the
        same on any number of cores. NumPy arrays among the arguments must not be edited afterwards.
        """

        def update(share: np.ndarray) -> tuple[PyTree, Array]:
            return self.update(learners, ages, paid, share, replay, updates, key)

        if cores == 1:
            return update(training)
        shares = self.method.population.shares(training, cores)
        done, *others = (_thread(i).submit(update, s).result() for i, s in enumerate(shares))
        for share, other in zip(shares[1:], others, strict=True):
            done = _thread(0).submit(self.merge, share, other, done).result()
        return done

    def _pay(
        self,
        replay: replays.Replay,
        scores: Scores,
        known: Table | None,
        first: Int[Array, ""],
        number: Int[Array, ""],
    ) -> Table | Lookup:
        """What stored transitions are worth to each skill, where `number` episodes from the `first` on are not known."""
        method = self.method
        return method.reward.relabel(
            method.plan,
            self.env.space,
            replay,
            scores,
            method.learner.gamma,
            known,
            first,
            number,
        )

    def _judge(
        self,
        judge: PyTree,
        buffers: Float[Array, "capacity size feat"],
        counts: Int[Array, " capacity"],
        weights: Float[Array, " capacity"],
        own: Float[Array, "n newest feat"],
        own_counts: Int[Array, " n"],
        labels: Int[Array, " n"],
        steps: Int[Array, ""],
        blur: Float[Array, ...],
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Array]:
        """Fit the judge on all state buffers, then score the children on their own states."""
        judge = self.method.judge.fit(judge, buffers, counts, weights, steps, blur, key)
        classes = (weights > 0) & (counts > 0)
        return judge, discriminability(judge, own, own_counts, labels, classes)


def discriminability(
    judge: PyTree,
    buffers: Float[Array, "n size feat"],
    counts: Int[Array, " n"],
    labels: Int[Array, " n"],
    classes: Bool[Array, " capacity"],
) -> Float[Array, "n 2"]:
    """Means of q(z | s) and of log q(z | s) over the state buffer of z; 0 for an empty buffer.

    The first is d(z) of Sect. 3.4.
    """
    log_prob = judge.log_prob(buffers, classes)
    own = jnp.take_along_axis(log_prob, labels[:, None, None], axis=2)[..., 0]
    filled = jnp.arange(buffers.shape[1]) < counts[:, None]
    both = jnp.stack([jnp.exp(own), jnp.maximum(own, LEAST)], axis=-1)
    return (
        jnp.sum(jnp.where(filled[..., None], both, 0.0), axis=1) / jnp.maximum(counts, 1)[:, None]
    )


def _merge(share: Bool[Array, " n"], ones: PyTree, others: PyTree) -> PyTree:
    """The slots that `share` marks from `ones`, the rest from `others`."""
    pick = lambda a, b: jnp.where(share.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
    return jax.tree.map(pick, ones, others)


@functools.cache
def _thread(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, f"learn-{number}")


@functools.lru_cache(maxsize=8)
def programs(env: World, method: Method) -> Programs:
    """The programs of a method on an environment; runs with other seeds share them."""
    return Programs(env, method)
