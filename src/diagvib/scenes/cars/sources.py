"""The photos of cars, backgrounds and objects in a user's folder: `cars/urban/...`, each with what
cuts it out.

A car or object is an image with an alpha channel (PNG or WebP), or a photo with a mask of the same
name next to it: `name.jpg` and `name.mask.png`, white where the object is. The mask takes
precedence over an alpha channel.
"""

from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.cars.geometry import CLASSES, FACTORS, PASTED
from diagvib.scenes.photos.listing import EXTENSIONS, files_in, leave_out, usable, without_twins

MASK = ".mask.png"
# Folder of the photos -> factor and class.
PLACES = {f"{factor}s/{name}": (factor, name) for factor in FACTORS for name in CLASSES}


def list_sources(folder: Path) -> tuple[dict[str, str], int]:
    """Path -> sha256 of the usable photos and masks in a folder, sorted, and the number of all
    files; unusable ones are named.

    Unusable are also: a mask without its photo, of another size or empty; a car or object that
    nothing cuts out; and a duplicate photo. DiagvibError if nothing is left of a class.
    """
    from diagvib.scenes.cars.tiles import cut_out
    from diagvib.scenes.photos.decoding import in_threads, open_photo

    files, placed = files_in(folder), []
    for path in files:
        if place_of(path) in PLACES:
            placed.append(path)
        else:
            leave_out(folder / path, f"because it is in none of the folders {', '.join(PLACES)}")
    digests = {path: sha256 for path, (sha256, _) in usable(folder, placed).items()}
    photos = [path for path in digests if not path.endswith(MASK)]
    masks = {path: mask_of(path) for path in photos if mask_of(path) in digests}
    for path in digests:
        if path.endswith(MASK) and path not in masks.values():
            leave_out(
                folder / path,
                f"because there is no photo for this mask; NAME.jpg and NAME{MASK} belong together",
            )

    def wrong(path: str) -> str:
        """Why a photo's object cannot be cut out; empty if it can."""
        if PLACES[place_of(path)][0] in PASTED:
            mask = open_photo(folder / masks[path], "L") if path in masks else None
            try:
                cut_out(open_photo(folder / path, "RGBA"), mask)
            except ValueError as error:
                return str(error)
        return ""

    good = {}
    for path, reason in zip(photos, in_threads(wrong, photos), strict=True):
        if reason:
            leave_out(folder / masks.get(path, path), reason)
        else:
            good[path] = digests[path]
    unique_photos = without_twins(folder, good)
    used = {*unique_photos, *(mask for path, mask in masks.items() if path in unique_photos)}
    empty = [place for place in PLACES if place not in set(map(place_of, unique_photos))]
    if empty:
        raise DiagvibError(
            f"{folder / empty[0]}: no photo that can be used ({', '.join(EXTENSIONS)})"
            + (f", nor in {len(empty) - 1} more of the folders" if empty[1:] else "")
            + f"; `diagvib cutout {folder}/cars` makes masks for photos of cars without one"
            * any(place.startswith("cars") for place in empty)
        )
    return {path: sha256 for path, sha256 in digests.items() if path in used}, len(files)


def place_of(path: str) -> str:
    """The folder that a photo is in."""
    return path.rpartition("/")[0]


def mask_of(path: str) -> str:
    """The path of the mask of a photo."""
    return str(Path(path).with_suffix(MASK))
