"""The layout of an image: a car in the middle of a background, another object on the right (Li et
al., 2023).

At 256 pixels the car's longer side is 128 and the object's 64; their centres are (128, 128) and
(128, 224), row and column. Other sizes are in proportion, rounded down. Each is centred in a square
tile with its longer side, so that a tile has the same position in every image.
"""

FACTORS = ("car", "background", "object")
CLASSES = ("urban", "country")
# In the order of pasting; later ones cover earlier ones.
PASTED = ("object", "car")
# The image size that photos are prepared for.
CANVAS = 256
# From this value on, alpha or a mask counts as the object.
OPAQUE = 128

_PART = {"car": 2, "background": 1, "object": 4}


def tile_side(factor: str, size: int) -> int:
    """The side of a factor's tile in an image of `size` pixels."""
    return size // _PART[factor]


def tile_corner(factor: str, size: int) -> tuple[int, int]:
    """Row and column of the tile's first pixel in an image of `size` pixels."""
    half = tile_side(factor, size) // 2
    return size // 2 - half, (7 * size // 8 if factor == "object" else size // 2) - half
