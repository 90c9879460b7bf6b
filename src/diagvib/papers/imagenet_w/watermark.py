"""The set of metrics `watermark` (Li et al., 2023, Sec. 2.2): what ImageNet-W's watermark does to a
network, and other shortcuts of ImageNet."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from diagvib.foundation.files import read_table
from diagvib.papers.imagenet_w import published
from diagvib.papers.imagenet_w.trades import trade_sentences
from diagvib.results.cells import RUN_KEYS
from diagvib.results.effects import (
    Effect,
    cautions,
    effect_of,
    ends_of,
    first_bindings,
    interval_of,
    unseen,
)
from diagvib.results.metric_sets.metric_set import Finding, MetricSet, Results
from diagvib.results.reader_tables import Frames, Table, metrics_of, whole_percent
from diagvib.studies.known_studies import KnownStudies

# The class of ImageNet that the watermark points to.
CARTON = "n02971356"
# In the tables' order, with their column heads.
MEASURES = {
    "in1k_accuracy": "IN-1k",
    "in_w_gap": "IN-W gap",
    "carton_gap": "Carton gap",
    "p_carton": "P(carton)",
    "delta_p_carton": "dP(carton)",
    "delta_p_carton_given_carton": "dP(carton, cartons)",
    "p_carton_factor": "P(carton) times",
    "carton_rank": "rank",
    "sin_gap": "SIN gap",
    "in_r_gap": "IN-R gap",
    "in_9_gap": "IN-9 gap",
}
_SHARES = ("in1k_accuracy", "p_carton")
AVERAGE = "average"


class Watermark(MetricSet):
    """`measure` of each run."""

    title = "ImageNet-W"
    heads = MEASURES
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        **{name: (-1, 1) for name in MEASURES if name != "in1k_accuracy"},
        "p_carton": (0, 1),
        "p_carton_factor": (0, math.inf),
        "carton_rank": (1, math.inf),
    }
    lower_is_better = ("carton_gap", *(name for name in MEASURES if "p_carton" in name))
    introduction = (
        "IN-1k: top-1 accuracy in percent; P(carton): mean probability in percent; P(carton) times: the factor by which "
        "the watermark changes it; rank: the median place of carton among all classes, ordered by that factor; all "
        "others in points. Laid out like Tables 1 and 4 of Li et al. (2023).",
    )

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        return [*MEASURES]

    def of_run(self, results: Results) -> pd.DataFrame:
        return results.runs.reindex(columns=[*RUN_KEYS, *MEASURES])

    def of_predictions(self, path: Path, target: str) -> dict[str, float]:
        photos = read_table(path).to_pandas()
        return measure(photos.assign(label=photos[target]))

    def paper_number(self, row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
        return published.paper_number(row, known_studies, settings)

    def text(self, row: Mapping) -> str:
        if row["expected"] == 1 or row["metric"] in self.unbounded:
            return number(row["metric"], row["mean"])
        return super().text(row)

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        """The tables of each study, with the mean over the networks that are measured as published,
        as in Table 1."""
        measured = metric_rows[metric_rows["method"] == published.UNTRAINED]
        for table in super().shown(metric_rows, tables, known_studies):
            rows = measured[measured["study"].map(known_studies.title) == table.title]
            # Missing where one network's is: the mean over others would say something else.
            means = rows.groupby("metric", sort=False)["mean"].mean(skipna=False)
            averages = {MEASURES[name]: number(name, value) for name, value in means.items()}
            if rows["baseline"].nunique() > 1:
                line = [AVERAGE, *(averages.get(head, "") for head in table.heads[1:])]
                table = replace(table, rows=[*table.rows, line])
            yield table

    def findings(self, tables: Frames, known_studies: KnownStudies) -> Iterator[Finding]:
        """What the watermark does to the first baseline on the first study."""
        for study, target, _, rows in first_bindings(metrics_of(tables, "watermark")):
            baseline = rows["baseline"].iloc[0]
            metrics = rows[rows["baseline"] == baseline].set_index("metric")
            means = metrics["mean"]
            clean, gap = means["in1k_accuracy"], means["in_w_gap"]
            before, change = means["p_carton"], means["delta_p_carton"]
            if gap != gap:
                continue
            run = {"study": study, "binding": rows["binding"].iloc[0], "baseline": baseline}
            loss = Effect(gap, *ends_of(metrics.loc["in_w_gap"]))
            if math.isnan(loss.low):
                groups = ({**run, "group": name} for name in ("in-w", "in-1k"))
                loss = effect_of(tables, known_studies, *groups)
            rise = Effect(change, *ends_of(metrics.loc["delta_p_carton"]))
            text = (
                f"{baseline} recognises the {target} in {whole_percent(clean)} of the images "
                f"({known_studies.title(study)}), and in {whole_percent(clean + gap)} with the watermark"
            )
            text += f" ({loss.reach})." if loss.is_shown else f": {unseen(loss)}."
            text += (
                f" The mean probability of a carton is {100 * before:.2f}\N{NO-BREAK SPACE}% without it and "
                f"{100 * (before + change):.2f}\N{NO-BREAK SPACE}% with it"
            )
            text += f" ({rise.reach})." if rise.is_shown else f": {unseen(rise)}."
            text += cautions(tables, baseline, studies=[study])
            bars = {"without the watermark": clean, "with the watermark": clean + gap}
            marked = interval_of(tables, known_studies, {**run, "group": "in-w"})
            ends = ends_of(metrics.loc["in1k_accuracy"]), marked
            intervals = dict(zip(bars, ends, strict=True))
            yield Finding(self.title, text, known_studies.chance(study), bars, intervals)
            return

    def sentences(self, tables: Frames, known_studies: KnownStudies) -> dict[str, list[str]]:
        """Of the methods that retrain a last layer, in all studies: `trade_sentences`, each method
        compared with the last ERM of the same model that stands before it."""
        networks = []
        for _, _, _, rows in first_bindings(metrics_of(tables, "watermark")):
            means = rows.pivot(index="baseline", columns="metric", values="mean")
            erm: dict[str, str] = {}
            for row in rows.drop_duplicates("baseline").to_dict("records"):
                baseline, model = row["baseline"], row["model"]
                if row["method"] == "erm":
                    erm[model] = baseline
                elif row["method"] != published.UNTRAINED and model in erm:
                    both = (means.loc[name].reindex(MEASURES) for name in (baseline, erm[model]))
                    networks.append((baseline, erm[model], *both))
        sentences = trade_sentences(networks)
        return {self.title: sentences} if sentences else {}


METRIC_SET = Watermark()


def number(metric: str, value: float) -> str:
    """A measure for readers, with the paper's two decimals."""
    if np.isnan(value):
        return "-"
    if metric in METRIC_SET.unbounded:
        return f"{value:.2f}"
    return f"{100 * value:.2f}" if metric in _SHARES else f"{100 * value:+z.2f}"


def measure(photos: pd.DataFrame) -> dict[str, float]:
    """MEASURES as fractions; NaN if there are no photos for one.

    photos: group, label (empty: not known), prediction, and the columns of `scenes.photos.answers`,
    with the groups in-1k and in-w of the same photos. Gaps are differences of accuracy: ImageNet-W
    minus ImageNet; Stylized-ImageNet minus ImageNet; ImageNet-R minus ImageNet's photos of the same
    classes, both with predictions among these classes only; mixed-rand minus mixed-same. P: mean
    probability on ImageNet; dP: its mean change by the watermark. p_carton_factor: the geometric
    mean of P's factor; carton_rank: 1 plus the number of classes that the watermark raises more
    than the carton, the median over photos.
    """
    groups = dict(iter(photos.astype({"log_p": float}).groupby("group")))
    no_photos = photos[:0]
    clean, marked, sin, renditions, same_background, mixed = (
        groups.get(name, no_photos)
        for name in ("in-1k", "in-w", "sin", "in-r", "mixed-same", "mixed-rand")
    )
    cartons = [part[part["label"] == CARTON] for part in (clean, marked)]
    before, after, *of_cartons = (
        np.exp(part["log_p"]).mean() for part in (clean, marked, *cartons)
    )
    rendition_classes = clean[clean["label"].isin(renditions["label"])]
    values = {
        "in1k_accuracy": _accuracy(clean),
        "in_w_gap": _accuracy(marked) - _accuracy(clean),
        "carton_gap": _accuracy(cartons[1]) - _accuracy(cartons[0]),
        "p_carton": before,
        "delta_p_carton": after - before,
        "delta_p_carton_given_carton": of_cartons[1] - of_cartons[0],
        "p_carton_factor": np.exp(marked["log_p"].mean() - clean["log_p"].mean()),
        "carton_rank": 1 + marked["raised_more"].median(),
        "sin_gap": _accuracy(sin) - _accuracy(clean),
        "in_r_gap": _accuracy(renditions, "among") - _accuracy(rendition_classes, "among"),
        "in_9_gap": _accuracy(mixed) - _accuracy(same_background),
    }
    # Rounded, so that results do not differ in the last bits of a sum.
    return {name: round(float(values[name]), 8) for name in MEASURES}


def _accuracy(photos: pd.DataFrame, column: str = "prediction") -> float:
    labelled = photos[photos["label"] != ""]
    return float((labelled[column] == labelled["label"]).mean()) if len(labelled) else np.nan
