"""Where networks look, as shares of the saliency: a run's numbers, and the table for readers."""

from collections.abc import Iterator, Mapping

import pandas as pd

from diagvib.results.reader_tables import Table, whole_percent
from diagvib.studies.known_studies import KnownStudies

TITLE = "Where networks look"
INTRODUCTION = (
    "The share of the evidence for the prediction that lies where the image shows the target or a cue, over 48 test "
    "images of each run (HiResCAM; in networks without a feature map, the gradient); in brackets, that part's share of "
    "the image, which is what a network that looks everywhere equally would have."
)


def measures(factor_shares: Mapping[str, Mapping[str, float]], binding: str) -> dict[str, float]:
    """Columns of a run in the table `runs`: `saliency_{role}` and `area_{role}`, with the roles
    target, and cue or cue_1 and so on. factor_shares: factor -> share and area, from
    metrics.json."""
    target, *cues = binding.split("-")
    names = ["cue"] if len(cues) == 1 else [f"cue_{number + 1}" for number in range(len(cues))]
    values = {}
    for role, factor in zip(["target", *names], [target, *cues], strict=True):
        if factor in factor_shares:
            values[f"saliency_{role}"] = factor_shares[factor]["share"]
            values[f"area_{role}"] = factor_shares[factor]["area"]
    return values


def saliency_tables(runs: pd.DataFrame, known_studies: KnownStudies) -> Iterator[Table]:
    """The mean over the runs of each study and baseline; none if no run has numbers."""
    roles = [name.removeprefix("saliency_") for name in runs if name.startswith("saliency_")]
    if not roles:
        return
    measured_runs, rows = runs.dropna(subset=[f"saliency_{role}" for role in roles], how="all"), []
    for (study, baseline), baseline_runs in measured_runs.groupby(
        ["study", "baseline"], sort=False
    ):
        means = [
            (baseline_runs[f"saliency_{role}"].mean(), baseline_runs[f"area_{role}"].mean())
            for role in roles
        ]
        texts = [
            "-" if part != part else f"{whole_percent(part)} ({whole_percent(area)})"
            for part, area in means
        ]
        rows.append([known_studies.title(study), baseline, *texts, str(len(baseline_runs))])
    heads = ["study", "baseline", *(f"on the {role.replace('_', ' ')}" for role in roles), "runs"]
    yield Table("Mean over runs", heads, rows, section=TITLE, introduction=[INTRODUCTION])


def saliency_sentence(runs: pd.DataFrame, known_studies: KnownStudies) -> str:
    """Where the first baseline with numbers looks, in the study with a shortcut or else the first;
    empty if there is none."""
    columns = ["saliency_target", "area_target"]
    measured_runs = runs.reindex(columns=["study", "baseline", *columns]).dropna()
    if measured_runs.empty:
        return ""
    headline = known_studies.headline(measured_runs["study"])
    means = measured_runs.groupby(["study", "baseline"], sort=False)[columns].mean()
    preferred = [names for names in means.index if headline and names[0] == headline.shortcut]
    study, baseline = [*preferred, *means.index][0]
    share, area = means.loc[(study, baseline), columns]
    return (
        f"{baseline}, {known_studies.title(study)}: {whole_percent(share)} of the evidence for its "
        f"predictions lies where the image shows the target, on {whole_percent(area)} of the image."
    )
