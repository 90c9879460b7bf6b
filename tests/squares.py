"""A minimal scene of a user's own: a coloured square in one of four corners. `scene:
squares:Squares`."""

import numpy as np
import pyarrow as pa

from diagvib.scenes.scene import Scene

COLOURS = {
    "red": (200, 40, 40),
    "green": (40, 200, 40),
    "blue": (40, 40, 200),
    "white": (220, 220, 220),
}
CORNERS = {
    "north-west": (0.25, 0.25),
    "north-east": (0.25, 0.75),
    "south-west": (0.75, 0.25),
    "south-east": (0.75, 0.75),
}
SIDES = {"small": (0.10, 0.15), "middle": (0.20, 0.25), "large": (0.30, 0.35)}
SHADES = {"train": [0, 10], "val": [20], "test": [30, 40]}  # each shade is used in one split


class Squares(Scene):
    """Without source files: everything is generated."""

    factors = {"colour": tuple(COLOURS), "corner": tuple(CORNERS), "extent": tuple(SIDES)}  # noqa: RUF012
    columns = pa.schema([("side", pa.float64()), ("shade", pa.int16())])
    realized_by = {"colour": ["shade"], "corner": [], "extent": ["side"]}  # noqa: RUF012

    def realize(self, classes, split, catalogue, generator):
        low, high = np.array([SIDES[name] for name in classes["extent"]]).reshape(-1, 2).T
        return {
            "side": generator.uniform(low, high),
            "shade": generator.choice(SHADES[split], len(low)),
        }

    def renderer(self, prepared, size, device):
        import torch  # here, because it takes long to load, and only rendering needs it

        def render(recipes):
            images = torch.full((len(recipes), size, size, 3), 127, dtype=torch.uint8)
            for image, row in zip(images, recipes.to_pylist(), strict=True):
                half = max(round(row["side"] * size / 2), 1)
                top, remaining = (
                    round(position * size) - half for position in CORNERS[row["corner"]]
                )
                colour = torch.tensor(COLOURS[row["colour"]]) + row["shade"]
                image[top : top + 2 * half, remaining : remaining + 2 * half] = colour.clamp(0, 255)
            return images.to(device)

        return render
