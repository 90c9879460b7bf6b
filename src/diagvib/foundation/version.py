"""The version of this package, apart from its public names, which need the rooms."""

__version__ = "0.1.0"
