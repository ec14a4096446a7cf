"""SAC (Haarnoja et al., 2018) for ONE skill, in TD3's place: the paper's footnote on DIAYN-SAC.

The temperature is fixed, as in DIAYN's own experiments: its entropy term, which a deterministic
policy has no use for, is this learner's.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from upside.learners.td3 import Batch
from upside.nets import MLP, GaussianActor, TwinCritic, adam, adam_state, polyak
from upside.types import at_least, at_most


@dataclasses.dataclass(frozen=True)
class SAC:
    """How a skill learns, with an entropy bonus on its actions."""

    hidden: int = 64
    """Units in each of the two hidden layers of actor and critics (paper: 64 mazes, 256 control)."""
    gamma: float = 0.99
    """Discount factor γ."""
    tau: float = 0.005
    """Soft-update temperature τ of the target networks (paper: 0.005)."""
    lr_pol: float = 1e-3
    """Adam step size of actor and critics (paper: 1e-3 or 1e-4)."""
    batch_pol: int = 64
    """Transitions per update (paper: 64)."""
    alpha: float = 0.1
    """Weight of the actions' entropy, in the unit that rewards are paid in (DIAYN's own value)."""

    words: ClassVar[str] = "SAC"
    actor: ClassVar[type[GaussianActor]] = GaussianActor
    policy_delay: ClassVar[int] = 1
    sigma: ClassVar[float] = 1.0
    """Exploration is the policy's own randomness."""
    self_imitation: ClassVar[bool] = False
    imitation: ClassVar[float] = 0.0

    def init(
        self,
        center: Float[np.ndarray, " obs"],
        scale: Float[np.ndarray, " obs"],
        action_size: int,
        rng: np.random.Generator,
    ) -> State:
        mlp = MLP((center.size, self.hidden, self.hidden, 2 * action_size), rng)
        critic = TwinCritic(center.size + action_size, self.hidden, rng)
        actor = self.acts(mlp, jnp.asarray(center), jnp.asarray(scale))
        return State(actor, critic, critic, adam_state(mlp), adam_state(critic))

    def acts(self, mlp: MLP, center: Array, scale: Array) -> GaussianActor:
        """The actor of that network."""
        return self.actor(mlp, center, scale)

    def paid_in(self, unit: float) -> SAC:
        """The learner of rewards that are multiplied by `unit`: so is the entropy beside them."""
        return dataclasses.replace(self, alpha=self.alpha * unit)

    def draws(self, action_size: int) -> int:
        """One action for the target, one for the actor."""
        return 2 * action_size

    def update(
        self, state: State, batches: Batch, noise: Float[Array, "1 b draws"], moves: ArrayLike = 1.0
    ) -> State:
        """One update of the critics, one of the actor (`moves` = 0 holds it)."""
        batch = jax.tree.map(lambda leaf: leaf[0], batches)
        for_critic, for_actor = jnp.split(noise[0], 2, axis=-1)
        grads = jax.grad(critic_loss)(state.critic, state, batch, for_critic, self)
        critic, critic_opt = adam(state.critic, grads, state.critic_opt, self.lr_pol)
        state = dataclasses.replace(
            state,
            critic=critic,
            critic_opt=critic_opt,
            critic_target=polyak(state.critic_target, critic, self.tau),
        )
        grads = jax.grad(actor_loss)(state.actor.mlp, state, batch, for_actor, self)
        mlp, actor_opt = adam(state.actor.mlp, grads, state.actor_opt, self.lr_pol * moves)
        actor = eqx.tree_at(lambda a: a.mlp, state.actor, mlp)
        return dataclasses.replace(state, actor=actor, actor_opt=actor_opt)

    def value(self, state: State, obs: Float[Array, "*b obs"]) -> Float[Array, "*b"]:
        """V(s) = min_i Q'_i(s, a) at the policy's mean."""
        return jnp.min(state.critic_target(obs, state.actor.squash(obs)), axis=0)

    def begin(self, state: State, actor: GaussianActor) -> State:
        """Go on from an actor that exists; what it is worth is not known yet."""
        return dataclasses.replace(state, actor=actor)

    def check(self) -> None:
        at_least(self, 1, "hidden", "batch_pol")
        at_least(self, 0, "gamma", "tau", "lr_pol", "alpha")
        at_most(self, 1, "gamma", "tau")


class State(eqx.Module):
    """Networks, targets and optimisers of one skill travel together."""

    actor: GaussianActor
    critic: TwinCritic
    critic_target: TwinCritic
    actor_opt: PyTree
    critic_opt: PyTree


def sample(
    actor: GaussianActor, obs: Float[Array, "b obs"], noise: Float[Array, "b act"]
) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
    """An action a = tanh(u) and log π(a | s) = log N(u) - Σ log(1 - tanh² u) (their App. C)."""
    mean, log_std = actor.gaussian(obs)
    u = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    # log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u)), which does not underflow
    squash = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.tanh(u), jnp.sum(log_normal - squash, axis=-1)


def critic_loss(
    critic: TwinCritic, state: State, batch: Batch, noise: Float[Array, "b act"], config: SAC
) -> Float[Array, ""]:
    """Squared error of both critics to y = r + γ (1 - done) (min_i Q'_i(s', a') - α log π(a' | s'))."""
    action, log_prob = sample(state.actor, batch.next_obs, noise)
    next_q = jnp.min(state.critic_target(batch.next_obs, action), axis=0) - config.alpha * log_prob
    target = batch.reward + config.gamma * (1.0 - batch.done) * next_q
    error = critic(batch.obs, batch.action) - jax.lax.stop_gradient(target)
    return jnp.mean(jnp.sum(error**2, axis=0))


def actor_loss(
    mlp: PyTree, state: State, batch: Batch, noise: Float[Array, "b act"], config: SAC
) -> Float[Array, ""]:
    """E[α log π(a | s) - min_i Q_i(s, a)] with a = a(s, noise)."""
    actor = eqx.tree_at(lambda a: a.mlp, state.actor, mlp)
    action, log_prob = sample(actor, batch.obs, noise)
    q = jnp.min(state.critic(batch.obs, action), axis=0)
    return jnp.mean(config.alpha * log_prob - q)
