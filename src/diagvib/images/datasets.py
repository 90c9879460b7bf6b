"""Sources of a dataset's images for training: image files, or recipes rendered on the fly. Both
give the same."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, file_sha256, read_json, read_metadata, read_table
from diagvib.images import made_from
from diagvib.images.files import (
    Images,
    pixel_format,
    read_chunks,
    read_images,
    render_batches,
    rendered,
)
from diagvib.images.memory import room
from diagvib.scenes.scene import Scene
from diagvib.studies.dataset_sample import DatasetSample
from diagvib.studies.preference import cue_label_names
from diagvib.studies.recipes import read_recipes, select_recipes
from diagvib.studies.study import Study, parse_study

# Keys of a study's definition. How results are judged is no property of the images.
_DRAWN_FROM = {"roles", "bound", "rows", "spread"}


def study_as_drawn(study: Study, metadata: dict, path: Path) -> Study:
    """A study with the roles and rows that an image file was drawn from: it may have been edited
    since."""
    # A study may have got a spread since; without one, its definition lacks the key.
    stored = {"scene": metadata["scene"], "spread": None, **metadata["definition"]}
    return parse_study(
        study.name, study.model_dump(mode="json", exclude={"name"}) | stored, f"{path}: study"
    )


@dataclass(frozen=True)
class ImageFiles:
    """Datasets as image files: `folder`/{sample}/{split}.parquet.

    If the folder has digests, loading a file that differs from the rendered one raises
    DiagvibError.
    """

    folder: Path

    @staticmethod
    def name(sample: int, split: str) -> str:
        """A split's file within the folder."""
        return f"{sample}/{split}.parquet"

    def path(self, sample: int, split: str) -> Path:
        """The file to name in a message about a split."""
        return self.folder / self.name(sample, split)

    def metadata(self, sample: int, split: str) -> dict:
        """Metadata of a split: study, binding, roles, scene, sample, split, sources, comparable,
        digests, image_shape; the part of the study's definition that images depend on; and the
        target class that each class of a cue points to (`studies.preference`). It does not depend
        on which other samples exist."""
        path = self.path(sample, split)
        return {
            **read_metadata(path),
            "sha256": self._digests.get(self.name(sample, split)) or file_sha256(path),
        }

    def load(self, sample: int, split: str) -> Images:
        """A split in memory."""
        self.check(sample, split)
        return read_images(self.path(sample, split))

    def table(self, sample: int, split: str) -> pa.Table:
        """The recipe columns of a split."""
        path = self.path(sample, split)
        names = pq.read_schema(path).names if path.exists() else []
        return read_table(path, [name for name in names if name != "image"])

    def chunks(self, sample: int, split: str, start: int = 0) -> Iterator[torch.Tensor]:
        """The pixels of a split, uint8[B, H, W, 3], a few hundred images at a time. start: the
        first row, which is the end of an earlier chunk."""
        self.check(sample, split)
        return read_chunks(self.path(sample, split), start)

    def together(self, study: Study, sample: int, splits: Sequence[str]) -> tuple[Study, Images]:
        """The study as it was when its images were drawn, and the images of several splits."""
        parts = []
        for split in splits:
            path = self.path(sample, split)
            if not path.exists():
                raise DiagvibError(
                    f"{path}: no such file; make it with `snakemake images --cores all` and a "
                    "configuration with `images: parquet`, get it with `dvc pull`, or leave out "
                    "`root` to render the images now"
                )
            if self.name(sample, split) not in self._digests:
                raise DiagvibError(
                    f"{self.folder}: its images are being rendered, or are left from a run that was stopped; finish it "
                    f"with the same command (a finished one has {DIGESTS_FILE})"
                )
            parts.append(self.load(sample, split))
        pixels = parts[0].pixels
        if len(parts) > 1:
            count = sum(len(part.pixels) for part in parts)
            pixels = torch.from_numpy(room((count, *pixels.shape[1:]), self.folder))
            torch.cat([part.pixels for part in parts], out=pixels)
        table, metadata = pa.concat_tables(part.table for part in parts), parts[0].metadata
        return study_as_drawn(study, metadata, self.path(sample, splits[0])), Images(
            pixels, table, metadata
        )

    def check(self, sample: int, split: str) -> None:
        """DiagvibError if a file is not the one that was rendered."""
        path, digest = self.path(sample, split), self._digests.get(self.name(sample, split))
        if digest and path.exists() and file_sha256(path) != digest:
            raise DiagvibError(
                f"{path}: changed since it was rendered: {self.folder / DIGESTS_FILE} has another "
                "sha256; delete it and run again to make a new one"
            )

    @cached_property
    def _digests(self) -> dict[str, str]:
        path = self.folder / DIGESTS_FILE
        return read_json(path) if path.exists() else {}


class RenderedRecipes:
    """Datasets rendered from a recipe file on `device`, with a scene's prepared data in the folder
    `prepared`. Methods as of `ImageFiles`.

    DiagvibError if the recipes were drawn for other sources.
    """

    def __init__(
        self,
        path: Path,
        scene: Scene,
        prepared: Path,
        size: int,
        device: torch.device,
        **options: object,
    ):
        """options: of the scene's renderer."""
        self._path, self.prepared = path, prepared
        self._recipes, self._noted = read_recipes(path)
        sources = scene.catalogue(prepared)
        if self._noted.get("sources_digest") != sources.digest:
            raise DiagvibError(
                f"{path}: drawn for other sources ({self._noted.get('sources')}, digest "
                f"{self._noted.get('sources_digest')}) than those in {prepared} ({sources.sources}, {sources.digest}); "
                "draw the recipes again, or give each configuration a `root:` of its own"
            )
        name = self._noted["study"]
        self._study = parse_study(
            name, {"title": name, "meaning": name, **self._noted["definition"]}
        )
        self._shared = {key: self._noted[key] for key in ("study", "binding", "roles", "scene")} | {
            "definition": self._study.model_dump(mode="json", include=_DRAWN_FROM),
            "sources": sources.sources,
            "comparable": sources.comparable,
            "sources_digest": sources.digest,
            **pixel_format(size),
        }
        self.renderer = scene.rendering(prepared, size, device, **options)
        self._factors = scene.factors

    @property
    def made_from(self) -> dict:
        """Digests of the recipes and sources of all samples' images, and their size."""
        return made_from(self._noted, self.renderer.size)

    def __len__(self) -> int:
        """The number of images in all samples and splits."""
        return len(self._recipes)

    def path(self, sample, split):
        return self._path

    def metadata(self, sample, split):
        name, digests = f"{sample}/{split}", self._noted["digests"]
        if name not in digests:
            self.table(sample, split)  # says which samples there are
        description = next(
            entry for entry in self._noted["dataset_samples"] if entry["number"] == sample
        )
        dataset_sample = DatasetSample(**description)
        return {
            "sample": sample,
            "split": split,
            "recipe_digest": digests[name],
            **self._shared,
            # The stored key is older than the name, and part of the bytes of image files.
            "speaks_for": cue_label_names(
                self._study,
                self._noted["roles"],
                dataset_sample,
                self._factors,
                self._trained(sample),
            ),
        }

    def _trained(self, sample: int) -> Counter[str]:
        """The training images of each combination of classes, of a study as published."""
        if not self._study.as_published:
            return Counter()
        table = self.table(sample, "train").select([*self._noted["roles"].values()])
        return Counter(map("-".join, zip(*(column.to_pylist() for column in table), strict=True)))

    def table(self, sample, split):
        return select_recipes(self._recipes, sample, split, self._path)

    def chunks(self, sample, split, start=0):
        return render_batches(self.table(sample, split).slice(start), self.renderer)

    def load(self, sample, split):
        rows = self.table(sample, split)
        pixels = rendered(rows, self.renderer, self._path.parent)
        return Images(pixels, rows, self.metadata(sample, split))


# The datasets of a (study, binding), one for each dataset sample, each with splits train, val and
# test.
Datasets = ImageFiles | RenderedRecipes
