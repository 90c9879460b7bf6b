"""A minimal scene of a user's own: a coloured square in one of four corners. `scene:
squares:Squares`."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import read_json, write_json

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


@dataclass(frozen=True)
class Catalogue:
    sources: str
    comparable: bool
    digest: str


@dataclass(frozen=True)
class Renderer:
    size: int
    device: torch.device

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        images = torch.full((len(recipes), self.size, self.size, 3), 127, dtype=torch.uint8)
        for image, row in zip(images, recipes.to_pylist(), strict=True):
            half = max(round(row["side"] * self.size / 2), 1)
            top, left = (round(at * self.size) - half for at in CORNERS[row["corner"]])
            colour = torch.tensor(COLOURS[row["colour"]]) + row["shade"]
            image[top : top + 2 * half, left : left + 2 * half] = colour.clamp(0, 255).to(
                torch.uint8
            )
        return images.to(self.device)


class Squares:
    """`diagvib.scenes.scene.Scene` without source files: everything is generated."""

    name = "Squares"
    factors = {"colour": tuple(COLOURS), "corner": tuple(CORNERS), "extent": tuple(SIDES)}  # noqa: RUF012
    columns = pa.schema([("side", pa.float64()), ("shade", pa.int16())])
    published_samples = ()

    def raw_files(self, sources):
        return []

    def prepared_files(self):
        return ["sources.json"]

    def fetch(self, raw, mirror):
        raise DiagvibError(f"{raw}: squares have no official sources; set `sources: embedded`")

    def prepare(self, raw, prepared, sources):
        if sources != "embedded":
            raise unknown_name("value of sources", sources, ["embedded"])
        digest = hashlib.sha256(repr((COLOURS, CORNERS, SIDES, SHADES)).encode()).hexdigest()
        write_json(
            prepared / "sources.json", {"sources": sources, "comparable": False, "digest": digest}
        )

    def catalogue(self, prepared):
        if not (prepared / "sources.json").exists():
            raise DiagvibError(
                f"{prepared / 'sources.json'}: no such file; run `diagvib prepare` first"
            )
        noted = read_json(prepared / "sources.json")
        return Catalogue(noted["sources"], noted["comparable"], noted["digest"])

    def largest(self, catalogue):
        return {"shade": 40}

    def realize(self, classes, split, catalogue, generator, environment=None):
        low, high = np.array([SIDES[name] for name in classes["extent"]]).reshape(-1, 2).T
        return {
            "side": generator.uniform(low, high),
            "shade": generator.choice(SHADES[split], len(low)),
        }

    def renderer(self, prepared, size, device):
        self.catalogue(prepared)
        return Renderer(size, torch.device(device))

    def exchange(self, recipes, factor, donors):
        for name in {"colour": ["colour", "shade"], "extent": ["extent", "side"]}.get(
            factor, [factor]
        ):
            recipes = recipes.set_column(recipes.column_names.index(name), name, donors[name])
        return recipes

    def examples(self, prepared, wanted):
        usual = {"colour": "red", "corner": "north-west", "extent": "large"}
        chosen = [{**usual, **one} for one in wanted]
        table = pa.table(
            {
                **{factor: [one[factor] for one in chosen] for factor in self.factors},
                "side": [SIDES[one["extent"]][1] for one in chosen],
                "shade": [0] * len(chosen),
            }
        )
        return self.renderer(prepared, 128, "cpu")(table).numpy()
