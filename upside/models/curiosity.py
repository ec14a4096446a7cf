"""Curiosity (ICM, Pathak et al., 2017): a bonus where a model of the environment is still surprised.

States are encoded by φ; an inverse model names the action between two codes, a forward model the next
code. Both are trained together, and the forward model's error is the bonus.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from upside.nets import MLP, adam, adam_state
from upside.types import at_least, at_most


class Transitions(eqx.Module):
    """What the models see: observations in the learner's own units."""

    obs: Float[Array, "*b obs"]
    action: Float[Array, "*b act"]
    next_obs: Float[Array, "*b obs"]


@dataclasses.dataclass(frozen=True)
class NoBonus:
    """Nothing but the task's own reward."""

    def init(self, obs: int, act: int, rng: np.random.Generator) -> None:
        """Nothing to remember."""

    def fit(self, state: None, seen: Transitions) -> None:
        """Nothing to learn."""

    def pay(self, state: None, seen: Transitions, gamma: float) -> ArrayLike:
        return 0.0

    def check(self) -> None:
        """Nothing can be wrong."""


@dataclasses.dataclass(frozen=True)
class ICM:
    """The intrinsic curiosity module. Its paper works on images; the sizes here are those of the skills."""

    code: int = 16
    """Numbers in a state's code φ(s)."""
    hidden_icm: int = 64
    """Units of each hidden layer."""
    lr_icm: float = 1e-3
    """Adam step size (ICM's paper: 1e-3)."""
    beta_icm: float = 0.2
    """β, the forward model's share of the loss (ICM's paper: 0.2)."""
    weight: float = 1.0
    """The bonus is this times (1 - γ) where the surprise is as large as usual: its return is of the order of a goal's."""

    def init(self, obs: int, act: int, rng: np.random.Generator) -> State:
        h, c = self.hidden_icm, self.code
        models = Models(MLP((obs, h, c), rng), MLP((2 * c, h, act), rng), MLP((c + act, h, c), rng))
        return State(models, adam_state(models), jnp.asarray(np.float32(1.0)))

    def fit(self, state: State, seen: Transitions) -> State:
        """One update of encoder, inverse and forward model on a batch."""
        grads = jax.grad(loss)(state.models, seen, self.beta_icm)
        models, opt = adam(state.models, grads, state.opt, self.lr_icm)
        usual = state.usual + 0.01 * (jnp.mean(surprise(models, seen)) - state.usual)
        return State(models, opt, usual)

    def pay(self, state: State, seen: Transitions, gamma: float) -> Float[Array, "*b"]:
        """The forward model's error, in units of its usual size."""
        share = surprise(state.models, seen) / jnp.maximum(state.usual, 1e-8)
        return self.weight * (1.0 - gamma) * share

    def check(self) -> None:
        at_least(self, 1, "code", "hidden_icm")
        at_least(self, 0, "lr_icm", "beta_icm", "weight")
        at_most(self, 1, "beta_icm")


class Models(eqx.Module):
    encode: MLP
    invert: MLP
    predict: MLP


class State(eqx.Module):
    """Models, their optimiser, and a running mean of the surprise."""

    models: Models
    opt: Any
    usual: Float[Array, ""]


def surprise(models: Models, seen: Transitions) -> Float[Array, "*b"]:
    """½ ‖φ̂(s') - φ(s')‖², with φ̂ predicted from φ(s) and the action."""
    code, after = models.encode(seen.obs), models.encode(seen.next_obs)
    predicted = models.predict(jnp.concatenate([code, seen.action], axis=-1))
    return 0.5 * jnp.sum((predicted - after) ** 2, axis=-1)


def loss(models: Models, seen: Transitions, beta: float) -> Float[Array, ""]:
    """(1 - β) L_inverse + β L_forward."""
    code, after = models.encode(seen.obs), models.encode(seen.next_obs)
    named = models.invert(jnp.concatenate([code, after], axis=-1))
    inverse = jnp.mean(jnp.sum((named - seen.action) ** 2, axis=-1))
    return (1.0 - beta) * inverse + beta * jnp.mean(surprise(models, seen))
