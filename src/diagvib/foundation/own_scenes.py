"""A user's own scene, checked at every call: a mistake in it ends in one line, and never in wrong
images."""

import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.plug_ins import reason


class CheckedScene:
    """All attributes of a scene. DiagvibError, naming scene and method, for what a method raises,
    and for results that are not what the interface demands."""

    def __init__(self, scene: Any, where: str):
        """where: the scene, for messages."""
        self._scene, self._where = scene, where

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._scene, name)
        return self._checked(name, found) if callable(found) else found

    def _checked(self, name: str, method: Callable) -> Callable:
        where = f"{self._where}: {name}"

        def call(*arguments, **more):
            result = _called(method, where, arguments, more)
            if name == "renderer":
                return _CheckedRenderer(
                    result,
                    where,
                    more["size"] if "size" in more else arguments[1],
                    partial(_called, method, where, arguments, more),
                )
            if name == "realize":
                _check_columns(
                    result, self._scene.columns, len(next(iter(arguments[0].values()))), where
                )
            if name == "catalogue":
                _check_attributes(
                    result, {"sources": str, "comparable": bool, "digest": str}, where
                )
            if name == "examples":
                _check_images(result, (len(arguments[1]), None, None, 3), "uint8", where)
            return result

        return call


class _CheckedRenderer:
    """All attributes of a scene's renderer, which must give an image of this size for each recipe,
    and as another renderer does. another: makes one."""

    def __init__(self, renderer: Any, where: str, size: int, another: Callable):
        _check_attributes(renderer, {"size": int, "device": object}, where)
        if renderer.size != size:
            raise DiagvibError(
                f"{where} gives a renderer of size {renderer.size}, but {size} was asked for"
            )
        self._renderer, self._where, self._another = renderer, where, another

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._renderer, name)

    def __call__(self, recipes: Any) -> Any:
        images = self._images(self._renderer, recipes)
        if self._another:
            few, other, self._another = recipes.slice(0, 8), self._another(), None
            first, *more = (self._images(renderer, few) for renderer in (other, self._renderer) * 2)
            if any((again != first).any() for again in more):
                raise DiagvibError(
                    f"{self._where} gives other images when the same recipes are rendered again; "
                    "draw what is random in realize, as columns"
                )
        return images

    def _images(self, renderer: Callable, recipes: Any) -> Any:
        """A copy, since the scene may draw the next images into the same memory."""
        images = _called(renderer, self._where, (recipes,), {})
        _check_images(images, (len(recipes), self.size, self.size, 3), "torch.uint8", self._where)
        return images.contiguous().clone()


def _called(function: Callable, where: str, arguments: tuple, more: dict) -> Any:
    try:
        return function(*arguments, **more)
    except (DiagvibError, OSError):
        raise
    except Exception as error:  # it is not our function
        module = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
        file = getattr(module, "__file__", None)
        own = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
        ]
        place = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
        raise DiagvibError(f"{where} failed ({place}{reason(error)})") from error


def _check_attributes(value: Any, wanted: dict[str, type], where: str) -> None:
    for name, kind in wanted.items():
        found = getattr(value, name, None)
        if found is None or not isinstance(found, kind):
            raise DiagvibError(
                f"{where} gives a {type(value).__name__} whose {name} is {found!r}; "
                + ("it is needed" if kind is object else f"{kind.__name__} is needed")
            )


def _check_columns(value: Any, columns: Any, count: int, where: str) -> None:
    for name, kind in zip(columns.names, columns.types, strict=True):
        if not isinstance(value, dict) or name not in value:
            raise DiagvibError(
                f"{where} gives no column {name}; it must give {', '.join(columns.names)}, by name"
            )
        column = np.asarray(value[name])
        if column.shape != (count,):
            raise DiagvibError(
                f"{where} gives {name} of shape {column.shape}; one value for each of {count} images is "
                "needed"
            )
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0])
            raise DiagvibError(
                f"{where} gives {column[row]} for {name} of image {row}; a finite number is needed"
            )
        try:
            pa.array(column, kind)
        except pa.ArrowException as error:
            raise DiagvibError(
                f"{where} gives {name} that is not {kind}: {one_line(error)}"
            ) from None


def _check_images(images: Any, shape: tuple, kind: str, where: str) -> None:
    found, given = (
        tuple(getattr(images, "shape", ())),
        str(getattr(images, "dtype", type(images).__name__)),
    )
    fits = len(found) == len(shape) and all(
        a in (None, b) for a, b in zip(shape, found, strict=True)
    )
    if given != kind or not fits:
        wanted = ", ".join("any" if side is None else str(side) for side in shape)
        raise DiagvibError(
            f"{where} gives images of {given} and shape {list(found)}; {kind}[{wanted}] is needed"
        )
