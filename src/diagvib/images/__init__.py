"""Image files and datasets. The names of a dataset's files are here, so that importing them does
not import torch."""

from diagvib.foundation.files import DIGESTS_FILE
from diagvib.studies.study import SPLITS

__all__ = ["DIGESTS_FILE", "FEATURES_FILE", "IMAGE_FILES", "made_from"]

# Stands for all features of a (study, binding).
FEATURES_FILE = "features.json"


def made_from(recipes: dict, size: int) -> dict:
    """Digests of everything that images are made from, given the metadata of their recipe file:
    part of DIGESTS_FILE."""
    noted = {key: recipes.get(key) for key in ("digests", "sources_digest")}
    return {"recipes": noted, "image_size": size}


IMAGE_FILES = tuple(f"{split}.parquet" for split in SPLITS)
