"""Whether a cell's runs were made like the paper's: what rules out a comparison, and what a verdict
must mention.

Deviations count in both directions: 60 epochs instead of 30 are no more comparable than 10. Runs
that were not made with the configuration do not count (`training.finished_runs`).
"""

from collections.abc import Sequence
from functools import cache

import pandas as pd

from diagvib.foundation.files import definition_path, read_yaml
from diagvib.reproduction.published import is_comparable
from diagvib.results.known_studies import known_studies
from diagvib.results.metric_sets.metric_set import NOT_TUNED, part_of
from diagvib.results.tables import baseline_settings, configured_settings
from diagvib.scenes import load_scene
from diagvib.settings.config import default_path

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


@cache
def _published() -> dict:
    """What is published about the settings of its baselines."""
    return read_yaml(definition_path("papers/diagvib6_settings.yaml"))


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
        for key, value in _published()["baselines"].get(baseline, {}).items()
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
    paper = _published()
    words = {"precision": "{}", "seed": "seed {}"}
    return [
        f"{text.format(facts[key])} (paper: {paper[key]})"
        for key, text in words.items()
        if facts[key] not in (None, paper[key])
    ]


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
    used = ran or [settings.get("sources", "official")]
    made = f"Made from {' and '.join(used)} sources"
    if is_comparable(frame) if ran else used == ["official"]:
        return "" if used == ["official"] else f"{made}."
    return f"{made}: not comparable to the paper."


def scratch_note(frame: pd.DataFrame, settings: dict) -> str:
    """Which baselines train on photos without published weights, where the papers start from them;
    empty if none do."""
    studies = known_studies(settings).studies
    scenes = {name: studies[name].scene for name in frame["study"].unique() if name in studies}
    photos = [name for name, scene in scenes.items() if load_scene(scene).replicates == "seeds"]
    own = frame[frame["study"].isin(photos)]
    made = baseline_settings(own, [None] * len(own), settings)
    names = [name for name, one in made.items() if not part_of(one, "model").get("weights")]
    text = "Trained from scratch, not from published weights as in the paper"
    return f"{text}: {', '.join(names)}." if names else ""
