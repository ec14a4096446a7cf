"""The networks of App. C: two hidden layers, one network per skill, no weights shared.

Parameters are plain Equinox modules for ONE skill; whoever trains several stacks and maps them.
"""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

Rows = Array | np.ndarray


def namespace(*arrays: Rows) -> Any:
    """NumPy for NumPy's arrays, JAX for all others.

    A simulator on the host asks for one small action at a time: to call a compiled program takes several times as
    long as its products, and longer still when several threads do.
    """
    return np if all(isinstance(array, np.ndarray) for array in arrays) else jnp


def _relu(x: Any) -> Any:
    return np.maximum(x, 0.0)


class MLP(eqx.Module):
    """ReLU layers with a linear read-out, on a batch of rows.

    `equinox.nn.MLP` maps over rows with `vmap`, which XLA turns into a transposed product on the
    CPU; a row-major `x @ w + b` costs 20 % less at the paper's sizes, and this is the hot loop.
    """

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator):
        """Uniform fan-in initialisation (PyTorch's default, and so the paper's).

        Drawn with NumPy: every random draw under `jit` costs a third of a second to compile.
        """
        weights, biases = [], []
        for fan_in, fan_out in itertools.pairwise(sizes):
            bound = 1.0 / fan_in**0.5
            weights.append(rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32))
            biases.append(rng.uniform(-bound, bound, fan_out).astype(np.float32))
        self.weights = tuple(map(jnp.asarray, weights))
        self.biases = tuple(map(jnp.asarray, biases))

    def __call__(self, x: Float[Rows, "*batch i"]) -> Float[Any, "*batch o"]:
        relu = jax.nn.relu if namespace(x, self.weights[0]) is jnp else _relu
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = relu(x @ w + b)
        return x @ self.weights[-1] + self.biases[-1]


class Actor(eqx.Module):
    """A deterministic policy with actions in [-1, 1], on observations centred and scaled locally.

    `center` and `scale` belong to the skill: it sees where it is relative to where it starts, in
    units of how far its first data reached, wherever in the environment its node lies.
    """

    mlp: MLP
    center: Float[Array, "*n obs"]
    scale: Float[Array, "*n obs"]
    snap: float = eqx.field(static=True, default=1.0)
    """Actions beyond this are executed at their bound. 1: none is."""

    def __call__(self, obs: Float[Rows, "*batch obs"]) -> Float[Any, "*batch act"]:
        action = self.squash(self.normalise(obs))
        if self.snap >= 1:
            return action
        xp = namespace(action)
        return xp.where(xp.abs(action) > self.snap, xp.sign(action), action)

    def normalise(self, obs: Float[Rows, "*batch obs"]) -> Float[Any, "*batch obs"]:
        return (namespace(obs, self.center).asarray(obs) - self.center) / self.scale

    def squash(self, normalised: Float[Rows, "*batch obs"]) -> Float[Any, "*batch act"]:
        return namespace(normalised).tanh(self.mlp(normalised))

    def explore(
        self, obs: Float[Rows, "*batch obs"], noise: Float[Rows, "*batch act"]
    ) -> Float[Any, "*batch act"]:
        """The action with noise on it, within its bounds; without noise, what `__call__` does."""
        action = self(obs)
        return namespace(action).clip(action + noise, -1.0, 1.0)


class GaussianActor(Actor):
    """A stochastic policy: tanh of a Gaussian, whose mean and log deviation the network gives.

    Called, it takes the mean: deterministic policies are what coverage is counted on.
    """

    def squash(self, normalised: Float[Rows, "*batch obs"]) -> Float[Any, "*batch act"]:
        return namespace(normalised).tanh(self.gaussian(normalised)[0])

    def explore(
        self, obs: Float[Rows, "*batch obs"], noise: Float[Rows, "*batch act"]
    ) -> Float[Any, "*batch act"]:
        mean, log_std = self.gaussian(self.normalise(obs))
        xp = namespace(mean)
        return xp.tanh(mean + xp.exp(log_std) * noise)

    def gaussian(
        self, normalised: Float[Rows, "*batch obs"]
    ) -> tuple[Float[Any, "*batch act"], Float[Any, "*batch act"]]:
        """Mean and log deviation before the tanh; the deviation stays within e^-5 and e^2."""
        xp = namespace(normalised)
        mean, log_std = xp.split(self.mlp(normalised), 2, axis=-1)
        return mean, xp.clip(log_std, -5.0, 2.0)


class TwinCritic(eqx.Module):
    """Two independent Q-functions (clipped double Q-learning), side by side in one batched product."""

    pair: MLP

    def __init__(self, input_size: int, hidden: int, rng: np.random.Generator):
        self.pair = stack([MLP((input_size, hidden, hidden, 1), rng) for _ in range(2)])

    def __call__(
        self, obs: Float[Array, "*batch obs"], action: Float[Array, "*batch act"]
    ) -> Float[Array, "two *batch"]:  # noqa: F821, UP037
        x = jnp.concatenate([obs, action], axis=-1)
        return jax.vmap(lambda mlp: mlp(x))(self.pair)[..., 0]

    def first(
        self, obs: Float[Array, "*batch obs"], action: Float[Array, "*batch act"]
    ) -> Float[Array, "*batch"]:
        """The one the actor climbs."""
        mlp = jax.tree.map(lambda leaf: leaf[0], self.pair)
        return mlp(jnp.concatenate([obs, action], axis=-1))[..., 0]


def polyak(target: PyTree, online: PyTree, tau: ArrayLike) -> PyTree:
    """Soft update of a target network: target ← (1 - τ) target + τ online."""
    return jax.tree.map(lambda t, o: t + tau * (o - t), target, online)


def stack(modules: list[PyTree]) -> PyTree:
    """Modules of one shape as one module with a leading axis; on the host, so nothing compiles."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *modules)


def adam_state(params: PyTree) -> optax.ScaleByAdamState:
    """`optax.scale_by_adam().init(params)` made on the host, so nothing compiles."""
    zeros = jax.tree.map(lambda leaf: jnp.asarray(np.zeros(leaf.shape, np.float32)), params)
    return optax.ScaleByAdamState(count=jnp.asarray(np.int32(0)), mu=zeros, nu=zeros)


def adam(
    params: PyTree, grads: PyTree, opt: optax.ScaleByAdamState, lr: ArrayLike
) -> tuple[PyTree, optax.ScaleByAdamState]:
    """One step of Adam whose size may be traced.

    The same numbers as `optax.adam`, with the bias corrections folded into two scalars: optax
    corrects every moment of every weight, which is 4 % of an update of the paper's small networks.
    """
    b1, b2, eps = 0.9, 0.999, 1e-8
    count = opt.count + 1
    root = jnp.sqrt(1.0 - b2 ** count.astype(float))
    size = lr * root / (1.0 - b1 ** count.astype(float))
    mu = jax.tree.map(lambda m, g: b1 * m + (1.0 - b1) * g, opt.mu, grads)
    nu = jax.tree.map(lambda v, g: b2 * v + (1.0 - b2) * g**2, opt.nu, grads)
    params = jax.tree.map(lambda p, m, v: p - size * m / (jnp.sqrt(v) + eps * root), params, mu, nu)
    return params, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)


def put(stacked: PyTree, index: int, module: PyTree) -> PyTree:
    """`stacked` with `module` in place `index`; on the host, so nothing compiles."""

    def one(leaf: Array, new: Array) -> Array:
        copy = np.array(leaf)
        copy[index] = np.asarray(new)
        return jnp.asarray(copy)

    return jax.tree.map(one, stacked, module)
