"""The version of this package, in a module that imports nothing else of it."""

__version__ = "0.1.0"
RELEASE_DATE = "2026-11-24"  # as in CITATION.cff
