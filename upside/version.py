"""The version of the package; in every run directory and every result."""

__version__ = "0.1.0"
