"""The networks of App. C: two hidden layers, one network per skill, no weights shared.

Parameters are plain Equinox modules for ONE skill; whoever trains several stacks and maps them.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree


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

    def __call__(self, x: Float[Array, "*batch i"]) -> Float[Array, "*batch o"]:
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ w + b)
        return x @ self.weights[-1] + self.biases[-1]


class Actor(eqx.Module):
    """A deterministic policy with actions in [-1, 1], on observations centred and scaled locally.

    `center` and `scale` belong to the skill: it sees where it is relative to where it starts, in
    units of how far its first data reached, wherever in the environment its node lies.
    """

    mlp: MLP
    center: Float[Array, " obs"]
    scale: Float[Array, " obs"]

    def __init__(
        self, observation_size: int, action_size: int, hidden: int, rng: np.random.Generator
    ):
        self.mlp = MLP((observation_size, hidden, hidden, action_size), rng)
        self.center = jnp.asarray(np.zeros(observation_size, np.float32))
        self.scale = jnp.asarray(np.ones(observation_size, np.float32))

    def __call__(self, obs: Float[Array | np.ndarray, "*batch obs"]) -> Float[Array, "*batch act"]:
        return self.squash(self.normalise(obs))

    def normalise(self, obs: Float[Array | np.ndarray, "*batch obs"]) -> Float[Array, "*batch obs"]:
        return (jnp.asarray(obs) - self.center) / self.scale

    def squash(self, normalised: Float[Array, "*batch obs"]) -> Float[Array, "*batch act"]:
        return jnp.tanh(self.mlp(normalised))


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


def put(stacked: PyTree, index: int, module: PyTree) -> PyTree:
    """`stacked` with `module` in place `index`; on the host, so nothing compiles."""

    def one(leaf: Array, new: Array) -> Array:
        copy = np.array(leaf)
        copy[index] = np.asarray(new)
        return jnp.asarray(copy)

    return jax.tree.map(one, stacked, module)
