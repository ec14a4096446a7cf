"""What a skill is paid: Eq. 2 as two choices, which states judge it (𝒥) and how their score is paid.

| method | 𝒥 | score of a state |
|---|---|---|
| UPSIDE | diffusing part | q_φ(z | s), in [0, 1] (footnote of Sect. 3.4) |
| DIAYN | every state | log q_φ(z | s) - log ρ(z) |
| SMM | every state | the same, and log p*(s) - log ρ_z(s) |
| VIC | final state | log q_φ(z | s) - log ρ(z), with ρ learned |
| EDL | every state | log q(s | z) of a decoder |
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from upside.learners.replay import Replay
from upside.models import density
from upside.skills.plan import Plan
from upside.types import Space, Trajectory, UserError, at_least

CHUNK = 64  # episodes relabelled at once


class Scores(eqx.Module):
    """What is known about states, for the slots in training: the judge, ρ and recent densities."""

    judge: Any
    classes: Bool[Array | np.ndarray, " capacity"]
    labels: Int[Array | np.ndarray, " n"]
    log_rho: Float[Array | np.ndarray, " n"]
    recent: Float[Array | np.ndarray, "n size feat"]
    """Judged states of each skill's latest episodes."""
    recent_counts: Int[Array | np.ndarray, " n"]

    def log_q(self, features: Float[Array, "*batch feat"]) -> Float[Array, "*batch n"]:
        """log q(z | s) of the classes in training."""
        return self.judge.log_prob(features, self.classes)[..., self.labels]


class Table(eqx.Module):
    """What the last steps of every stored episode are worth to every slot: one at the skill's end, or those of 𝒥."""

    worth: Float[Array, "n episodes paid"]
    length: int = eqx.field(static=True)
    """Steps of an episode that are stored."""
    gamma: float = eqx.field(static=True)

    def at(self, slot: Int[Array, "*#b"], index: Int[Array, "*b"]) -> Float[Array, "*b 2"]:
        """Reward and achieved return, for the skill in `slot`, of transitions counted through the episodes.

        What was achieved is known where all is paid at the end.
        """
        paid = self.worth.shape[-1]
        t = index % self.length
        which = jnp.maximum(t - (self.length - paid), 0)
        worth = self.worth[slot, index // self.length, which]
        reward = jnp.where(t >= self.length - paid, worth, 0.0)
        if paid > 1:
            return jnp.stack([reward, jnp.full_like(reward, -jnp.inf)], axis=-1)
        discount = self.gamma ** jnp.arange(self.length - 1, -1, -1).astype(float)
        return jnp.stack([reward, discount[t] * worth], axis=-1)

    def best(self, slot: Int[Array, ""], index: Int[Array, "*b"]) -> Int[Array, "*b"]:
        """The same steps of the episode that would have earned the skill in `slot` most."""
        return jnp.argmax(jnp.sum(self.worth[slot], axis=-1)) * self.length + index % self.length


class Lookup(eqx.Module):
    """The reward of a transition, computed when it is drawn: most of a large buffer never is."""

    scores: Scores
    judged: Float[Array, "episodes J feat"]
    densities: Float[Array, "n buckets"]
    """log ρ_z of each skill's recent states over buckets; none if nobody asks."""
    T: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    reward: StateReward = eqx.field(static=True)
    unit: float = eqx.field(static=True)
    """What a reward is multiplied by."""

    def best(self, slot: Int[Array, ""], index: Int[Array, "*b"]) -> Int[Array, "*b"]:
        """Nothing is known of whole episodes."""
        return index

    def at(self, slot: Int[Array, "*#b"], index: Int[Array, "*b"]) -> Float[Array, "*b 2"]:
        episode, t = index // self.T, index % self.T
        final = self.reward.states == "final"  # one judged state an episode, otherwise one a step
        features = self.judged.reshape(-1, self.judged.shape[-1])[episode if final else index]
        reward = self.unit * self.reward.score(self, slot, features)
        reward = jnp.where((t == self.T - 1) | (not final), reward, 0.0)
        return jnp.stack([reward, jnp.full_like(reward, -jnp.inf)], axis=-1)


@dataclasses.dataclass(frozen=True)
class DiffusingReward:
    """UPSIDE: 𝒥 = {T+1, …, T+H}, the states of the diffusing part."""

    paid: Literal["end", "each"] = "end"
    """What is paid: 𝒥's mean score at the skill's end, or each diffusing step for its own state, learned from too."""

    novelty: ClassVar[float] = 0.0
    prior: ClassVar[str] = "uniform"

    @property
    def words(self) -> str:
        """For the table of methods."""
        return "diffusing states" if self.ends else "diffusing states, each"

    @property
    def ends(self) -> bool:
        """Whether the skill's MDP ends with its T-th step: its return is then what is judged afterwards.

        Paid for each state, the diffusing steps belong to it and the end of the episode is a cut.
        """
        return self.paid == "end"

    @property
    def returns(self) -> bool:
        """Whether a stored step has a return to imitate; what chance does afterwards is none."""
        return self.ends

    def unit(self, gamma: float) -> float:
        """Paid in full."""
        return 1.0

    def length(self, plan: Plan) -> int:
        """Steps of an episode that are learned from."""
        return plan.T if self.ends else plan.steps

    def count(self, plan: Plan) -> int:
        """|𝒥|."""
        return plan.H

    def judged(self, plan: Plan, episodes: Trajectory) -> Float[Array, "*n J feat"]:
        """The states of 𝒥."""
        return jnp.asarray(episodes.features)[..., plan.T :, :]

    def total(
        self, plan: Plan, space: Space, states: Float[Array, "n e J feat"], scores: Scores
    ) -> Float[Array, "n e"]:
        """What each episode of each skill earns, from its judged states."""
        log_q = jax.vmap(lambda s, z: scores.judge.log_prob(s, scores.classes)[..., z])
        return jnp.mean(jnp.exp(log_q(states, jnp.asarray(scores.labels))), axis=-1)

    def unpaid(self, plan: Plan, replay: Replay, n: int, gamma: float) -> Table:
        """Before anything is relabelled, nothing is worth anything."""
        shape = (n, len(replay.rows), 1 if self.ends else self.count(plan))
        return Table(jnp.asarray(np.zeros(shape, np.float32)), self.length(plan), gamma)

    def relabel(
        self,
        plan: Plan,
        space: Space,
        replay: Replay,
        scores: Scores,
        gamma: float,
        known: Any,
        first: Int[Array, ""],
        number: Int[Array, ""],
    ) -> Table:
        """`number` episodes of the ring from the `first` on, for every sibling: they share the judge's forward pass."""
        capacity = len(replay.rows)
        width = min(CHUNK, capacity)
        chunks = (first % width + number + width - 1) // width + (first + number > capacity)

        def chunk(i: Array, worth: Array) -> Array:
            start = (first // width + i) % -(-capacity // width) * width
            start = jnp.minimum(start, capacity - width)
            judged = jax.lax.dynamic_slice_in_dim(replay.judged, start, width)
            q = jnp.exp(scores.log_q(judged))
            q = jnp.mean(q, axis=1, keepdims=True) if self.ends else q
            filled = start + jnp.arange(width) < replay.size
            paid = jnp.moveaxis(jnp.where(filled[:, None, None], q, 0.0), -1, 0)
            return jax.lax.dynamic_update_slice_in_dim(worth, paid, start, axis=1)

        worth = jax.lax.fori_loop(0, chunks, chunk, known.worth)
        return dataclasses.replace(known, worth=worth)

    def check(self, plan: Plan) -> None:
        at_least(plan, 1, "H")
        if self.paid not in ("end", "each"):
            raise UserError(f"--paid {self.paid} is neither end nor each")


@dataclasses.dataclass(frozen=True)
class StateReward:
    """DIAYN, SMM, VIC, EDL: the states of the directed part are scored themselves."""

    returns: ClassVar[bool] = False
    states: Literal["all", "final"] = "all"
    """𝒥: every state of the skill (DIAYN) or its final one (VIC)."""
    prior: Literal["uniform", "learned"] = "uniform"
    """ρ, how often each skill is sampled: uniform (DIAYN) or learned (VIC)."""
    novelty: float = 0.0
    """Weight of SMM's exploration bonus log p*(s) - log ρ_z(s), with p* uniform over buckets."""
    average: bool = False
    """Pay 1 - γ of a step's score, so that values are averages of it and not sums (EDL; docs/baselines.md)."""

    @property
    def words(self) -> str:
        """For the table of methods."""
        more = {"ρ learned": self.prior == "learned", "novelty": self.novelty}
        states = "all states" if self.states == "all" else "final state"
        return ", ".join([states, *(word for word, there in more.items() if there)])

    @property
    def ends(self) -> bool:
        """Paid at every step, the task goes on when the episode is cut: the last step is bootstrapped."""
        return self.states == "final"

    def unit(self, gamma: float) -> float:
        """What a reward is multiplied by.

        Summed over an endless task, one at every step makes values of 1 / (1 - γ) times its size. A
        critic needs long to get there, and by then the actor's tanh has saturated: DIAYN's skills
        run to the walls and are told apart there, which suits them; EDL's all end in one corner.
        """
        return 1.0 - gamma if self.average and not self.ends else 1.0

    def length(self, plan: Plan) -> int:
        return plan.T

    def count(self, plan: Plan) -> int:
        return plan.T if self.states == "all" else 1

    def judged(self, plan: Plan, episodes: Trajectory) -> Float[Array, "*n J feat"]:
        return jnp.asarray(episodes.features)[..., plan.T - self.count(plan) : plan.T, :]

    def score(
        self, known: Lookup, slot: Int[Array, "*#b"], features: Float[Array, "*b feat"]
    ) -> Float[Array, "*b"]:
        """What a state is worth for the skill in `slot`."""
        scores = known.scores
        slot = jnp.broadcast_to(slot, features.shape[:-1])
        label = jnp.asarray(scores.labels)[slot]
        worth = scores.judge.log_score(features, scores.classes)
        worth = jnp.take_along_axis(worth, label[..., None], axis=-1)[..., 0]
        worth = worth - jnp.asarray(scores.log_rho)[slot]
        if self.novelty:
            dense = known.densities[slot, density.cells(known.space, features)]
            worth = worth - self.novelty * dense
        return worth

    def total(
        self, plan: Plan, space: Space, states: Float[Array, "n e J feat"], scores: Scores
    ) -> Float[Array, "n e"]:
        """What each episode of each skill earns: the sum over its judged states."""
        known = self._lookup(plan, space, states.reshape(-1, *states.shape[2:]), scores, 1.0)
        slots = jnp.broadcast_to(jnp.arange(states.shape[0])[:, None, None], states.shape[:-1])
        return jnp.sum(self.score(known, slots, states), axis=-1)

    def unpaid(self, plan: Plan, replay: Replay, n: int, gamma: float) -> None:
        """Nothing is kept: rewards are computed when they are drawn."""

    def relabel(
        self,
        plan: Plan,
        space: Space,
        replay: Replay,
        scores: Scores,
        gamma: float,
        known: Any,
        first: Int[Array, ""],
        number: Int[Array, ""],
    ) -> Lookup:
        return self._lookup(plan, space, replay.judged, scores, self.unit(gamma))

    def _lookup(
        self, plan: Plan, space: Space, judged: Array, scores: Scores, unit: float
    ) -> Lookup:
        densities = jnp.zeros((scores.labels.size, 0))
        if self.novelty:
            densities = density.fit(space, scores.recent, scores.recent_counts)
        return Lookup(scores, judged, densities, plan.T, space, self, unit)

    def check(self, plan: Plan) -> None:
        at_least(self, 0, "novelty")
        if self.average and self.ends:
            raise UserError("--average needs a reward at every step: leave it out, or --states all")
        if plan.H:
            raise UserError(f"--H {plan.H}: a method without a diffusing part needs --H 0")
