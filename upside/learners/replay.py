"""The replay buffer of one expansion, shared by siblings (App. B): whole episodes in a ring.

An episode keeps its directed transitions packed in one row each (one gather per batch), and the
states that judge it (𝒥 of Eq. 2). Rewards are not stored: they are recomputed in bulk from the
judged states whenever the discriminator has changed. flashbax offers neither packing nor
relabelling, and cannot restore a buffer exactly; this is 60 lines.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from upside.learners.td3 import Batch
from upside.types import Trajectory


class Replay(eqx.Module):
    """`rows` holds obs | action | next_obs | done."""

    rows: Float[Array, "episodes T width"]
    judged: Float[Array, "episodes J feat"]
    size: Int[Array, ""]
    cursor: Int[Array, ""]
    observation_size: int = eqx.field(static=True)


def init(episodes: int, T: int, J: int, observation: int, action: int, features: int) -> Replay:
    rows = jnp.zeros((episodes, T, 2 * observation + action + 1))
    zero = jnp.zeros((), int)
    return Replay(rows, jnp.zeros((episodes, J, features)), zero, zero, observation)


def clear(replay: Replay) -> Replay:
    """Empty it without touching the memory."""
    return eqx.tree_at(lambda r: (r.size, r.cursor), replay, (replay.size * 0, replay.cursor * 0))


def add(
    replay: Replay,
    episodes: Trajectory,
    judged: Float[Array, "n J feat"],
    keep: Bool[Array, " n"],
) -> Replay:
    """Append the episodes that `keep` marks; the oldest ones make room.

    The skill's MDP ends with its T-th step (its return is what is judged afterwards, Eq. 2), or
    where the environment itself terminated.
    """
    capacity, T, _ = replay.rows.shape
    last = jnp.arange(T) == T - 1
    done = (episodes.terminated[:, :T] | last).astype(float)[..., None]
    obs = episodes.obs[:, : T + 1]
    rows = jnp.concatenate([obs[:, :-1], episodes.action[:, :T], obs[:, 1:], done], axis=-1)
    target = (replay.cursor + jnp.cumsum(keep) - 1) % capacity
    target = jnp.where(keep, target, capacity)  # out of range: dropped
    added = jnp.sum(keep)
    return Replay(
        replay.rows.at[target].set(rows, mode="drop"),
        replay.judged.at[target].set(judged, mode="drop"),
        jnp.minimum(replay.size + added, capacity),
        (replay.cursor + added) % capacity,
        replay.observation_size,
    )


def gather(
    replay: Replay,
    rewards: Float[Array, "episodes T 2"],
    draws: Float[Array, " b"],
) -> Batch:
    """The transitions at uniform `draws` in [0, 1), with one skill's reward and achieved return."""
    _, T, width = replay.rows.shape
    index = jnp.minimum((draws * (replay.size * T)).astype(int), replay.size * T - 1)
    row = replay.rows.reshape(-1, width)[index]
    o, a = replay.observation_size, width - 2 * replay.observation_size - 1
    paid = rewards.reshape(-1, 2)[index]
    next_obs = row[:, o + a : -1]
    return Batch(row[:, :o], row[:, o : o + a], paid[:, 0], next_obs, row[:, -1], paid[:, 1])


def returns(rewards: Float[Array, "*n T"], gamma: float) -> Float[Array, "*n T"]:
    """Discounted sums of the rewards that follow: R_t = r_t + γ R_{t+1}."""
    T = rewards.shape[-1]
    ahead = jnp.arange(T)[:, None] - jnp.arange(T)
    return rewards @ jnp.where(ahead >= 0, gamma ** ahead.astype(float), 0.0)
