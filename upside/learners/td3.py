"""TD3 (Fujimoto et al., 2018) for ONE skill. The engine goes through the skills in training.

A learner is a configuration with `init`, `update` and the kind of its actor.

Observations arrive centred and scaled by the skill's own `Actor.center` and `Actor.scale`, so
actor and critic see the same numbers.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from upside.nets import MLP, Actor, TwinCritic, adam, adam_state, polyak
from upside.types import at_least, at_most


@dataclasses.dataclass(frozen=True)
class TD3:
    """How a skill learns. The paper's ranges are those of App. C, "common hyper-parameters"."""

    hidden: int = 64
    """Units in each of the two hidden layers of actor and critics (paper: 64 mazes, 256 control)."""
    gamma: float = 0.99
    """Discount factor γ."""
    tau: float = 0.05
    """Soft-update temperature τ of the target networks (paper: 0.005)."""
    sigma: float = 0.2
    """Standard deviation of the exploration noise (paper: one of 0.1, 0.15, 0.2)."""
    lr_pol: float = 1e-3
    """Adam step size of actor and critics (paper: 1e-3 or 1e-4)."""
    batch_pol: int = 64
    """Transitions per update (paper: 64)."""
    target_noise: float = 0.2
    """Standard deviation of the target policy's smoothing noise (TD3's own default)."""
    noise_clip: float = 0.5
    """Bound of that smoothing noise (TD3's own default)."""
    policy_delay: int = 2
    """Critic updates per actor update (TD3's own default)."""
    self_imitation: bool = True
    """Never value an action below the return its own episode achieved (Oh et al., 2018; paper: off)."""

    imitation: float = 0.0
    """Weight of the actor's own self-imitation: towards the actions of its best episode so far (paper: 0)."""
    snap: float = 1.0
    """Actions beyond this are executed at their bound, so that what is nearly repeated is repeated; 1: none (paper)."""

    words: ClassVar[str] = "TD3"
    actor: ClassVar[type[Actor]] = Actor

    def init(
        self,
        center: Float[np.ndarray, " obs"],
        scale: Float[np.ndarray, " obs"],
        action_size: int,
        rng: np.random.Generator,
    ) -> State:
        """A skill that knows nothing, and sees the world from `center` in units of `scale`."""
        mlp = MLP((center.size, self.hidden, self.hidden, action_size), rng)
        actor = self.acts(mlp, jnp.asarray(center), jnp.asarray(scale))
        critic = TwinCritic(center.size + action_size, self.hidden, rng)
        return State(actor, critic, actor, critic, adam_state(actor.mlp), adam_state(critic))

    def acts(self, mlp: MLP, center: Array, scale: Array) -> Actor:
        """The actor of that network."""
        return self.actor(mlp, center, scale, self.snap)

    def paid_in(self, unit: float) -> TD3:
        """The learner of rewards that are multiplied by `unit`: nothing else has their size."""
        return self

    def draws(self, action_size: int) -> int:
        """Normal numbers that an update needs per transition."""
        return action_size

    def update(
        self,
        state: State,
        batches: Batch,
        noise: Float[Array, "delay b act"],
        moves: ArrayLike = 1.0,
    ) -> State:
        """`policy_delay` critic updates on as many batches, then one actor update on the last.

        Unrolled rather than behind a `cond` on a counter: nothing is computed and thrown away.
        """
        next_actions = targets(self, state, batches, noise)
        for i in range(self.policy_delay):
            batch = jax.tree.map(lambda leaf, i=i: leaf[i], batches)
            state = update_critic(self, state, batch, next_actions[i])
        return update_actor(self, state, batch, moves)

    def value(self, state: State, obs: Float[Array, "*b obs"]) -> Float[Array, "*b"]:
        """V(s) = min_i Q'_i(s, π'(s)), by the target networks."""
        return jnp.min(state.critic_target(obs, state.actor_target.squash(obs)), axis=0)

    def begin(self, state: State, actor: Actor) -> State:
        """Go on from an actor that exists; what it is worth is not known yet."""
        return dataclasses.replace(state, actor=actor, actor_target=actor)

    def check(self) -> None:
        at_least(self, 1, "hidden", "batch_pol", "policy_delay")
        at_least(
            self,
            0,
            "gamma",
            "tau",
            "sigma",
            "lr_pol",
            "target_noise",
            "noise_clip",
            "imitation",
            "snap",
        )
        at_most(self, 1, "gamma", "tau", "snap")


class Batch(NamedTuple):
    """Transitions with the reward of one skill. `done` ends the skill's MDP: nothing is bootstrapped."""

    obs: Float[Array, "*b obs"]
    action: Float[Array, "*b act"]
    reward: Float[Array, "*b"]
    next_obs: Float[Array, "*b obs"]
    done: Float[Array, "*b"]
    achieved: Float[Array, "*b"]
    """Discounted return that the rest of the stored episode did achieve, with the same reward."""
    repeat: Float[Array, "*b"]
    """How much the action is to be repeated, where the learner imitates."""


class State(eqx.Module):
    """Networks, targets and optimisers of one skill travel together."""

    actor: Actor
    critic: TwinCritic
    actor_target: Actor
    critic_target: TwinCritic
    actor_opt: PyTree
    critic_opt: PyTree


def targets(
    config: TD3, state: State, batches: Batch, noise: Float[Array, "*n act"]
) -> Float[Array, "*n act"]:
    """The target policy's smoothed actions π'(s') + ε, for all batches until the actor moves again."""
    noise = jnp.clip(config.target_noise * noise, -config.noise_clip, config.noise_clip)
    return jnp.clip(state.actor_target.squash(batches.next_obs) + noise, -1.0, 1.0)


def critic_loss(
    critic: TwinCritic,
    state: State,
    batch: Batch,
    next_action: Float[Array, "b act"],
    config: TD3,
) -> Float[Array, ""]:
    """Squared error of both critics to y = r + γ (1 - done) min_i Q'_i(s', π'(s') + ε).

    With `self_imitation`, y is at least what the episode achieved from there on. A reward at the
    end of T steps then reaches the first of them at once, not after T soft updates of the targets.
    """
    next_q = jnp.min(state.critic_target(batch.next_obs, next_action), axis=0)
    target = batch.reward + config.gamma * (1.0 - batch.done) * next_q
    if config.self_imitation:
        target = jnp.maximum(target, batch.achieved)
    error = critic(batch.obs, batch.action) - jax.lax.stop_gradient(target)
    return jnp.mean(jnp.sum(error**2, axis=0))


def actor_loss(mlp: PyTree, state: State, batch: Batch, imitation: float) -> Float[Array, ""]:
    """-E[Q_1(s, π(s))] (deterministic policy gradient).

    With `imitation`, also the squared distance to the stored action times `repeat`: in discovery, what its episode
    achieved. Oh et al. (2018) take what it achieved beyond the critic's own value; a critic that values too much then
    switches it off, and where a small error grows with every step, an action must be repeated well.
    """
    actor = eqx.tree_at(lambda a: a.mlp, state.actor, mlp)
    action = actor.squash(batch.obs)
    expected = state.critic.first(batch.obs, action)
    if not imitation:
        return -jnp.mean(expected)
    away = jnp.sum((action - batch.action) ** 2, axis=-1)
    return jnp.mean(imitation * batch.repeat * away - expected)


def update_critic(config: TD3, state: State, batch: Batch, next_action: Array) -> State:
    """One gradient step of both critics, and their targets' soft update."""
    grads = jax.grad(critic_loss)(state.critic, state, batch, next_action, config)
    critic, opt = adam(state.critic, grads, state.critic_opt, config.lr_pol)
    target = polyak(state.critic_target, critic, config.tau)
    return dataclasses.replace(state, critic=critic, critic_opt=opt, critic_target=target)


def update_actor(config: TD3, state: State, batch: Batch, moves: ArrayLike) -> State:
    """One gradient step of the actor and its target; `moves` = 0 holds it (critic warm-up)."""
    grads = jax.grad(actor_loss)(state.actor.mlp, state, batch, config.imitation)
    mlp, opt = adam(state.actor.mlp, grads, state.actor_opt, config.lr_pol * moves)
    target = polyak(state.actor_target.mlp, mlp, config.tau)
    return dataclasses.replace(
        state,
        actor=eqx.tree_at(lambda a: a.mlp, state.actor, mlp),
        actor_target=eqx.tree_at(lambda a: a.mlp, state.actor_target, target),
        actor_opt=opt,
    )
