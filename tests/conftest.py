"""Shapes and types are checked: every `upside` module is imported through jaxtyping and beartype.

Promotion of dtypes stays JAX's standard one: counts are multiplied with uniform draws on purpose.
"""

import os

os.environ.setdefault("UPSIDE_CACHE", "")  # tests measure what a fresh machine does

from hypothesis import settings
from jaxtyping import install_import_hook

hook = install_import_hook("upside", "beartype.beartype")
hook.__enter__()  # for the whole session: nothing of `upside` may be imported before

settings.register_profile("upside", deadline=None)  # a busy machine is not a failure
settings.load_profile("upside")
