"""What is asked of skills once they are discovered: a reward of states, and when an episode is over.

A task is a pytree, so that many of one kind are stacked and trained side by side in one program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from upside.types import UserError, World

SURELY = 0.999  # of a radius


@runtime_checkable
class Task(Protocol):
    """Rewards of the states of an episode, and which of them end it."""

    def __call__(
        self, features: Float[Array, "steps feat"]
    ) -> tuple[Float[Array, " steps"], Bool[Array, " steps"]]: ...

    def over_at(self, features: np.ndarray) -> bool:
        """Whether an episode is surely over at a state: a simulator on the host need not go on then."""
        ...


class Endless(eqx.Module):
    """A task that only the time ends."""

    def over_at(self, features: np.ndarray) -> bool:
        return False


class Goal(eqx.Module):
    """Sparse: r(s) = 1 within `radius` of a place that is unknown until it is reached, then it is over."""

    place: Float[Array, " feat"]
    radius: Float[Array, ""]

    def __call__(
        self, features: Float[Array, "steps feat"]
    ) -> tuple[Float[Array, " steps"], Bool[Array, " steps"]]:
        there = jnp.linalg.norm(features - self.place, axis=-1) <= self.radius
        return there.astype(float), there

    def over_at(self, features: np.ndarray) -> bool:
        """Not at the very edge, where NumPy may round another way than what judges the episode."""
        distance = np.linalg.norm(features - np.asarray(self.place))
        return bool(distance < SURELY * float(self.radius))


class Beyond(Endless):
    """r(s) = 1 where the first feature exceeds a threshold, at every step until H_max (App. C, control)."""

    threshold: Float[Array, " 1"]

    def __call__(
        self, features: Float[Array, "steps feat"]
    ) -> tuple[Float[Array, " steps"], Bool[Array, " steps"]]:
        paid = features[:, 0] > self.threshold[0]
        return paid.astype(float), jnp.zeros(features.shape[0], bool)


class Reward(Endless):
    """A reward function of the user's own, on the features of an episode's states; it ends with H_max."""

    function: Callable[[Array], Array] = eqx.field(static=True)

    def __call__(
        self, features: Float[Array, "steps feat"]
    ) -> tuple[Float[Array, " steps"], Bool[Array, " steps"]]:
        paid = jnp.asarray(self.function(features), float)
        return paid, jnp.zeros(features.shape[0], bool)


def reward(env: World, function: Callable[[Array], Array]) -> Reward:
    """A reward function that can be asked for: traced by JAX, one number for every row."""
    some, more = (jax.ShapeDtypeStruct((n, len(env.space.low)), jnp.float32) for n in (3, 4))
    need = "must give one number for each row of features"
    try:
        traced = lambda features: jnp.asarray(function(features))  # noqa: E731
        given = [(rows.shape, jax.eval_shape(traced, rows).shape) for rows in (some, more)]
    except jax.errors.JAXTypeError:
        raise UserError(
            "the reward function is not one that JAX can trace: write it with jax.numpy in place "
            "of numpy, and jnp.where in place of if"
        ) from None
    except (TypeError, ValueError) as error:
        raise UserError(f"the reward function {need}: {error}") from None
    try:
        function(np.zeros(some.shape, np.float32))  # type: ignore[arg-type]
    except IndexError as error:  # which JAX would not notice
        raise UserError(f"the reward function {need}, {some.shape[1]} a row: {error}") from None
    except Exception:
        pass  # JAX's arrays can do more than NumPy's
    for asked, got in given:
        if got != asked[:1]:
            raise UserError(
                f"the reward function {need}: for features of shape {asked} it gave {got}"
            )
    return Reward(function)


def goal(env: World, place: Any, radius: float) -> Goal:
    """A goal that can be asked for: in the space, and not in a wall."""
    asked = place
    try:
        place = np.asarray(asked, np.float32)
        if asked is None:
            raise ValueError
    except (TypeError, ValueError):
        raise UserError(f"goal {asked!r} is no place: give numbers, such as (40, 45)") from None
    low, high = np.asarray(env.space.low), np.asarray(env.space.high)
    words = ",".join(f"{x:g}" for x in place.ravel())
    if place.shape != low.shape:
        raise UserError(f"--goal {words} has {place.size} numbers, {env.name} needs {low.size}")
    if not (np.all(place >= low) and np.all(place <= high)):
        box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))
        raise UserError(f"--goal {words} is outside {env.name}: choose a place in {box}")
    if not 0 < radius < np.inf:
        raise UserError(f"--radius {radius:g} is not a length above 0: try 1, the paper's")
    side = float((high - low).min())
    if radius > side / 4:
        raise UserError(
            f"--radius {radius:g} is more than a quarter of the shortest side of {env.name}, {side:g}: much of it "
            f"would be the goal, try --radius {side / 10:.2g}"
        )
    contains = getattr(env, "contains", None)  # only some environments know what is solid
    if contains is not None and not contains(place):
        raise UserError(
            f"--goal {words} is in a wall of {env.name}, or cannot be reached from its start"
        )
    return Goal(jnp.asarray(place), jnp.asarray(radius, jnp.float32))
