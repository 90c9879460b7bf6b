"""The scenes, by name. A further one adds a line here; a user's own is named `package.module:Class` in its studies."""

import importlib
import os
import sys
from functools import cache

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.scenes.scene import Scene

SCENES = {"digits": "diagvib.scenes.digits.scene:Digits"}


@cache
def load_scene(name: str) -> Scene:
    """A scene by name. DiagvibError for an unknown one, or one that cannot be imported."""
    if name not in SCENES and ":" not in name:
        raise unknown_name("scene", name, [*SCENES, "package.module:Class"])
    module, _, attribute = SCENES.get(name, name).partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise DiagvibError(f"scene: {name} cannot be imported ({error}); it must read package.module:Class, from an "
                           "installed package or from the current folder") from None
