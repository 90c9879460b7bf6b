"""The numbers of Lynch et al. (2023) on Spawrious (config/papers/spawrious.csv), and those of ours that
are made alike."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.papers.published import matching, network_of
from diagvib.studies.known_studies import KnownStudies

# Options that are part of a method as the paper runs it; all others are drawn in its
# random searches, or not known.
_OPTIONS = {"jtt": {"restart": False}, "group_dro": {"balanced": True}}
# Where the paper prints a mean that differs from that of its numbers.
_MEAN_NOTES = {
    (3, "causirl_coral"): "mean of the paper's six numbers; it prints 77.20",
    (5, "erm"): "mean of the paper's six numbers; it prints 40.44",
}
# Of every network (Sec. 5), and of timm's ViT-B/16, for Table 5: the paper says no more than ImageNet-22k.
_DROPOUT = 0.1
_VIT = ("timm/vit_base_patch16_224", "augreg_in21k")


@cache
def read_spawrious_tables() -> pd.DataFrame:
    """Every number of Tables 3 to 5 of Lynch et al. (2023), as fractions.

    Columns: table, scene, binding, model, weights, method, supervision, selection, study, paper,
    paper_spread, note (what is doubtful about the number). Spreads are as printed.
    """
    raw = pd.read_csv(
        definition_path("papers/spawrious.csv"),
        keep_default_na=False,
        na_values={"spread_percent": [""]},
    )
    return raw.assign(paper=raw["percent"] / 100, paper_spread=raw["spread_percent"] / 100)


def paper_number(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    """Where scene, rows of the study, binding, model with its weights, method and selection are the
    same.

    All of the network must be trained, with the paper's dropout, except that batch norm keeps the
    statistics of published weights (as in DomainBed in 2023), and the method must be the one that the paper describes.
    """
    if not row["study"] or row["metric"] != "accuracy":
        return {}
    study, method = known_studies.studies[row["study"]], settings.get("method", {})
    network = network_of(settings)
    weights = network.get("weights", "")
    vit = (row["model"], weights) == _VIT
    conditions = {
        key: row[key] for key in ("binding", "model", "method", "supervision", "selection")
    }
    conditions |= {"scene": study.scene, "weights": weights}
    conditions |= {"model": "vit_b_16", "weights": "IN22K"} if vit else {}
    options = {key: value for key, value in network.items() if key not in ("name", "weights")}
    published = {"dropout": _DROPOUT}
    if weights and not vit:
        published["frozen_statistics"] = True
    if options != published or not (_OPTIONS.get(row["method"], {}).items() <= method.items()):
        return {}
    for entry in matching(read_spawrious_tables(), conditions):
        theirs = known_studies.studies.get(entry["study"])
        if theirs is not None and theirs.rows == study.rows:
            spread = entry["paper_spread"]
            end = "" if spread != spread else f" ± {100 * spread:.2f}"
            return entry | {"printed": f"{100 * entry['paper']:.2f}{end}"}
    return {}


def add_means(rows: Sequence[Mapping], paper_values: list[dict]) -> None:
    """Spawrious' mean over its studies, where ours is over the same ones."""
    paper, of_studies = read_spawrious_tables(), defaultdict(list)
    for row, paper_value in zip(rows, paper_values, strict=True):
        if row["metric"] != "accuracy":
            continue
        study_values = of_studies[row["baseline"], row["binding"]]
        if row["study"]:  # before the means
            study_values.append(paper_value)
            continue
        conditions = {name: study_values[0].get(name) for name in ("table", "method")}
        published = pd.DataFrame(matching(paper, conditions), columns=paper.columns)
        if {study_value.get("study") for study_value in study_values} == set(published["study"]):
            mean = published["paper"].mean()
            note = _MEAN_NOTES.get(tuple(conditions.values()), "")
            paper_value |= {"paper": mean, "printed": f"{100 * mean:.2f}", "note": note}
