"""q_φ(z | s): which node of the tree does a diffusing state belong to (Sect. 3.2, App. B).

The classes are padded to a capacity; a class without data has no probability, so adding or
removing a policy changes numbers, never shapes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from upside.nets import MLP, adam, adam_state
from upside.types import UserError, World, at_least

CHUNK = 10  # steps whose random numbers are drawn at once: threefry is cheap in bulk


@dataclasses.dataclass(frozen=True)
class Discriminator:
    """The judge. The paper's ranges are those of App. C."""

    hidden_discr: int = 64
    """Units in each of its two hidden layers (paper: 64)."""
    lr_discr: float = 1e-3
    """Adam step size (paper: 1e-3 or 1e-4)."""
    batch_discr: int = 64
    """States per update (paper: 64)."""
    k_discr: int = 100
    """K_discr, updates per round (paper: 10 or 100)."""
    consolidated_weight: float = 3.0
    """How much more often a state of a consolidated policy is drawn (paper: "e.g. 3×")."""
    keep_discriminator: bool = True
    """A call of POLICYLEARNING goes on with the discriminator of the one before, not afresh (paper: see docs/method.md)."""
    jitter: float = 0.3
    """Noise on the states it is fitted on, in diffusing radii of the root: each stands for its surroundings (paper: 0)."""
    feature_scale: float = 4.0
    """Unit of the discriminator's inputs, in diffusing radii of the root. 0: the environment's box."""

    words: ClassVar[str] = "discriminator"

    def init(
        self,
        capacity: int,
        center: Float[np.ndarray, " feat"],
        scale: Float[np.ndarray, " feat"],
        rng: np.random.Generator,
    ) -> State:
        """A discriminator that knows nothing, with inputs (s - center) / scale."""
        mlp = MLP((center.size, self.hidden_discr, self.hidden_discr, capacity), rng)
        return State(mlp, adam_state(mlp), jnp.asarray(center), jnp.asarray(scale))

    def prepare(
        self,
        state: State,
        env: World,
        radius: float,
        labels: Int[np.ndarray, " n"],
        rng: np.random.Generator,
    ) -> State:
        """Before the first policy: inputs in units of the root's diffusing radius."""
        if not self.feature_scale or not radius:
            return state
        unit = self.feature_scale * radius * env.space.units
        return eqx.tree_at(lambda s: s.scale, state, jnp.asarray(unit))

    def fit(
        self,
        state: State,
        buffers: Float[Array, "capacity size feat"],
        counts: Int[Array, " capacity"],
        weights: Float[Array, " capacity"],
        steps: Int[Array, ""],
        blur: Float[Array, ...],
        key: PRNGKeyArray,
    ) -> State:
        """`steps` updates on (state, policy) pairs drawn from the state buffers in proportion to `weights`.

        States are blurred by Gaussian noise of scale `blur` (along each feature): a network that is fitted for a whole run
        on the same hundred states of a policy would learn them by heart. `steps` is traced (rounded up
        to a multiple of CHUNK), so that it never compiles anew.
        """
        classes = (weights > 0) & (counts > 0)
        cumulative = jnp.cumsum(jnp.where(classes, weights, 0.0))
        last = jnp.max(jnp.where(classes, jnp.arange(classes.size), 0))
        shape = (CHUNK, self.batch_discr)

        def one(state: State, draw: tuple[Array, Array, Array]) -> tuple[State, None]:
            which, where, noise = draw
            labels = jnp.searchsorted(cumulative, which * cumulative[-1], side="right")
            labels = jnp.minimum(labels, last)
            rows = jnp.minimum((where * counts[labels]).astype(int), counts[labels] - 1)
            states = buffers[labels, rows] + blur * noise
            grads = jax.grad(loss)(state.mlp, state, states, labels, classes)
            mlp, opt = adam(state.mlp, grads, state.opt, self.lr_discr)
            return dataclasses.replace(state, mlp=mlp, opt=opt), None

        def chunk(i: Array, state: State) -> State:
            draw_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
            draws = jax.random.uniform(draw_key, (2, *shape))
            noise = jax.random.normal(noise_key, (*shape, buffers.shape[-1]))
            return jax.lax.scan(one, state, (draws[0], draws[1], noise))[0]

        return jax.lax.fori_loop(0, (steps + CHUNK - 1) // CHUNK, chunk, state)

    def suits(self, env: World) -> None:
        """Any environment does."""

    def check(self) -> None:
        at_least(self, 1, "hidden_discr", "batch_discr", "k_discr")
        at_least(self, 0, "lr_discr", "consolidated_weight", "jitter", "feature_scale")
        if self.k_discr % CHUNK:
            raise UserError(f"--k-discr {self.k_discr} is not a multiple of {CHUNK}")


class State(eqx.Module):
    """Parameters and optimiser; `center` and `scale` bring features to the network's range."""

    mlp: MLP
    opt: PyTree
    center: Float[Array, " feat"]
    scale: Float[Array, " feat"]

    def log_prob(
        self, features: Float[Array, "*batch feat"], classes: Bool[Array, " capacity"]
    ) -> Float[Array, "*batch capacity"]:
        """log q_φ(· | s) over the classes that exist."""
        logits = self.mlp((features - self.center) / self.scale)
        return jax.nn.log_softmax(jnp.where(classes, logits, -jnp.inf))

    def code(self, label: int) -> None:
        """It has no codes for a shared network."""

    log_score = log_prob
    """What a state is worth for a class: here the same (Eq. 2)."""

    class_axis: ClassVar[int] = -1

    def by_class(self) -> list[Any]:
        """The read-out, and its optimiser's moments."""
        nets = [self.mlp] if self.opt is None else [self.mlp, self.opt.mu, self.opt.nu]
        return [leaf for net in nets for leaf in (net.weights[-1], net.biases[-1])]

    def unknown(self, number: int, rng: np.random.Generator) -> list[np.ndarray]:
        """New classes of the read-out; there are no moments of them yet."""
        units = self.mlp.weights[-1].shape[0]
        shapes, bound = ((units, number), (number,)), 1.0 / units**0.5
        drawn = [rng.uniform(-bound, bound, shape) for shape in shapes]
        return drawn + 2 * [np.zeros(shape) for shape in shapes]

    def settled(self) -> State:
        """Without its optimiser."""
        return dataclasses.replace(self, opt=None)

    def renew(self, label: int, rng: np.random.Generator) -> State:
        """Forget what the read-out knew of class `label`: its number is about to be used again."""
        weight, bias = np.array(self.mlp.weights[-1]), np.array(self.mlp.biases[-1])
        fresh = self.unknown(1, rng)
        weight[:, label], bias[label] = fresh[0][:, 0], fresh[1][0]
        where = lambda s: (s.mlp.weights[-1], s.mlp.biases[-1])  # noqa: E731
        return eqx.tree_at(where, self, (jnp.asarray(weight), jnp.asarray(bias)))


def loss(
    mlp: MLP, state: State, features: Array, labels: Array, classes: Array
) -> Float[Array, ""]:
    """Negative log likelihood of the policy that produced each state."""
    state = eqx.tree_at(lambda s: s.mlp, state, mlp)
    picked = jnp.take_along_axis(state.log_prob(features, classes), labels[:, None], axis=1)
    return -jnp.mean(picked)
