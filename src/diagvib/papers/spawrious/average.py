"""The set of metrics `average` (Lynch et al., 2023, Sec. 5): accuracy where the cue points to
another class, and how many predictions follow it there (their Fig. 5)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pandas as pd

from diagvib.papers.spawrious import published
from diagvib.results.cells import RUN_KEYS, class_mean, worst_cell
from diagvib.results.effects import cautions, effect_of, ends_of, first_bindings, unseen
from diagvib.results.metric_sets.metric_set import (
    Finding,
    MetricSet,
    Results,
    concatenated,
    mean_over_studies,
    of_all_bindings,
    pivot,
)
from diagvib.results.reader_tables import Frames, Table, metrics_of, whole_percent
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import ID, OOD
from diagvib.studies.preference import cue_label
from diagvib.studies.study import Study

MEASURES = ("accuracy", "worst_cell", "id_accuracy", "confusion")


class Average(MetricSet):
    """MEASURES and `id_accuracy_{environment}`. Rows with an empty study are the mean over all
    studies.

    accuracy, id_accuracy: mean per class of the groups ood and id; worst_cell: target x cue, of the
    group ood; confusion: of the images of group ood whose cue points to other classes than theirs,
    the share predicted as one of these.
    """

    lower_is_better = ("confusion",)
    of_group: ClassVar = {OOD: "accuracy"}
    title = "Environments: accuracy where the cue points to another class"
    introduction = (
        "Mean per-class accuracy on the test environment, and its mean over the studies, in percent: mean ± standard "
        "error over the {samples}. Laid out like Tables 3 to 5 of Lynch et al. (2023).",
    )

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        return [
            *MEASURES,
            *(f"{ID}_accuracy_{name}" for name in known_studies.tested_in(study, ID)),
        ]

    def of_run(self, results: Results) -> pd.DataFrame:
        cells = results.cells
        tested = cells[cells["group"] == OOD]
        misled = tested[tested["misled"].notna()].astype({"misled": float})
        sums = misled.groupby(RUN_KEYS)[["misled", "n"]].sum()
        metrics = {
            "worst_cell": worst_cell(tested, RUN_KEYS),
            "confusion": sums["misled"] / sums["n"],
        }
        id_cells = cells[(cells["group"] == ID) & (cells["environment"] != "")]
        for name, environment_cells in id_cells.groupby("environment"):
            metrics[f"{ID}_accuracy_{name}"] = class_mean(environment_cells, RUN_KEYS)
        runs = results.runs.reindex(columns=[*RUN_KEYS, f"{OOD}_accuracy", f"{ID}_accuracy"])
        runs = runs.rename(columns={f"{OOD}_accuracy": "accuracy"})
        return runs.join(pd.DataFrame(metrics), on=RUN_KEYS)

    def metrics(self, results: Results) -> pd.DataFrame:
        rows = super().metrics(results)
        means = mean_over_studies(self.of_run(results), MEASURES, results.baselines)
        return concatenated([rows, means], list(rows))

    def paper_number(self, row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
        return published.paper_number(row, known_studies, settings)

    def paper_numbers(
        self, rows: Sequence[Mapping], known_studies: KnownStudies, baselines: Mapping[str, dict]
    ) -> list[dict]:
        numbers = super().paper_numbers(rows, known_studies, baselines)
        published.add_means(rows, numbers)
        return numbers

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        """One table: a column per study, then their mean."""
        rows = of_all_bindings(metric_rows[metric_rows["metric"] == "accuracy"])
        ordered = sorted(rows["study"].unique(), key=lambda study: study == "")
        titles = {study: known_studies.title(study) if study else "mean" for study in ordered}
        notes = [
            f"paper, {row.method}, {titles[row.study]}: {row.note.removeprefix(row.warning + '; ')}"
            for row in rows.itertuples()
            if row.note != row.warning
        ]
        yield Table(
            "All studies",
            *pivot(rows, "study", titles, self.text),
            list(dict.fromkeys(notes)),
            self.title,
            self.introduction,
        )

    def findings(self, tables: Frames, known_studies: KnownStudies) -> Iterator[Finding]:
        """The first baseline on the first study with environments, beside the best of the others."""
        for study, target, cue, rows in first_bindings(metrics_of(tables, "average")):
            by_metric = {
                name: metric_rows.set_index("baseline")
                for name, metric_rows in rows.groupby("metric")
            }
            tested = by_metric["accuracy"]["mean"].dropna()
            if tested.empty:
                continue
            inside = by_metric["id_accuracy"]["mean"]
            first_baseline, other_baselines = tested.index[0], tested.iloc[1:]
            run = {"study": study, "binding": rows["binding"].iloc[0], "group": "ood"}
            loss = effect_of(
                tables,
                known_studies,
                {**run, "baseline": first_baseline},
                {**run, "baseline": first_baseline, "group": "id"},
            )
            text = (
                f"{first_baseline} recognises {target} in {whole_percent(inside[first_baseline])} of the "
                f"images of its training environments ({known_studies.title(study)}), and "
                f"in {whole_percent(tested[first_baseline])} of those of the test "
                f"environment, where {cue} points to other classes"
            )
            text += f" ({loss.reach})." if loss.is_shown else f": {unseen(loss)}."
            bars = {
                f"{first_baseline}, training environments": inside[first_baseline],
                f"{first_baseline}, test environment": tested[first_baseline],
            }
            sources = [("id_accuracy", first_baseline), ("accuracy", first_baseline)]
            if len(other_baselines):
                best = other_baselines.idxmax()
                rank = (
                    f"highest of {len(other_baselines)} other baselines"
                    if len(other_baselines) > 1
                    else "other baseline"
                )
                pair = ({**run, "baseline": name} for name in (best, first_baseline))
                gain = effect_of(tables, known_studies, *pair)
                sure = gain.reach if gain.is_shown else f"no difference is seen, {gain.reach}"
                text += (
                    f" The {rank} is {best}, with {whole_percent(other_baselines[best])} ({sure})."
                )
                bars[f"{best}, test environment"] = other_baselines[best]
                sources.append(("accuracy", best))
            intervals = {
                label: ends_of(by_metric[metric].loc[baseline])
                for label, (metric, baseline) in zip(bars, sources, strict=True)
            }
            text += cautions(tables, *{name: 0 for _, name in sources}, studies=[study])
            yield Finding(self.title, text, known_studies.chance(study), bars, intervals)
            return


METRIC_SET = Average()


def guessed_confusion(study: Study) -> float:
    """The confusion expected from guessing: the share of the target's classes that a misleading cue
    points to."""
    # `added` is one class, whichever it is.
    cells, labels = study.cells("test", (1, 2, 0)), cue_label(study, study.cues[0], (1, 2, 0))
    cells = cells[cells["group"] == OOD]
    confusable = [
        len(labels[cue] - {target})
        for target, cue in zip(cells["target_class"], cells[f"{study.cues[0]}_class"], strict=True)
    ]
    weight = cells["weight"].where([count > 0 for count in confusable], 0)
    return (
        float((weight * confusable).sum() / weight.sum() / study.roles["target"])
        if weight.sum()
        else 0.0
    )
