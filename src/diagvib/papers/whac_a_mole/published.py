"""The numbers of Li et al. (2023) on UrbanCars (config/papers/urbancars.csv), and those of ours that are
made alike."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd
import yaml

from diagvib.foundation.files import definition_path
from diagvib.papers.published import matching, network_of
from diagvib.papers.whac_a_mole.groups import knows_groups, training_shares
from diagvib.results.reader_tables import points
from diagvib.settings.method_settings import changed
from diagvib.studies.known_studies import KnownStudies

# The shares of the training images in which both cues agree with the target, cue 1
# misleads, cue 2 misleads, both do.
PAPER_SHARES = (0.9025, 0.0475, 0.0475, 0.0025)


@cache
def read_urbancars_tables() -> pd.DataFrame:
    """Every number of Tables 3 and 5 of Li et al. (2023), as fractions.

    Columns: table, scene, binding, model, weights, method, option (of the method, `key=value`, or
    empty; all others are at their defaults), supervision, selection, metric, value. The methods in
    Table 3 have no supervision.
    """
    raw = pd.read_csv(definition_path("papers/urbancars.csv"), keep_default_na=False)
    return raw.assign(value=raw["percent"] / 100).drop(columns="percent")


def paper_number(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    """Where scene, binding, training shares, model with its weights, all of it trained, method with
    its options, and selection are the same."""
    study, method = known_studies.studies[row["study"]], dict(settings.get("method", {}))
    method.pop("supervision", None)
    conditions = {key: row[key] for key in ("binding", "model", "method", "selection", "metric")}
    conditions["scene"] = study.scene
    conditions["supervision"] = row["supervision"] if knows_groups(row["supervision"]) else "none"
    for entry in matching(read_urbancars_tables(), conditions):
        key, _, value = entry["option"].partition("=")
        published = {"name": entry["method"]} | ({key: yaml.safe_load(value)} if key else {})
        if (
            network_of(settings) == {"name": entry["model"], "weights": entry["weights"]}
            and changed(method) == changed(published)
            and np.allclose(list(training_shares(study).values()), PAPER_SHARES)
        ):
            value = entry["value"]
            inside = row["metric"] == "id_accuracy"
            return {"paper": value, "printed": f"{100 * value:.1f}" if inside else points(value)}
    return {}
