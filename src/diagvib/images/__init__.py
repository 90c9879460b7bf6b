"""Image files and datasets. What other stages need of them without torch is here."""

from collections.abc import Iterable
from pathlib import Path

# Stands for all features of a (study, binding).
FEATURES_FILE = "features.json"


def made_from(recipes: dict, size: int) -> dict:
    """Digests of everything that images are made from, given the metadata of their recipe file:
    part of DIGESTS_FILE."""
    digests = {key: recipes.get(key) for key in ("digests", "sources_digest")}
    return {"recipes": digests, "image_size": size}


def view_path(path: Path, view: str) -> Path:
    """The file of a view next to that of the images as they are."""
    return path.with_name(f"{path.stem}.{view.replace('.', '-')}.npy")


def split_files(path: Path, views: Iterable[str] = ()) -> list[Path]:
    """The files of a split: its features, their table, and the features of its views."""
    return [path, path.with_suffix(".parquet"), *(view_path(path, view) for view in views)]
