"""What numbers of any paper have in common."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from diagvib.foundation.files import named_hash


def matching(paper: pd.DataFrame, conditions: Mapping) -> Iterator[dict]:
    matches = np.logical_and.reduce([paper[key] == value for key, value in conditions.items()])
    yield from paper[matches].to_dict("records")


def network_of(settings: Mapping) -> dict:
    """A baseline's network: the keys of its model that are set. Where the weights' file is makes no
    difference, nor of which changed images features are stored (`views`), and the file's hash only
    if it is not that of the published weights."""
    network = {
        key: value
        for key, value in (settings.get("model") or {}).items()
        if value and key not in ("weights_file", "views")
    }
    if "weights_sha256" in network and _is_published(network):
        del network["weights_sha256"]
    return network


def _is_published(model: Mapping) -> bool:
    """Whether a model's `weights_sha256` is the hash of the weights that it names."""
    from torchvision.models import get_model_weights  # here, because it takes long to load

    published = get_model_weights(model["name"])[model["weights"]]
    return model["weights_sha256"].lower().startswith(named_hash(published.url))
