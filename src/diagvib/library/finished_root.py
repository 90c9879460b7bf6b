"""Images that a workflow has made in its root, and the studies of its configuration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata, read_yaml
from diagvib.images import made_from
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import Images
from diagvib.library.bound_study import BoundStudy
from diagvib.settings.layout import Layout


def study_files(root: str | Path | None) -> list[Path]:
    """The study files of a root's configuration, which names them as seen from the folder in which
    the workflow ran. DiagvibError for a name by which several files may be meant."""
    if root is None:
        return []
    folders = [Path(), Path(root), *Path(root).absolute().parents]
    names = _configuration(Path(root)).get("studies_from", [])
    return [_only_file(name, [folder / name for folder in folders]) for name in names]


def _only_file(name: str, places: Sequence[Path]) -> Path:
    """The first of these that is there; all others must be copies of it."""
    files = {path.read_bytes(): path for path in reversed(places) if path.is_file()}
    if len(files) > 1:
        raise DiagvibError(
            f"{name}: {' and '.join(map(str, files.values()))} differ, and the root's configuration may mean any; "
            "name the right one as studies_from"
        )
    return next(iter(files.values()), Path(name))


def _configuration(root: Path) -> dict:
    """The keys of a root's configuration; none if there is none."""
    file = root / "config.yaml"
    return read_yaml(file) if file.is_file() else {}


@dataclass(frozen=True)
class FinishedRoot:
    """A root in which a workflow has made images."""

    layout: Layout

    def images(
        self, bound: BoundStudy, sample: int, splits: Sequence[str]
    ) -> tuple[BoundStudy, Images]:
        """The study as it was when its images were drawn, and these."""
        names = bound.study.name, bound.binding.name
        self._check_current(*names)
        files = ImageFiles(self.layout.images(*names))
        study, images = files.together(bound.study, sample, splits)
        return replace(bound, study=study), images

    def _check_current(self, study: str, binding: str) -> None:
        """DiagvibError if a root's images are of other recipes than those that it has, or of another
        size than its configuration's, as after `images: render`."""
        layout = self.layout
        recipes, digests = layout.recipes(study, binding), layout.digests(study, binding)
        if not (recipes.is_file() and digests.is_file()):
            return
        image_size = _configuration(layout.root).get("image_size")
        recorded = read_json(digests)
        rendered_size = recorded.get("image_size")
        if image_size and rendered_size and image_size != rendered_size:
            raise DiagvibError(
                f"{digests.parent}: its images have {rendered_size} pixels per side, but "
                f"{layout.root / 'config.yaml'} has image_size: {image_size}; render them again with "
                "`snakemake images --cores all` and `images: parquet`, or leave out `root`"
            )
        rendered_from = recorded.get("recipes")
        if rendered_from and rendered_from != made_from(read_metadata(recipes), 0)["recipes"]:
            raise DiagvibError(
                f"{digests.parent}: its images are of earlier recipes than those in {recipes}; render "
                "them again with `snakemake images --cores all` and `images: parquet`, or leave out `root`"
            )
