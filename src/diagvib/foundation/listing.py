"""Packages that can be called: `diagvib.studies()` lists what `diagvib.studies` holds."""

import sys
from types import ModuleType


class _Listing(ModuleType):
    def __call__(self) -> dict | list:
        return self.known()


def callable_package(name: str) -> None:
    """Let a package be called; it then returns what its function `known()` does."""
    sys.modules[name].__class__ = _Listing
