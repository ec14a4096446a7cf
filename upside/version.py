"""The version of the package; in every run directory and every result."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from pathlib import Path

__version__ = "0.1.0"


@functools.cache
def commit() -> str | None:
    """The commit of a checkout, with a + if files were changed since; None of an installed package."""
    root = Path(__file__).parents[1]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        if (root / ".git").exists():
            ask = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
            return subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    return None
