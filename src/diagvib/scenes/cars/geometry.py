"""Where things stand in an image: a car in the middle of a background, a further object at the right (Li et al., 2023).

At 256 pixels the car's longer side is 128 and the object's 64; their centres are (128, 128) and (128, 224), row and
column. Other sizes in proportion, rounded down. Each stands in the middle of a square tile of its longer side, so that
a tile has the same place in every image.
"""

FACTORS = ("car", "background", "object")
CLASSES = ("urban", "country")
# In the order of pasting; whatever comes later hides what is there.
PASTED = ("object", "car")
# The canvas that photos are prepared for.
CANVAS = 256
# From this value on alpha, or a mask, is the object.
OPAQUE = 128

_PART = {"car": 2, "background": 1, "object": 4}


def tile_side(factor: str, size: int) -> int:
    """The side of a factor's tile in an image of `size` pixels."""
    return size // _PART[factor]


def tile_corner(factor: str, size: int) -> tuple[int, int]:
    """Row and column of the tile's first pixel in an image of `size` pixels."""
    half = tile_side(factor, size) // 2
    return size // 2 - half, (7 * size // 8 if factor == "object" else size // 2) - half
