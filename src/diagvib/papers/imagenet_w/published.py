"""The numbers of Li et al. (2023) on ImageNet-W (config/papers/imagenet_w.csv), and those of ours that
are made alike."""

from collections.abc import Mapping
from functools import cache

import pandas as pd

from diagvib.foundation.files import definition_path, read_yaml
from diagvib.papers.published import network_of
from diagvib.settings.baselines import complete, is_frozen
from diagvib.studies.known_studies import KnownStudies


@cache
def imagenet_w_tables() -> dict[tuple[str, str, str], dict[str, float]]:
    """Model, weights, method -> the numbers of Li et al.'s Tables 1, 4 and 6, in percent and
    points. Those of Table 6, which have more digits, replace those of Table 1."""
    raw = pd.read_csv(definition_path("papers/imagenet_w.csv"), keep_default_na=False)
    used = raw[raw["table"].isin((1, 4, 6))]
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
    if row["method"] != "diagvib.methods.views:Published":
        shipped = _last_layers().get(row["baseline"])
        if shipped is None or not is_frozen(settings):
            return {}
        if any(settings.get(key) != shipped[key] for key in ("method", "max_epochs")):
            return {}
        method = row["baseline"].removeprefix("last-layer-")
    theirs = imagenet_w_tables().get((model.get("name"), str(model.get("weights")), method), {})
    value = theirs.get(row["metric"])
    if value is None:
        return {}
    note = {"note": "paper: four heads, here two"} if method == "lle" else {}
    printed = " ".join([f"{value:.2f}", *map("({})".format, note.values())])
    return {"paper": value / 100, "printed": printed, **note}
