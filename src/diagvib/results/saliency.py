"""Where networks look, as shares of the saliency: a run's numbers, and the table for readers."""

from collections.abc import Iterator, Mapping

import pandas as pd

from diagvib.results.known_studies import KnownStudies
from diagvib.results.table import Table, whole_percent

TITLE = "Where networks look"
ABOUT = (
    "Of what speaks for the prediction in 48 test images of each run (HiResCAM; in networks without a feature map, the "
    "gradient), the share that lies where the image shows the target or a cue; in brackets, that part's share of the "
    "image, which is what a network that looks everywhere equally would have."
)


def measures(noted: Mapping[str, Mapping[str, float]], binding: str) -> dict[str, float]:
    """Columns of a run in the table `runs`: `saliency_{role}` and `area_{role}`, with the roles
    target, and cue or cue_1 and so on. noted: factor -> share and area, from metrics.json."""
    target, *cues = binding.split("-")
    names = ["cue"] if len(cues) == 1 else [f"cue_{at + 1}" for at in range(len(cues))]
    found = {}
    for role, factor in zip(["target", *names], [target, *cues], strict=True):
        if factor in noted:
            found[f"saliency_{role}"] = noted[factor]["share"]
            found[f"area_{role}"] = noted[factor]["area"]
    return found


def saliency_tables(runs: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    """The mean over the runs of each study and baseline; none if no run has numbers."""
    roles = [name.removeprefix("saliency_") for name in runs if name.startswith("saliency_")]
    if not roles:
        return
    ran, rows = runs.dropna(subset=[f"saliency_{role}" for role in roles], how="all"), []
    for (study, baseline), own in ran.groupby(["study", "baseline"], sort=False):
        means = [(own[f"saliency_{role}"].mean(), own[f"area_{role}"].mean()) for role in roles]
        texts = [
            "-" if part != part else f"{whole_percent(part)} ({whole_percent(area)})"
            for part, area in means
        ]
        rows.append([known.title(study), baseline, *texts, str(len(own))])
    heads = ["study", "baseline", *(f"on the {role.replace('_', ' ')}" for role in roles), "runs"]
    yield Table("Mean over runs", heads, rows, section=TITLE, about=[ABOUT])


def saliency_sentence(runs: pd.DataFrame, known: KnownStudies) -> str:
    """Where the first baseline with numbers looks, in the study with a shortcut or else the first;
    empty if there is none."""
    if "saliency_target" not in runs or (ran := runs.dropna(subset=["saliency_target"])).empty:
        return ""
    headline = known.headline(ran["study"])
    shown = ran[ran["study"] == headline.shortcut] if headline else ran[:0]
    own = (shown if len(shown) else ran).iloc[0]
    own = ran[(ran["study"] == own["study"]) & (ran["baseline"] == own["baseline"])]
    share, area = own["saliency_target"].mean(), own["area_target"].mean()
    return (
        f"{own['baseline'].iloc[0]}, {known.title(own['study'].iloc[0])}: {whole_percent(share)} of what speaks for its "
        f"predictions lies where the image shows the target, which is {whole_percent(area)} of the image."
    )
