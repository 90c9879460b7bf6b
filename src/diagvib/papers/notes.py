"""Notes on results that cannot be compared with a paper: stand-in sources, networks trained from scratch."""

import pandas as pd

from diagvib.results.published import is_comparable
from diagvib.results.tidy_tables import baseline_settings
from diagvib.studies.known_studies import SHIPPED


def source_note(frame: pd.DataFrame, settings: dict) -> str:
    """The note for everything made from sources other than a paper's, or from photos of which some
    were left out; empty if none is needed.

    If nothing has run yet, the configuration's `sources` decide.
    """
    sources_of_runs = sorted(set(frame[frame["status"] == "ok"]["sources"]))
    used = sources_of_runs or [settings.get("sources", "official")]
    sentence = f"Made from {' and '.join(used)} sources"
    as_published = used == ["official"] and "textures" not in settings
    if is_comparable(frame) if sources_of_runs else as_published:
        return "" if used == ["official"] else f"{sentence}."
    return f"{sentence}: not comparable to the paper."


def scratch_note(frame: pd.DataFrame, settings: dict) -> str:
    """Which baselines train on photos without published weights, where the papers start from them;
    empty if none do."""
    photos = SHIPPED.seeded(frame["study"])  # of others, there is no paper
    names = frame.loc[frame["study"].isin(photos), "baseline"].unique()
    baselines = baseline_settings(names, settings)
    scratch = [
        name
        for name, settings_of_baseline in baselines.items()
        if not (settings_of_baseline.get("model") or {}).get("weights")
    ]
    text = "Trained from scratch, not from published weights as in the paper"
    return f"{text}: {', '.join(scratch)}." if scratch else ""
