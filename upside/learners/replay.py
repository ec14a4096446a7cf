"""The replay buffer of one expansion, shared by siblings (App. B): whole episodes in a ring.

An episode keeps its transitions, directed ones or all, packed in one row each (one gather per batch), and the
states that judge it (𝒥 of Eq. 2). Rewards are not stored: they are recomputed in bulk from the
judged states whenever the discriminator has changed. flashbax offers neither packing nor
relabelling, and cannot restore a buffer exactly; this is 60 lines.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from upside.learners.td3 import Batch
from upside.types import Trajectory


class Replay(eqx.Module):
    """`rows` holds obs | action | next_obs | done."""

    rows: Float[Array, "episodes length width"]
    judged: Float[Array, "episodes J feat"]
    size: Int[Array, ""]
    cursor: Int[Array, ""]
    observation_size: int = eqx.field(static=True)

    @property
    def action_size(self) -> int:
        return self.rows.shape[-1] - 2 * self.observation_size - 1

    def added(self) -> int:
        """How many episodes must have been added at least for it to be as it is."""
        size, cursor = int(self.size), int(self.cursor)
        return size + cursor if size == len(self.rows) else size

    def cleared(self) -> Replay:
        """Empty, without touching the memory."""
        return eqx.tree_at(lambda r: (r.size, r.cursor), self, (_zero(), _zero()))


def init(episodes: int, T: int, J: int, observation: int, action: int, features: int) -> Replay:
    rows = jnp.zeros((episodes, T, 2 * observation + action + 1))
    return Replay(rows, jnp.zeros((episodes, J, features)), _zero(), _zero(), observation)


def _zero() -> Int[Array, ""]:
    return jnp.asarray(np.int32(0))


def add(
    replay: Replay,
    episodes: Trajectory,
    judged: Float[Array, "n J feat"],
    keep: Bool[Array, " n"],
    ends: bool = True,
) -> Replay:
    """Append the episodes that `keep` marks; the oldest ones make room.

    The skill's MDP ends with its T-th step if `ends` (its return is what is judged afterwards,
    Eq. 2). A state in which the environment has ended is absorbing: the skill is judged there.
    """
    capacity, T, _ = replay.rows.shape
    obs = episodes.obs[:, : T + 1]
    last = ((jnp.arange(T) == T - 1) & ends).astype(float)
    done = jnp.broadcast_to(last[:, None], (*obs.shape[:1], T, 1))
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


def index(replay: Replay, draws: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """The transitions that uniform `draws` in [0, 1) stand for, counted through the episodes."""
    stored = replay.size * replay.rows.shape[1]
    return jnp.minimum((draws * stored).astype(int), stored - 1)


def gather(replay: Replay, index: Int[Array, "*b"], paid: Float[Array, "*b 2"]) -> Batch:
    """The transitions at `index`, with one skill's reward and achieved return."""
    row = replay.rows.reshape(-1, replay.rows.shape[-1])[index]
    o, a = replay.observation_size, replay.action_size
    return Batch(
        obs=row[..., :o],
        action=row[..., o : o + a],
        reward=paid[..., 0],
        next_obs=row[..., o + a : -1],
        done=row[..., -1],
        achieved=paid[..., 1],
        repeat=jnp.maximum(paid[..., 1], 0.0),
    )


def returns(rewards: Float[Array, "*n T"], gamma: float) -> Float[Array, "*n T"]:
    """Discounted sums of the rewards that follow: R_t = r_t + γ R_{t+1}."""
    T = rewards.shape[-1]
    ahead = jnp.arange(T)[:, None] - jnp.arange(T)
    return rewards @ jnp.where(ahead >= 0, gamma ** ahead.astype(float), 0.0)
