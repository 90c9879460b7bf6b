"""From decoded photos to tiles: cut out, cropped and scaled, all of one size."""

import numpy as np
from PIL import Image

from diagvib.scenes.cars.geometry import OPAQUE

_BILINEAR, _NEAREST = Image.Resampling.BILINEAR, Image.Resampling.NEAREST


def cut_out(photo: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """A photo's colours uint8[H, W, 3] and where its object is, bool[H, W].

    photo: uint8[H, W, 4]; mask: uint8[H, W], instead of its alpha channel. ValueError, saying why,
    if there is none.
    """
    opaque = (photo[..., 3] if mask is None else mask) >= OPAQUE
    if opaque.shape != photo.shape[:2]:
        raise ValueError(
            "because the mask is {} x {} pixels and the photo {} x {}".format(
                *opaque.shape[::-1], *photo.shape[1::-1]
            )
        )
    if not opaque.any():
        raise ValueError(f"because {'it is transparent' if mask is None else 'the mask is empty'}")
    if opaque.all():
        raise ValueError(
            "because its mask covers all of it: a mask is white where the object is, and black elsewhere"
            if mask is not None
            else "because nothing cuts its object out: it has no alpha channel and no NAME.mask.png next to "
            "it, which `diagvib cutout` can make"
        )
    return photo[..., :3], opaque


def cut_out_tile(photo: np.ndarray, mask: np.ndarray | None, side: int) -> np.ndarray:
    """A photo's object on a tile, uint8[side, side, 4], as large as its longer side; alpha is 0 or
    255.

    photo: uint8[H, W, 4]; mask: uint8[H, W] instead of its alpha channel. Cropped to the mask's
    box; colours are scaled bilinearly with antialiasing, the mask to the nearest pixel. ValueError
    if nothing is cut out.
    """
    colours, opaque = cut_out(photo, mask)
    rows, columns = (np.flatnonzero(opaque.any(axis)) for axis in (1, 0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    # With an alpha channel, colours beyond the object are undefined and must not bleed in; a
    # photo's are its surroundings.
    crop = np.ascontiguousarray((colours if mask is not None else photo)[box])
    factor = side / max(crop.shape[:2])
    height, width = (max(1, round(factor * length)) for length in crop.shape[:2])
    tile = np.zeros((side, side, 4), np.uint8)
    top, left = side // 2 - height // 2, side // 2 - width // 2
    target = tile[top : top + height, left : left + width]
    target[..., :3] = np.asarray(Image.fromarray(crop).resize((width, height), _BILINEAR))[..., :3]
    target[..., 3] = np.asarray(
        Image.fromarray(opaque[box].astype(np.uint8) * 255).resize((width, height), _NEAREST)
    )
    return tile


def layers(tile: np.ndarray) -> np.ndarray:
    """A cut-out tile uint8[side, side, 4] as needed for pasting, uint8[2, side, side, 3]: the
    colours, 0 beyond the object; and a mask for what is below, 255 where it stays visible and 0 on
    the object.
    """
    beyond = np.where(tile[..., 3:] >= OPAQUE, 0, 255).astype(np.uint8).repeat(3, 2)
    return np.stack([tile[..., :3] & ~beyond, beyond])


def scaled(photo: np.ndarray, side: int) -> np.ndarray:
    """A photo uint8[s, s, 3], or the `layers` of a cut-out, at another size.

    Colours from beyond a cut-out do not bleed into it, and its edges stay sharp.
    """
    cut = photo.ndim == 4
    image = Image.fromarray(np.dstack([photo[0], ~photo[1, ..., :1]]) if cut else photo)
    small = np.array(image.resize((side, side), _BILINEAR))
    return layers(small) if cut else small
