"""Stand-ins for the photos of dogs: a shape for each breed, a pattern for each background.

They replace the published photos, 3,168 of each breed, background and copy. Results made from them
are not comparable to the paper.
"""

from itertools import product

import numpy as np

from diagvib.foundation.seeding import named_generator
from diagvib.scenes.shapes import photo

# Pixels per side, and photos of each breed, background and copy. With this many, every published
# share is a whole number or close to it: 97 and 3, 87 and 13.
SIZE, PHOTOS = 96, 100
BREEDS = {"bulldog": "disc", "corgi": "triangle", "dachshund": "bar", "labrador": "cross"}
BACKGROUNDS = {
    "beach": "waves",
    "desert": "rows",
    "dirt": "dots",
    "jungle": "columns",
    "mountain": "checks",
    "snow": "grid",
}
PLACES = tuple(product(("0", "1"), BACKGROUNDS, BREEDS))  # copy, background, breed


def embedded_photo(copy: str, background: str, breed: str, number: int) -> np.ndarray:
    """One stand-in photo, uint8[SIZE, SIZE, 3], always the same."""
    generator = named_generator("stand-in dogs", copy, background, breed, number)
    return photo(BREEDS[breed], BACKGROUNDS[background], SIZE, generator)
