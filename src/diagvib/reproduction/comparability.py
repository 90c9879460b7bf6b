"""Whether a cell's runs were made like the paper's: what rules out a comparison, and what a verdict
must mention.

Deviations count in both directions: 60 epochs instead of 30 are no more comparable than 10. Runs
that were not made with the configuration do not count (`training.finished_runs`).
"""

from collections.abc import Sequence
from functools import cache

import pandas as pd

from diagvib.foundation.files import read_yaml
from diagvib.reproduction.published import is_comparable
from diagvib.results.known_studies import known_studies
from diagvib.results.metric_sets.metric_set import NOT_TUNED, part_of
from diagvib.results.tables import baseline_settings, configured_settings
from diagvib.scenes import load_scene
from diagvib.settings.config import default_path

# What the authors published. Of all baselines: images without augmentation, selection by validation
# loss (Sec. A.2).
_ALL = {"augment": None, "selection": "val_loss"}
# Of those with a network for images: random weights (Sec. 4), z-scored inputs.
_NETWORK = {**_ALL, "options": {}, "weights": None, "frozen": False, "normalise": "dataset"}
_ERM = {**_NETWORK, "method": "erm", "optimiser": "adam"}
# More settings: of resnet18, in their code; of the VAEs, in Sec. A.2. Of the others, none.
PUBLISHED = {
    "resnet18": {
        "model": "resnet18",
        **_ERM,
        "batch_size": 64,
        "lr": 2e-4,
        "betas": [0.9, 0.999],
        "weight_decay": 0.0,
    },
    **{
        name: {"model": name, **_ERM}
        for name in ("resnet50", "wide_resnet50_2", "densenet161", "alexnet")
    },
    "resnet50_in": {"model": "resnet50", **_ERM, "weights": "IMAGENET1K_V1", "frozen": True},
    "asr": {"model": "resnet18", **_NETWORK, "method": "asr"},
    "vae": {**_ALL, "method": "vae", "batch_size": 64, "lr": 1e-4, "latent": 12, "beta": 1.0},
    "factor_vae": {
        **_ALL,
        "method": "factor_vae",
        "batch_size": 64,
        "lr": 1e-4,
        "latent": 12,
        "gamma": 20.0,
        "discriminator_lr": 1e-5,
    },
}
# Neither is stated by the paper: the published trainer has no autocast, and its seed is one of its
# settings.
PUBLISHED_PRECISION, PUBLISHED_SEED = "fp32", 1332
_WORDS = {
    "batch_size": "batch size",
    "lr": "learning rate",
    "discriminator_lr": "discriminator's learning rate",
    "weight_decay": "weight decay",
    "augment": "augmentation",
    "normalise": "normalisation",
    "options": "model options",
}


def protocol_differences(settings: dict) -> list[str]:
    """How the configuration differs from the paper's protocol: `4,374 training images (paper:
    43,740)`, ..."""
    counts, of_paper = settings.get("counts", {}), _defaults()
    samples = settings.get("samples")
    sizes = [
        ("test images per group", counts.get("ood"), of_paper["counts"]["ood"]),
        ("dataset samples" if samples != 1 else "dataset sample", samples, of_paper["samples"]),
    ]
    return [*_obstacles(_configured(settings, None)), *_unequal(sizes)]


def judge_runs(
    frame: pd.DataFrame, made: Sequence[dict | None], settings: dict
) -> dict[tuple, tuple[list, list]]:
    """Per (baseline, study, target): what rules out a comparison with the paper's runs, and what
    verdicts must mention.

    frame: from `read_runs.collect_runs`; made: run.json of each of its rows, None if a run is
    missing or has none, for the precision; settings: the configuration.
    """
    configured = {name: _configured(settings, name) for name in frame["baseline"].unique()}
    origins = {
        name: [NOT_TUNED]
        if NOT_TUNED in configured_settings(settings, name).get("origin", "")
        else []
        for name in configured
    }
    found, judged = {}, {}
    cells = frame[["baseline", "study", "target"]].itertuples(index=False, name=None)
    for cell, run in zip(cells, made, strict=True):
        facts = configured[cell[0]] | {"precision": (run or {}).get("precision")}
        key = cell[0], repr(facts)
        if key not in judged:
            judged[key] = _obstacles(facts, cell[0]), _mentions(facts)
        obstacles, mentions = found.setdefault(cell, ([], [*origins[cell[0]]]))
        obstacles += [what for what in judged[key][0] if what not in obstacles]
        mentions += [what for what in judged[key][1] if what not in mentions]
    return found


@cache
def _defaults() -> dict:
    """The paper's protocol."""
    return read_yaml(default_path())


def _configured(settings: dict, baseline: str | None) -> dict:
    """What determines a training, as far as the configuration states it; baseline None: what all of
    them share."""
    counts, training = settings.get("counts", {}), settings.get("training", {})
    own = configured_settings(settings, baseline) if baseline else {}
    return {
        "train": counts.get("train"),
        "val": counts.get("val"),
        "image_size": settings.get("image_size"),
        "epochs": own.get("max_epochs", training.get("max_epochs")),
        "patience": training.get("patience"),
        "seed": training.get("seed"),
        "settings": own,
    }


def _obstacles(facts: dict, baseline: str | None = None) -> list[str]:
    paper = _defaults()
    epochs = paper["training"]["max_epochs"]
    found = _unequal(
        [
            ("training images", facts["train"], paper["counts"]["train"]),
            ("validation images", facts["val"], paper["counts"]["val"]),
            ("pixels per side", facts["image_size"], paper["image_size"]),
            ("epochs at most", facts["epochs"], epochs),
        ]
    )
    # A patience that cannot run out changes nothing.
    if facts["patience"] is not None and facts["patience"] < (facts["epochs"] or epochs) - 1:
        found.append(f"stops after {facts['patience']} epochs without improvement (paper: never)")
    own = _flat(facts["settings"])
    return found + [
        f"{_WORDS.get(key, key)} {own[key]} (paper: {'none' if value in (None, {}) else value})"
        for key, value in PUBLISHED.get(baseline, {}).items()
        if key in own and own[key] != value
    ]


def _flat(settings: dict) -> dict:
    """A baseline's settings, with those of model, method and optimiser on the same level, and these
    three by name."""
    found = {key: settings.get(key) for key in ("model", "method", "optimiser")}
    parts = {key: part if isinstance(part, dict) else {} for key, part in found.items()}
    inner = {key: value for part in parts.values() for key, value in part.items() if key != "name"}
    return {**settings, **inner, **{key: part.get("name") for key, part in parts.items()}}


def _mentions(facts: dict) -> list[str]:
    found = []
    if facts["precision"] not in (None, PUBLISHED_PRECISION):
        found.append(f"{facts['precision']} (paper: {PUBLISHED_PRECISION})")
    if facts["seed"] not in (None, PUBLISHED_SEED):
        found.append(f"seed {facts['seed']} (paper: {PUBLISHED_SEED})")
    return found


def _unequal(measures: list[tuple[str, int | None, int]]) -> list[str]:
    return [
        f"{ours:,} {what} (paper: {theirs:,})"
        for what, ours, theirs in measures
        if ours and ours != theirs
    ]


def source_note(frame: pd.DataFrame, settings: dict) -> str:
    """The note for everything made from sources other than the paper's, or from photos of which
    some were left out; empty if none is needed.

    If nothing has run yet, the configuration's `sources` decide.
    """
    ran = sorted(set(frame[frame["status"] == "ok"]["sources"]))
    made = f"Made from {' and '.join(ran or [settings.get('sources', 'official')])} sources"
    if is_comparable(frame) or (not ran and settings.get("sources", "official") == "official"):
        return f"{made}." if {*ran} - {"official"} else ""
    return f"{made}: not comparable to the paper."


def scratch_note(frame: pd.DataFrame, settings: dict) -> str:
    """Which baselines train on photos without published weights, where the papers start from them;
    empty if none do."""
    studies = known_studies(settings).studies
    photos = {
        name
        for name in frame["study"].unique()
        if name in studies and load_scene(studies[name].scene).replicates == "seeds"
    }
    own = frame[frame["study"].isin(photos)]
    models = {
        name: part_of(made, "model")
        for name, made in baseline_settings(own, [None] * len(own), settings).items()
    }
    scratch = [name for name, model in models.items() if not model.get("weights")]
    return (
        f"Trained from scratch, not from published weights as in the paper: {', '.join(scratch)}."
        if scratch
        else ""
    )
