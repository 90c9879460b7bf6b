"""The numbers of the papers (config/papers), and those of ours that are made alike."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import numpy as np
import pandas as pd
import yaml

from diagvib.foundation.files import definition_path, read_yaml
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets.gaps import (
    knows_groups,
    network_of,
    training_shares,
)
from diagvib.results.table import points
from diagvib.settings.baselines import changed, complete, is_frozen

# The number of possible cues for a target in DiagViB-6: all other factors. FAAvg over fewer cues is
# a different number.
PAPER_CUES = 5
KEYS = ["study", "baseline", "target", "metric"]
# UrbanCars: the shares of the training images in which both cues agree with the target, cue 1
# misleads, cue 2 misleads, both do.
PAPER_SHARES = (0.9025, 0.0475, 0.0475, 0.0025)
# Spawrious: options that are part of a method as the paper runs it; all others are drawn in its
# random searches, or not known.
_OPTIONS = {"jtt": {"restart": False}, "group_dro": {"balanced": True}}
# Spawrious prints a mean that differs from that of its numbers.
_MEAN_NOTES = {
    (3, "causirl_coral"): "mean of the paper's six numbers; it prints 77.20",
    (5, "erm"): "mean of the paper's six numbers; it prints 40.44",
}


@cache
def read_paper_tables() -> pd.DataFrame:
    """Every number of DiagViB-6's Tables 2 and A2-A9, as fractions.

    Columns: table (2, A2 ...), study, baseline, target, metric (faavg | famin, or a contrast's),
    paper_mean, paper_spread, spread_kind (stderr; of a contrast std). One row per key.
    """
    raw = pd.read_csv(definition_path("papers/diagvib6.csv")).rename(columns={"factor": "target"})
    return raw.assign(
        table=raw["table"].str.removeprefix("table_").str.upper(),
        study=raw["study"].str.lower(),
        paper_mean=raw.pop("mean_percent") / 100,
        paper_spread=raw.pop("spread_percent") / 100,
    )


@cache
def read_urbancars_tables() -> pd.DataFrame:
    """Every number of Tables 3 and 5 of Li et al. (2023), as fractions.

    Columns: table, scene, binding, model, weights, method, option (of the method, `key=value`, or
    empty; all others are at their defaults), supervision, selection, metric, value. The methods in
    Table 3 have no supervision.
    """
    raw = pd.read_csv(definition_path("papers/urbancars.csv"), keep_default_na=False)
    return raw.assign(value=raw["percent"] / 100).drop(columns="percent")


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


@cache
def paper_range() -> pd.DataFrame:
    """The lowest and highest number of DiagViB-6's nine networks, and that of resnet18, whose
    settings the authors published: by study, target and metric."""
    keys = ["study", "target", "metric"]
    paper = read_paper_tables().pivot(index=keys, columns="baseline", values="paper_mean")
    ends = {"low": paper.min(axis=1), "high": paper.max(axis=1)}
    return pd.DataFrame({**ends, "resnet18": paper["resnet18"]})


def of_paper(studies: Iterable[str]) -> bool:
    """Whether DiagViB-6 has numbers for any of these studies."""
    return not set(read_paper_tables()["study"]).isdisjoint(studies)


def beside_papers(
    metrics: pd.DataFrame,
    runs: pd.DataFrame,
    known_studies: KnownStudies,
    baselines: Mapping[str, dict],
) -> pd.DataFrame:
    """The table `metrics` with paper, difference (ours minus the paper's), printed and note.

    They are empty where no paper has a number for this scene or study, binding, model, method and
    selection rule (for DiagViB-6: study, target and baseline's name), or if the sources of the
    baseline's runs are not comparable. How the runs differ otherwise is in the table `comparison`.
    """
    rows = metrics.to_dict("records")
    comparable = {
        baseline
        for baseline, baseline_runs in runs.groupby("baseline")
        if is_comparable(baseline_runs)
    }
    paper_values = [
        _OF_SET[row["metric_set"]](row, known_studies, baselines.get(row["baseline"], {}))
        if row["baseline"] in comparable and row["metric_set"] in _OF_SET
        else {}
        for row in rows
    ]
    _add_means(rows, paper_values)
    paper = np.array([entry.get("paper", np.nan) for entry in paper_values], dtype=float)
    return metrics.assign(
        paper=paper,
        difference=metrics["mean"] - paper,
        printed=[entry.get("printed", "") for entry in paper_values],
        note=[
            entry.get("note") or row["note"] for entry, row in zip(paper_values, rows, strict=True)
        ],
    )


def is_comparable(runs: pd.DataFrame) -> bool:
    """Whether anything ran, and everything that ran used the papers' sources."""
    ok = runs[runs["status"] == "ok"]
    return bool(len(ok)) and bool(ok["comparable"].astype(bool).all())


def _diagvib6(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    numbers = _diagvib6_numbers().get(tuple(row[key] for key in KEYS))
    if numbers is None or row["cues"] not in (0, PAPER_CUES):
        return {}
    mean, spread = numbers
    return {"paper": mean, "printed": f"{100 * mean:.0f} ± {100 * spread:.0f}"}


@cache
def _diagvib6_numbers() -> dict[tuple, tuple[float, float]]:
    """Mean and spread by study, baseline, target and metric."""
    table = read_paper_tables().set_index(KEYS)
    return table[["paper_mean", "paper_spread"]].apply(tuple, axis=1).to_dict()


def _urbancars(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    """Where scene, binding, training shares, model with its weights, all of it trained, method with
    its options, and selection are the same."""
    study, method = known_studies.studies[row["study"]], dict(settings.get("method", {}))
    method.pop("supervision", None)
    conditions = {key: row[key] for key in ("binding", "model", "method", "selection", "metric")}
    conditions["scene"] = study.scene
    conditions["supervision"] = row["supervision"] if knows_groups(row["supervision"]) else "none"
    for entry in _matching(read_urbancars_tables(), conditions):
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


# Of timm's ViT-B/16, for Table 5: the paper says no more than ImageNet-22k.
_VIT = ("timm/vit_base_patch16_224", "augreg_in21k")


def _spawrious(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    """Where scene, rows of the study, binding, model with its weights, method and selection are the
    same.

    All of the network must be trained, except that batch norm keeps the statistics of published
    weights (as in DomainBed in 2023), and the method must be the one that the paper describes.
    """
    if not row["study"] or row["metric"] != "accuracy":
        return {}
    study, network, method = (
        known_studies.studies[row["study"]],
        network_of(settings),
        settings.get("method", {}),
    )
    weights = network.get("weights", "")
    vit = (row["model"], weights) == _VIT
    conditions = {
        key: row[key] for key in ("binding", "model", "method", "supervision", "selection")
    }
    conditions |= {"scene": study.scene, "weights": weights}
    conditions |= {"model": "vit_b_16", "weights": "IN22K"} if vit else {}
    ignored = ("name", "weights", "dropout")
    options = {key: value for key, value in network.items() if key not in ignored}
    if options != ({"frozen_statistics": True} if weights and not vit else {}) or not (
        _OPTIONS.get(row["method"], {}).items() <= method.items()
    ):
        return {}
    for entry in _matching(read_spawrious_tables(), conditions):
        theirs = known_studies.studies.get(entry["study"])
        if theirs is not None and theirs.rows == study.rows:
            spread = entry["paper_spread"]
            end = "" if spread != spread else f" ± {100 * spread:.2f}"
            return entry | {"printed": f"{100 * entry['paper']:.2f}{end}"}
    return {}


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


def _imagenet_w(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
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


_OF_SET = {
    "shortcut": _diagvib6,
    "gaps": _urbancars,
    "average": _spawrious,
    "watermark": _imagenet_w,
}


def _matching(paper: pd.DataFrame, conditions: Mapping) -> Iterator[dict]:
    matches = np.logical_and.reduce([paper[key] == value for key, value in conditions.items()])
    yield from paper[matches].to_dict("records")


def _add_means(rows: list[dict], paper_values: list[dict]) -> None:
    """Spawrious' mean over its studies, where ours is over the same ones."""
    paper, of_studies = read_spawrious_tables(), defaultdict(list)
    for row, paper_value in zip(rows, paper_values, strict=True):
        if (row["metric_set"], row["metric"]) != ("average", "accuracy"):
            continue
        study_values = of_studies[row["baseline"], row["binding"]]
        if row["study"]:  # before the means
            study_values.append(paper_value)
            continue
        conditions = {name: study_values[0].get(name) for name in ("table", "method")}
        published = pd.DataFrame(_matching(paper, conditions), columns=paper.columns)
        if {study_value.get("study") for study_value in study_values} == set(published["study"]):
            mean = published["paper"].mean()
            note = _MEAN_NOTES.get(tuple(conditions.values()), "")
            paper_value |= {"paper": mean, "printed": f"{100 * mean:.2f}", "note": note}
