"""The set of metrics `gaps` (Li et al., 2023, Sec. 2.1): the accuracy lost where one cue of two
misleads, or both."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from diagvib.papers.whac_a_mole import published
from diagvib.papers.whac_a_mole.against_erm import REFERENCE, whac_a_mole
from diagvib.papers.whac_a_mole.comparison import comparisons_of
from diagvib.papers.whac_a_mole.finding import gap_sentences, loss_bars, reference_sentence
from diagvib.papers.whac_a_mole.groups import (
    CUE_GAPS,
    DIFFERENCES,
    GAPS,
    knows_groups,
    training_shares,
)
from diagvib.results.cells import RUN_KEYS, worst_cell
from diagvib.results.effects import cautions
from diagvib.results.metric_sets.metric_set import (
    Finding,
    MetricSet,
    Results,
    of_all_bindings,
    pivot,
)
from diagvib.results.reader_tables import Frames, Table, interval
from diagvib.results.uncertainty import FEWEST
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import GAP_GROUPS

SHOWN_METRICS = {
    "id_accuracy": "I.D. Acc",
    "cue_1_gap": "cue-1 gap",
    "cue_2_gap": "cue-2 gap",
    "joint_gap": "joint gap",
}
# The paper's names of these gaps, where the cues are those of UrbanCars.
_OF_URBANCARS = {"cue_1_gap": "BG", "cue_2_gap": "CoObj", "joint_gap": "BG+CoObj"}
MEASURES = ("id_accuracy", *GAPS, "worst_group")


class Gaps(MetricSet):
    """id_accuracy, cue_1_gap, cue_2_gap, joint_gap, worst_group; and the table `whac_a_mole`, each
    method's gaps compared with ERM's.

    With a(u, v) a group's mean per-class accuracy: id_accuracy = sum over the groups of training
    share times a; a gap is a of its group minus id_accuracy; worst_group is the accuracy of the
    worst target x cue 1 x cue 2 cell.
    """

    title = "Whac-A-Mole: accuracy lost where a cue misleads"
    introduction = (
        "Percent and points, mean ± standard error over the {samples}. I.D. Acc: the accuracies of the four "
        "test groups, weighted like the training images. Gap: accuracy where cue 1, cue 2 or both mislead, minus I.D. "
        "Acc. In brackets: the 95 % interval of a cue's gap minus that of ERM with the same model, paired by sample, over "
        "the bindings that both have (their number is there if it is smaller than the gap's); "
        f"none with fewer than {FEWEST} samples. The intervals are not corrected for the number of methods.",
    )
    differences = DIFFERENCES
    summary = "worst_group"

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        return MEASURES

    def of_run(self, results: Results) -> pd.DataFrame:
        runs, groups = results.runs, [*GAP_GROUPS.values()]
        accuracy = runs.reindex(columns=[f"{group}_accuracy" for group in groups])
        accuracy = accuracy.astype(float).set_axis(groups, axis=1)
        of_study = {
            name: training_shares(results.known_studies.studies[name])
            for name in runs["study"].unique()
        }
        shares = pd.DataFrame([of_study[name] for name in runs["study"]], runs.index, groups)
        inside = (shares.astype(float) * accuracy).sum(axis=1, skipna=False)
        gaps = {name: accuracy[group] - inside for name, group in GAPS.items()}
        worst = worst_cell(results.cells, RUN_KEYS).rename("worst_group")
        return runs[RUN_KEYS].assign(id_accuracy=inside, **gaps).join(worst, on=RUN_KEYS)

    def tables(self, results: Results) -> Frames:
        return {"whac_a_mole": whac_a_mole(self.of_run(results), results.baselines)}

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        """Of each study, the methods without group labels and those with; ERM is in both
        tables."""
        keys = ["study", "baseline", "binding", "metric"]
        whac = tables["whac_a_mole"]
        whac = whac.assign(metric=whac["cue"].map(CUE_GAPS))[[*keys, "low", "high", "bindings"]]
        binding_counts = (
            metric_rows[metric_rows["binding"] != ""]
            .groupby(keys[:2])["binding"]
            .nunique()
            .rename("averaged")
        )
        rows = metric_rows.merge(whac, how="left", on=keys, suffixes=("", "_from_erm"))
        rows = of_all_bindings(rows.join(binding_counts, on=keys[:2]))
        labels = rows["supervision"].map(knows_groups).astype(bool)
        for title, is_shown in (
            ("methods without group labels", ~labels),
            ("methods with group labels", labels | (rows["method"] == REFERENCE)),
        ):
            for study, part in rows[is_shown].groupby("study", sort=False):
                heads = heads_of(known_studies.studies[study].scene)
                yield Table(
                    f"{known_studies.title(study)}: {title}",
                    *pivot(part, "metric", heads, self._beside_erm),
                    section=self.title,
                    introduction=self.introduction,
                )

    def findings(self, tables: Frames, known_studies: KnownStudies) -> Iterator[Finding]:
        """The accuracy that the first ERM loses where cues mislead."""
        for study, (comparison, *_) in comparisons_of(tables, known_studies).items():
            for method in comparison.ran:
                if method.is_reference:
                    text = reference_sentence(comparison, method)
                    text += cautions(tables, method.baseline, studies=[study])
                    bars = loss_bars(comparison, method)
                    yield Finding(self.title, text, known_studies.chance(study), *bars)
                    return

    def sentences(self, tables: Frames, known_studies: KnownStudies) -> dict[str, list[str]]:
        """Those of the first study; its name, if there are several."""
        of_studies = comparisons_of(tables, known_studies)
        for comparison, *_ in of_studies.values():
            sentences = gap_sentences(comparison)
            if len(of_studies) > 1:
                sentences[:1] = [f"{comparison.heading}: {text}" for text in sentences[:1]]
            return {self.title: sentences}
        return {}

    def paper_number(self, row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
        return published.paper_number(row, known_studies, settings)

    def _beside_erm(self, row: Mapping) -> str:
        """`-24.7 ± 1.2 (-18.1 to -6.5)`: in brackets, the interval of the difference from ERM's
        gap; `; 2 of 3 bindings`, if ERM has fewer."""
        low, high, shared_bindings = (
            row[key] for key in ("low_from_erm", "high_from_erm", "bindings")
        )
        if low != low:
            return self.text(row)
        fewer = (
            f"; {shared_bindings:.0f} of {row['averaged']} bindings"
            if shared_bindings < row["averaged"]
            else ""
        )
        return f"{self.text(row)} ({interval(low, high, change=True)}{fewer})"


def heads_of(scene: str) -> dict[str, str]:
    """SHOWN_METRICS; with the paper's name of each gap on images of UrbanCars."""
    names = _OF_URBANCARS if scene == "cars" else {}
    return {
        metric: f"{head} ({names[metric]})" if metric in names else head
        for metric, head in SHOWN_METRICS.items()
    }


METRIC_SET = Gaps()
