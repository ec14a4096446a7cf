"""What judges keep for each class, moved about on the host as a tree grows: nothing compiles.

A judge's state names its arrays by class (`by_class`), the axis along which classes lie in them
(`class_axis`), and what a class is that knows nothing (`unknown`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

Judge = TypeVar("Judge", bound=Any)


def move(judge: Judge, source: Int[np.ndarray, " capacity"]) -> Judge:
    """Class i becomes what class `source[i]` was."""
    return _changed(judge, lambda leaf: np.take(leaf, source, judge.class_axis))


def narrow(judge: Judge, classes: int) -> Judge:
    """Only the first classes, without an optimiser: what is saved for use."""
    return move(judge.settled(), np.arange(classes))


def widen(judge: Judge, first: int, capacity: int, rng: np.random.Generator) -> Judge:
    """Room for more classes: new ones are put in before the children's, which stay last."""
    number = capacity - judge.by_class()[0].shape[judge.class_axis]
    new = iter(judge.unknown(number, rng))
    at = [first] * number
    return _changed(judge, lambda leaf: np.insert(leaf, at, next(new), judge.class_axis))


def _changed(judge: Judge, change: Callable[[np.ndarray], np.ndarray]) -> Judge:
    after = [jnp.asarray(change(np.asarray(leaf))) for leaf in judge.by_class()]
    return eqx.tree_at(lambda j: j.by_class(), judge, after)
