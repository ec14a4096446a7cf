"""`jax.jit` that counts: a run compiles each of its programs once, however its tree grows, and a test holds that."""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable
from typing import Any

import jax

TRACES: collections.Counter[str] = collections.Counter()
"""How often each program was traced."""


CPU_OPTIONS: dict[str, bool | int] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 2,
}
"""How XLA compiles on a CPU, unless XLA_FLAGS say otherwise: in two fifths of the time it takes by itself, to
programs that are as fast on the mazes (docs/research.md). The first switches off its newer emitters of fused
loops; it is to go when XLA drops the older ones."""
QUICKER: dict[str, bool | int] = {**CPU_OPTIONS, "xla_cpu_use_fusion_emitters": True}
"""For a program that a command does little else than run: fine-tuning is a fifth quicker (docs/research.md), and
compiling takes two fifths longer."""


def compiled(
    name: str,
    function: Callable,
    *static: int,
    donate: tuple[int, ...] = (),
    options: dict[str, bool | int] = CPU_OPTIONS,
) -> Callable:
    """The compiled function."""

    @functools.wraps(function)
    def traced(*args: Any) -> Any:
        TRACES[name] += 1
        return function(*args)

    @functools.cache
    def program() -> Callable:  # when it is first called: to ask for the backend is to start it
        said = os.environ.get("XLA_FLAGS", "")
        mine = {name: value for name, value in options.items() if name not in said}
        return jax.jit(
            traced,
            static_argnums=static,
            donate_argnums=donate,
            compiler_options=mine if jax.default_backend() == "cpu" else None,
        )

    return lambda *args: program()(*args)
