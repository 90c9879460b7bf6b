"""The photos of cars, backgrounds and objects in a user's folder: `cars/urban/...`, each with what
cuts it out.

A car or object is an image with an alpha channel (PNG or WebP), or a photo with a mask of the same
name next to it: `name.jpg` and `name.mask.png`, white where the object is. The mask takes
precedence over an alpha channel.
"""

from pathlib import Path

import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.cars.geometry import CLASSES, FACTORS, PASTED
from diagvib.scenes.photos.listing import check_places, leave_out, list_photos

FOLDERS = {factor: f"{factor}s" for factor in FACTORS}
MASK = ".mask.png"

PLACES = {
    f"{folder}/{name}": (factor, name) for factor, folder in FOLDERS.items() for name in CLASSES
}


def list_sources(folder: Path) -> pa.Table:
    """The usable photos and masks in a folder, in the form of `photos.listing.list_photos`;
    unusable ones are named.

    Unusable are also: a mask without its photo, of another size or empty; a car or object that
    nothing cuts out; and a duplicate photo. DiagvibError if nothing is left of a class.
    """
    from diagvib.scenes.photos.decoding import in_threads

    table = list_photos(folder, tuple(PLACES))
    paths = set(table["path"].to_pylist())
    photos = [row for row in table.to_pylist() if not row["path"].endswith(MASK)]
    masks = {row["path"]: mask_of(row["path"]) for row in photos if mask_of(row["path"]) in paths}
    for path in sorted(
        path for path in paths if path.endswith(MASK) and path not in masks.values()
    ):
        leave_out(
            folder / path,
            f"because there is no photo for this mask; NAME.jpg and NAME{MASK} belong together",
        )
    cut = [row["path"] for row in photos if PLACES[row["place"]][0] in PASTED]
    wrong = dict(
        zip(
            cut,
            in_threads(lambda path: _why_not_cut_out(folder, path, masks.get(path)), cut),
            strict=True,
        )
    )
    kept: dict[str, str] = {}
    for row in photos:
        path, why = row["path"], wrong.get(row["path"])
        if why:
            leave_out(folder / masks.get(path, path), why)
        elif row["sha256"] in kept:
            leave_out(folder / path, f"because it is the same photo as {kept[row['sha256']]}")
        else:
            kept[row["sha256"]] = path
    used = set(kept.values())
    used |= {mask for path, mask in masks.items() if path in used}
    check_places(folder, tuple(PLACES), {path.rpartition("/")[0] for path in kept.values()})
    return table.filter(pa.array([path in used for path in table["path"].to_pylist()], pa.bool_()))


def mask_of(path: str) -> str:
    """The path of the mask of a photo."""
    return str(Path(path).with_suffix(MASK))


def _why_not_cut_out(folder: Path, path: str, mask: str | None) -> str | None:
    """Why a photo's object cannot be cut out; None if it can."""
    from diagvib.scenes.cars.tiles import cut_out
    from diagvib.scenes.photos.decoding import open_photo

    try:
        cut_out(open_photo(folder / path, "RGBA"), open_photo(folder / mask, "L") if mask else None)
    except ValueError as error:
        return str(error)
    except DiagvibError as error:  # changed a moment ago
        return str(error)
    return None
