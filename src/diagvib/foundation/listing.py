"""Packages that can be called: `diagvib.studies()` lists the contents of `diagvib.studies`."""

import sys
from types import ModuleType


class _Listing(ModuleType):
    def __call__(self) -> dict | list:
        return self.known()


def callable_package(name: str) -> None:
    """Make a package callable; calling it returns the result of its function `known()`."""
    sys.modules[name].__class__ = _Listing
