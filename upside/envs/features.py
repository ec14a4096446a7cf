"""What the discriminator sees of a Gymnasium environment: said by a user, in words or as a function."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from upside.types import UserError


@dataclasses.dataclass(frozen=True)
class Features:
    """What the discriminator sees: entries of the observation, of `info`, or a function of both.

    Written `obs:0,1`, `info:x_position,y_position`, or `module:function` with a function of
    (observation, info).
    """

    source: str
    names: tuple[str, ...] = ()
    function: Callable[[np.ndarray, dict[str, Any]], Any] | None = None

    @classmethod
    def parse(cls, text: str) -> Features:
        source, _, rest = text.partition(":")
        names = tuple(word.strip() for word in rest.split(","))
        if not all(names):
            raise UserError(
                f"--discriminator-features {text} cannot be read: try obs:0,1 or info:x_position "
                "or my_module:my_function"
            )
        if source not in ("obs", "info"):
            return cls(source, names, _imported(text))
        if source == "obs" and not all(name.isdecimal() for name in names):
            raise UserError(
                f"--discriminator-features {text}: entries of an observation are numbers from 0 on"
            )
        return cls(source, names)

    def __str__(self) -> str:
        return f"{self.source}:{','.join(self.names)}"

    def __call__(self, obs: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        if self.function is not None:
            return np.asarray(self.function(obs, info), np.float32).reshape(-1)
        if self.source == "obs":
            entries = [int(name) for name in self.names]
            if max(entries) >= obs.size:
                raise UserError(
                    f"--discriminator-features {self}: an observation has entries 0 to {obs.size - 1}"
                )
            return obs[entries].astype(np.float32)
        missing = [name for name in self.names if name not in info]
        if missing:
            raise UserError(
                f"--discriminator-features {self}: info has no '{missing[0]}', only "
                f"{', '.join(info) or 'nothing'} (after a reset too, a start is a state like others)"
            )
        return np.array([info[name] for name in self.names], np.float32).reshape(-1)


def _imported(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise UserError(f"--discriminator-features {text}: {said(error)}") from None
    if not callable(found):
        raise UserError(f"--discriminator-features {text} is no function")
    return found


def said(error: BaseException) -> str:
    """An error of somebody else's code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
