"""Images that `diagvib.load` draws and renders now, without a workflow's root."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_yaml
from diagvib.foundation.parallel import one_thread_in_forks
from diagvib.images.files import Images, rendered
from diagvib.library.bound_study import BoundStudy
from diagvib.scenes.cache import cached
from diagvib.scenes.scene import Scene
from diagvib.settings.keys import Sources
from diagvib.settings.photo_counts import STAND_IN_COUNTS
from diagvib.settings.resolve import default_path
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.scarcity import check_counts, counts_of
from diagvib.studies.study import load_studies

# Of every cell; where test images are too few for that, metrics come with a warning.
_ENOUGH = 10_000_000


class Rendering(NamedTuple):
    """The arguments of `load` about images that are rendered now."""

    sources: Sources | None
    mirror: Path | None
    counts: dict[str, int] | None
    image_size: int | None
    device: str | torch.device | None
    textures: Sequence[str] | None

    def images(
        self, bound: BoundStudy, sample: int, splits: Sequence[str]
    ) -> tuple[BoundStudy, Images]:
        """The study, and images of it, drawn and rendered."""
        if self.mirror and not self.mirror.is_dir():
            raise DiagvibError(f"diagvib.load: mirror: {self.mirror}: no such folder")
        study, scene, counts = bound.study, bound.scene, self._counts(bound, splits)
        prepared = cached(scene, self.sources or "official", self.mirror)
        catalogue, samples = scene.catalogue(prepared), [dataset_sample(sample, scene)]
        recipes = draw_recipes(study, bound.binding, samples, counts, scene, catalogue, splits)
        device = resolve_device("cpu" if self.device is None else str(self.device))
        with one_thread_in_forks():
            renderer = scene.rendering(prepared, self.image_size or 128, device)
            pixels = rendered(recipes, renderer, prepared)
        metadata = {"scene": study.scene, "comparable": catalogue.comparable}
        return bound, Images(pixels, recipes, metadata)

    def _counts(self, bound: BoundStudy, splits: Sequence[str]) -> dict[str, int]:
        """The number of images of each split and test group. DiagvibError if training needs more."""
        stand_ins = few_images(bound.scene, self.sources)
        defaults = STAND_IN_COUNTS if stand_ins else read_yaml(default_path())["counts"]
        studies = load_studies(bound.studies_from)
        counts = counts_of(bound.study, self.counts or {}, defaults, studies)
        if "train" in splits and not bound.study.as_published:
            check_counts(bound.study, {"train": counts["train"], "test": _ENOUGH})
        return counts

    def check_unused(self, root: Path) -> None:
        """DiagvibError for arguments that have no effect on the images in a root."""
        for name, value in self._asdict().items():
            if value is not None:
                raise DiagvibError(
                    f"diagvib.load: {name} is for images that are rendered now, but those in {root} "
                    f"are finished; leave out {name} or root"
                )


def few_images(scene: Scene, sources: Sources | None) -> bool:
    """Whether images are of stand-ins for photos, of which there are few."""
    return sources == "embedded" and scene.replicates == "seeds"
