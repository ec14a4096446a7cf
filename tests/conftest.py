"""Shapes and types are checked: every `upside` module is imported through jaxtyping and beartype.

Promotion of dtypes stays JAX's standard one: counts are multiplied with uniform draws on purpose.
"""

import os
import shutil
import tempfile

from hypothesis import settings
from jaxtyping import install_import_hook

# Tests and the commands they start share what is compiled, from an empty cache at every test run.
MADE = None if "UPSIDE_TESTS_CACHE" in os.environ else tempfile.mkdtemp(prefix="upside-tests-")
CACHE = os.environ.setdefault("UPSIDE_TESTS_CACHE", MADE or "")
os.environ["JAX_COMPILATION_CACHE_DIR"] = CACHE
os.environ["UPSIDE_CACHE"] = ""
# Programs are run briefly: what makes them fast takes longer than it saves.
QUICKLY = "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", QUICKLY)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

hook = install_import_hook("upside", "beartype.beartype")
hook.__enter__()  # for the whole session: nothing of `upside` may be imported before

settings.register_profile("upside", deadline=None)  # a busy machine is not a failure
settings.load_profile("upside")


LONG = [
    "methods",
    "host",
    "downstream",
    "experiments",
    "cli",
    "discovery",
    "td3",
    "figures",
    "bench",
]
"""Files that take longest, the longest first: begun last, one worker would wait for the other."""


def pytest_collection_modifyitems(items):
    rank = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONG)))


def pytest_unconfigure(config):
    if MADE is not None:  # by this process; its workers are given it
        shutil.rmtree(MADE, ignore_errors=True)
