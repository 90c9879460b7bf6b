"""Images that a workflow has made in its root, and the studies of its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata, read_yaml
from diagvib.images import made_from
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import Images
from diagvib.settings.layout import Layout
from diagvib.studies.binding import Binding
from diagvib.studies.study import Study


def study_files(root: str | Path | None) -> list[Path]:
    """The study files of a root's configuration, which names them as seen from the folder in which
    the workflow ran."""
    if root is None:
        return []
    folders = [Path(), Path(root), *Path(root).absolute().parents]
    names = _configuration(Path(root)).get("studies_from", [])
    paths = {name: [folder / name for folder in folders] for name in names}
    return [next(filter(Path.is_file, places), Path(name)) for name, places in paths.items()]


def _configuration(root: Path) -> dict:
    """The keys of a root's configuration; none if there is none."""
    file = root / "config.yaml"
    return read_yaml(file) if file.is_file() else {}


def finished_images(
    layout: Layout, study: Study, binding: Binding, sample: int, splits: Sequence[str]
) -> tuple[Study, Images]:
    """The study as it was when its images were drawn, and those of these splits."""
    files = ImageFiles(layout.images(study.name, binding.name))
    _check_current(layout, study.name, binding.name)
    return files.together(study, sample, splits)


def _check_current(layout: Layout, study: str, binding: str) -> None:
    """DiagvibError if a root's images are of other recipes than those that it has, or of another
    size than its configuration's, as after `images: render`."""
    recipes, digests = layout.recipes(study, binding), layout.digests(study, binding)
    if not (recipes.is_file() and digests.is_file()):
        return
    image_size = _configuration(layout.root).get("image_size")
    rendered_size = read_json(digests).get("image_size")
    if image_size and rendered_size and image_size != rendered_size:
        raise DiagvibError(
            f"{digests.parent}: its images have {rendered_size} pixels per side, but "
            f"{layout.root / 'config.yaml'} has image_size: {image_size}; render them again with "
            "`snakemake images --cores all` and `images: parquet`, or leave out `root`"
        )
    rendered_from = read_json(digests).get("recipes")
    if rendered_from and rendered_from != made_from(read_metadata(recipes), 0)["recipes"]:
        raise DiagvibError(
            f"{digests.parent}: its images are of earlier recipes than those in {recipes}; render "
            "them again with `snakemake images --cores all` and `images: parquet`, or leave out `root`"
        )
