"""The numbers of Li et al. (2023) on ImageNet-W (config/papers/imagenet_w.csv), and those of ours that
are made alike."""

from collections.abc import Mapping
from functools import cache

import pandas as pd

from diagvib.foundation.files import definition_path, read_yaml
from diagvib.papers.published import network_of
from diagvib.settings.baselines import complete
from diagvib.settings.frozen_networks import is_frozen
from diagvib.studies.known_studies import KnownStudies

# The method of networks that are measured as they are published.
UNTRAINED = "diagvib.methods.views:Published"


@cache
def imagenet_w_tables() -> dict[tuple[str, str, str], dict[str, float]]:
    """Model, weights, method -> the numbers of Li et al.'s Tables 1, 4, 6 and 7, in percent and
    points. Those of Table 6, which have more digits, replace those of Table 1, and those of Table 4
    the same method's in Table 7."""
    raw = pd.read_csv(definition_path("papers/imagenet_w.csv"), keep_default_na=False)
    used = raw.sort_values("table", key=lambda tables: tables.replace(7, 0), kind="stable")
    return {
        key: dict(zip(network_rows["metric"], network_rows["value"], strict=True))
        for key, network_rows in used.groupby(["model", "weights", "method"])
    }


@cache
def _last_layers() -> dict[str, dict]:
    """The shipped baselines that retrain a last layer, as in Table 4: name -> settings."""
    path = definition_path("imagenet_w/baselines.yaml")
    return {
        name: complete(entry, name, str(path))
        for name, entry in read_yaml(path).items()
        if name.startswith("last-layer-")
    }


def paper_number(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    """Where model, weights and method are the same; last layers are the shipped `last-layer-*`, with
    their method and number of epochs."""
    model, method = network_of(settings), ""
    if "weights_sha256" in model:  # of another file
        return {}
    if row["method"] != UNTRAINED:
        shipped = _last_layers().get(row["baseline"])
        if shipped is None or not is_frozen(settings):
            return {}
        if any(settings.get(key) != shipped[key] for key in ("method", "max_epochs")):
            return {}
        method = row["baseline"].removeprefix("last-layer-")
    weights = model.get("weights")
    if isinstance(weights, dict):  # a file with a hash in its published name
        weights = f"sha256 {weights['sha256'][:8]}"
    theirs = imagenet_w_tables().get((model.get("name"), str(weights), method), {})
    value = theirs.get(row["metric"])
    if value is None:
        return {}
    return {"paper": value / 100, "printed": f"{value:.2f}"}
