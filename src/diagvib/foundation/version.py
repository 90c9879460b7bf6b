"""The version of this package, in a module that imports nothing else of it."""

__version__ = "0.1.0"
