"""Checks that sizes of images and batches fit a method. Does not import torch, so that planning can
check them."""

from collections.abc import Mapping
from math import ceil, log2

from diagvib.foundation.errors import DiagvibError

TO_MAP = "map"


def halvings(method: Mapping, option: str, image_size: int) -> int:
    """How often a method (its settings) halves images: as often as an option says, or, for TO_MAP,
    until they have 4 to 7 cells per side. DiagvibError, naming sizes that fit, if it cannot."""
    if option not in (TO_MAP, *method):
        raise DiagvibError(f"method: {method['name']}: halvings names no option, {option}")
    number = _halvings(method, option, image_size)
    if _fits(method, option, image_size):
        return number
    sizes = (size for size in range(1, 2 * image_size + 129) if _fits(method, option, size))
    nearest = min(sizes, key=lambda size: abs(size - image_size))
    remedy = "" if option == TO_MAP else f"lower {option}, or "
    raise DiagvibError(
        f"method: {method['name']}: image_size {image_size} cannot be halved {number or 4} times; "
        f"{remedy}choose image_size {nearest}"
    )


def _fits(method: Mapping, option: str, image_size: int) -> bool:
    number = _halvings(method, option, image_size)
    return number > 0 and image_size % 2**number == 0


def _halvings(method: Mapping, option: str, image_size: int) -> int:
    if option != TO_MAP:
        return method.get(option) or 0
    return int(log2(image_size / 4)) if image_size >= 64 else 0


def check_batch(method: Mapping, images: int, environments: int, batch_size: int) -> None:
    """DiagvibError if a batch is too small for this many images of every environment."""
    if batch_size < images * environments:
        raise DiagvibError(
            f"method: {method['name']} needs {images} images of every environment in a batch, but "
            f"batch_size is {batch_size} and the study has {environments} environments; raise it to "
            f"{images * environments} or more"
        )


def check_held_out(method: Mapping, images: int) -> None:
    """DiagvibError if a method that holds out a share of this many training images leaves none for
    its network."""
    if method.get("images") != "validation" and ceil(method["held_out"] * images) >= images:
        raise DiagvibError(
            f"method: {method['name']}: held_out: {method['held_out']} leaves none of the {images} "
            "training images to the network; lower it, or raise counts.train"
        )
