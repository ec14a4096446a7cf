"""EDL's judge (Campos et al., 2020): a VQ-VAE on states of an oracle, fixed before skills are learnt.

Only what skills need is kept: each code, and the state its decoder makes of it. q(s | z) is a
Gaussian around that state; the posterior over codes follows by Bayes' rule.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from upside.nets import MLP, adam, adam_state
from upside.types import UserError, World, at_least

CHUNK = 100  # steps per call of the compiled program
LEAST_USED = 0.1  # of a fair share of the states: a code that has less is put elsewhere


@dataclasses.dataclass(frozen=True)
class VQVAE:
    """The oracle's states as a few codes. The paper's ranges are those of App. C."""

    words: ClassVar[str] = "VQ-VAE"
    code_size: ClassVar[int] = 16
    hidden_vqvae: int = 128
    """Units in each of the two hidden layers of encoder and decoder (paper: 128)."""
    beta: float = 0.25
    """Weight of the commitment loss (paper: 0.25 or 0.5)."""
    lr_vqvae: float = 1e-3
    """Adam step size (paper: 1e-3 or 1e-4)."""
    batch_vqvae: int = 256
    """States per update (paper: 64 or 256)."""
    steps_vqvae: int = 5000
    """Updates (paper: 5000 epochs, until convergence)."""

    consolidated_weight: ClassVar[float] = 1.0
    keep_discriminator: ClassVar[bool] = True
    jitter: ClassVar[float] = 0.0
    k_discr: ClassVar[int] = 0
    """Nothing is fitted to what skills do: the reward is stationary."""

    def init(self, capacity: int, center: Any, scale: Any, rng: np.random.Generator) -> State:
        """Room for `capacity` codes; `prepare` fills it."""
        codes, decoded = (
            np.zeros((capacity, n), np.float32) for n in (self.code_size, center.size)
        )
        return State(*map(jnp.asarray, (codes, decoded, np.float32(1), center, scale)))

    def prepare(
        self, state: State, env: World, radius: float, labels: Any, rng: np.random.Generator
    ) -> State:
        """Train on the oracle, one code for each of `labels`."""
        oracle: Any = env
        states = (oracle.oracle(rng, 20_000) - np.asarray(state.center)) / np.asarray(state.scale)
        net = train(self, states.astype(np.float32), len(labels), rng)
        codes, decoded = np.array(state.codes), np.array(state.decoded)
        codes[labels], decoded[labels] = net.codes, np.asarray(net.decoder(net.codes))
        error = np.float32(net.error(jnp.asarray(states, jnp.float32)))
        new = tuple(map(jnp.asarray, (codes, decoded, error)))
        return eqx.tree_at(lambda s: (s.codes, s.decoded, s.variance), state, new)

    def fit(self, state: State, *seen: Any) -> State:
        """The judge stays as it is."""
        return state

    def suits(self, env: World) -> None:
        """Refuse an environment that cannot be asked for its states."""
        if not hasattr(env, "oracle"):
            raise UserError(
                f"EDL needs an oracle of states, which {env.name} does not have: try diayn"
            )

    def check(self) -> None:
        at_least(self, 1, "hidden_vqvae", "batch_vqvae", "steps_vqvae")
        at_least(self, 0, "beta", "lr_vqvae")


class State(eqx.Module):
    """Codes and what they decode to, by class."""

    codes: Float[Array, "capacity code"]
    decoded: Float[Array, "capacity feat"]
    variance: Float[Array, ""]
    """Mean squared error of the reconstruction: how far a code's states lie around it."""
    center: Float[Array, " feat"]
    scale: Float[Array, " feat"]

    def log_score(
        self, features: Float[Array, "*batch feat"], classes: Bool[Array, " capacity"]
    ) -> Float[Array, "*batch capacity"]:
        """log q(s | z) up to constants: minus the squared distance to what z decodes to."""
        gaps = ((features - self.center) / self.scale)[..., None, :] - self.decoded
        return -jnp.sum(gaps**2, axis=-1)

    def log_prob(
        self, features: Float[Array, "*batch feat"], classes: Bool[Array, " capacity"]
    ) -> Float[Array, "*batch capacity"]:
        """log q(z | s) by Bayes' rule, with all codes equally likely."""
        logits = 0.5 * self.log_score(features, classes) / self.variance
        return jax.nn.log_softmax(jnp.where(classes, logits, -jnp.inf))

    class_axis: ClassVar[int] = 0

    def by_class(self) -> list[Any]:
        return [self.codes, self.decoded]

    def unknown(self, number: int, rng: np.random.Generator) -> list[float]:
        """Codes of nothing."""
        return [0.0, 0.0]

    def settled(self) -> State:
        """It has no optimiser."""
        return self

    def renew(self, label: int, rng: np.random.Generator) -> State:
        """A code outlives the skill that had it."""
        return self

    def code(self, label: int) -> np.ndarray:
        """What tells a shared network which skill it is."""
        return np.asarray(self.codes[label])


class Net(eqx.Module):
    """Encoder, code book, decoder."""

    encoder: MLP
    decoder: MLP
    codes: Float[Array, "n code"]

    def nearest(self, encoded: Float[Array, "b code"]) -> Int[Array, " b"]:
        """The code nearest to each encoded state."""
        gaps = jnp.sum((encoded[:, None] - self.codes) ** 2, axis=-1)
        return jnp.argmin(gaps, axis=-1)

    def error(self, states: Float[Array, "b feat"]) -> Float[Array, ""]:
        """Mean squared error of the reconstruction, per feature."""
        code = self.codes[self.nearest(self.encoder(states))]
        return jnp.mean((self.decoder(code) - states) ** 2)


def loss(net: Net, states: Float[Array, "b feat"], beta: float) -> Float[Array, ""]:
    """van den Oord et al. (2017), Eq. 3: reconstruction (straight through), code book, commitment."""
    gap = lambda a, b: jnp.mean(jnp.sum((a - b) ** 2, axis=-1))  # noqa: E731
    fixed, encoded = jax.lax.stop_gradient, net.encoder(states)
    code = net.codes[net.nearest(encoded)]
    rebuilt = net.decoder(encoded + fixed(code - encoded))
    return gap(rebuilt, states) + gap(code, fixed(encoded)) + beta * gap(encoded, fixed(code))


def train(
    config: VQVAE, states: Float[np.ndarray, "m feat"], n: int, rng: np.random.Generator
) -> Net:
    """Fit n codes; in the first half, those that are idle are put elsewhere now and then."""
    feat, h = states.shape[1], config.hidden_vqvae
    encoder = MLP((feat, h, h, config.code_size), rng)
    net = Net(encoder, MLP((config.code_size, h, h, feat), rng), encoder(jnp.asarray(states[:n])))
    opt: PyTree = adam_state(net)

    def update(carry: tuple[Net, PyTree], batch: Array) -> tuple[tuple[Net, PyTree], None]:
        net, opt = carry
        return adam(net, jax.grad(loss)(net, batch, config.beta), opt, config.lr_vqvae), None

    chunk = jax.jit(lambda net, opt, batches: jax.lax.scan(update, (net, opt), batches)[0])
    calls = -(-config.steps_vqvae // CHUNK)
    for call in range(calls):
        rows = rng.integers(len(states), size=(CHUNK, config.batch_vqvae))
        net, opt = chunk(net, opt, jnp.asarray(states[rows]))
        if call < calls // 2:
            net = wake(net, states[:2000])
    return net


def wake(net: Net, states: Float[np.ndarray, "b feat"]) -> Net:
    """Put each code that hardly any state uses where the state is that lies farthest from all codes."""
    encoded, codes = np.asarray(net.encoder(jnp.asarray(states))), np.array(net.codes)
    gaps = lambda: np.linalg.norm(encoded[:, None] - codes, axis=-1)  # noqa: E731
    used = np.bincount(gaps().argmin(axis=-1), minlength=len(codes)) / len(encoded)
    for idle in np.flatnonzero(used < LEAST_USED / len(codes)):
        codes[idle] = encoded[gaps().min(axis=-1).argmax()]
    return eqx.tree_at(lambda v: v.codes, net, jnp.asarray(codes))
