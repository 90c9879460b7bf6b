"""Image files and datasets. What other stages need of them without torch is here."""

# Stands for all features of a (study, binding).
FEATURES_FILE = "features.json"


def made_from(recipes: dict, size: int) -> dict:
    """Digests of everything that images are made from, given the metadata of their recipe file:
    part of DIGESTS_FILE."""
    noted = {key: recipes.get(key) for key in ("digests", "sources_digest")}
    return {"recipes": noted, "image_size": size}
