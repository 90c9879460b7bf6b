"""Whether a cell's runs were made like the paper's: what rules out a comparison, and what a verdict
must mention.

Deviations count in both directions: 60 epochs instead of 30 are no more comparable than 10. Runs
that were not made with the configuration do not count (`provenance.finished`).
"""

from collections.abc import Mapping, Sequence
from functools import cache

import pandas as pd

from diagvib.foundation.files import definition_path, read_yaml
from diagvib.papers.published import network_of
from diagvib.results.metric_sets.metric_set import untuned_notes
from diagvib.results.tidy_tables import baseline_settings
from diagvib.settings.resolve import default_path

_WORDS = {
    "batch_size": "batch size",
    "lr": "learning rate",
    "discriminator_lr": "discriminator's learning rate",
    "weight_decay": "weight decay",
    "reconstruction_weight": "reconstruction weight",
    "augment": "augmentation",
    "normalise": "normalisation",
    "options": "model options",
}


def protocol_differences(settings: dict) -> list[str]:
    """How the configuration differs from the paper's protocol: `4,374 training images (paper:
    43,740)`, ..."""
    of_paper, samples = _defaults(), settings.get("samples")
    sizes = [
        (
            "test images per group",
            settings.get("counts", {}).get("ood"),
            of_paper["counts"]["ood"],
        ),
        ("dataset samples" if samples != 1 else "dataset sample", samples, of_paper["samples"]),
        _seeds(settings),
    ]
    return [*_obstacles(settings), *_unequal(sizes)]


def judge_runs(
    frame: pd.DataFrame, provenances: Sequence[dict | None], settings: dict
) -> dict[tuple, tuple[list, list]]:
    """Per (baseline, study, target): what rules out a comparison with the paper's runs, and what
    verdicts must mention.

    frame: from `read_runs.read_runs`; provenances: run.json of each of its rows, None if a run is
    missing, for the precision; settings: the configuration.
    """
    baselines = baseline_settings(frame["baseline"].unique(), settings)
    obstacles = {
        name: _obstacles(settings, name, baseline_settings)
        for name, baseline_settings in baselines.items()
    }
    origins = untuned_notes(baselines)
    paper, seed = _published(), settings.get("training", {}).get("seed")
    seeds = _unequal([_seeds(settings)])
    reasons: dict[tuple, tuple[list, list]] = {}
    cells = frame[["baseline", "study", "target"]].itertuples(index=False, name=None)
    for cell, run in zip(cells, provenances, strict=True):
        precision = run and run.get("precision")
        _, mentions = reasons.setdefault(
            cell, (obstacles[cell[0]], [*filter(None, [origins[cell[0]]]), *seeds])
        )
        for value, key, text in (
            (precision, "precision", precision),
            (seed, "seed", f"seed {seed}"),
        ):
            mention = f"{text} (paper: {paper[key]})"
            if value not in (None, paper[key]) and mention not in mentions:
                mentions.append(mention)
    return reasons


def _seeds(settings: dict) -> tuple[str, int, int]:
    """Seeds per dataset sample, ours and the paper's."""
    return "seeds", settings.get("seeds", 1), _defaults()["seeds"]


@cache
def _defaults() -> dict:
    """The paper's protocol."""
    return read_yaml(default_path())


@cache
def _published() -> dict:
    """The published settings of its baselines."""
    return read_yaml(definition_path("papers/diagvib6_settings.yaml"))


def _obstacles(
    settings: dict, baseline: str = "", baseline_settings: Mapping | None = None
) -> list[str]:
    """How the configuration's trainings differ from the paper's. baseline_settings: of one
    baseline; None: what all of them share."""
    baseline_settings, paper = baseline_settings or {}, _defaults()
    training, counts = settings.get("training", {}), settings.get("counts", {})
    paper_epochs, patience = paper["training"]["max_epochs"], training.get("patience")
    epochs = baseline_settings.get("max_epochs", training.get("max_epochs"))
    obstacles = _unequal(
        [
            ("training images", counts.get("train"), paper["counts"]["train"]),
            ("validation images", counts.get("val"), paper["counts"]["val"]),
            ("pixels per side", settings.get("image_size"), paper["image_size"]),
            ("epochs at most", epochs, paper_epochs),
        ]
    )
    # A patience that cannot run out changes nothing.
    if patience is not None and patience < (epochs or paper_epochs) - 1:
        obstacles.append(f"stops after {patience} epochs without improvement (paper: never)")
    flat = dict(baseline_settings)
    for key in ("model", "method", "optimiser"):
        part = baseline_settings.get(key) or {}
        flat |= part | {key: part.get("name")}
    if "weights_sha256" in network_of(baseline_settings):
        obstacles.append("weights of another file")
    return obstacles + [
        f"{_WORDS.get(key, key)} {flat[key]} (paper: {'none' if value in (None, {}) else value})"
        for key, value in _published()["baselines"].get(baseline, {}).items()
        if key in flat and flat[key] != value
    ]


def _unequal(measures: list[tuple[str, int | None, int]]) -> list[str]:
    return [
        f"{ours:,} {quantity} (paper: {theirs:,})"
        for quantity, ours, theirs in measures
        if ours and ours != theirs
    ]
