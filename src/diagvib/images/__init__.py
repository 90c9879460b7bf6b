"""Image files and datasets. The names of a dataset's files are here, so that importing them does
not import torch."""

# Stands for all features of a (study, binding).
FEATURES_FILE = "features.json"


def made_from(recipes: dict, size: int) -> dict:
    """Digests of everything that images are made from, given the metadata of their recipe file:
    part of DIGESTS_FILE."""
    noted = {key: recipes.get(key) for key in ("digests", "sources_digest")}
    return {"recipes": noted, "image_size": size}
