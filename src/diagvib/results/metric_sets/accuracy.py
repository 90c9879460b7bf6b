"""The set of metrics `accuracy`, for any roles and groups: each test group's mean per-class accuracy
and worst cell; the accuracy of all test images, and of all cells by their shares in training."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pandas as pd

from diagvib.results.cells import RUN_KEYS, adjusted, mean_per_class, per_image, worst_cell
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets.metric_set import MetricSet, Results, of_all_bindings
from diagvib.results.table import Table
from diagvib.results.texts import interval

MEASURES = {"accuracy": mean_per_class, "worst_cell": worst_cell}
PLAIN, ADJUSTED = "plain_accuracy", "adjusted_accuracy"


class Accuracy(MetricSet):
    """`{group}_accuracy` and `{group}_worst_cell`, and `{group}_accuracy_{environment}` in a test
    group with environments; PLAIN and ADJUSTED, of all test images. The worst cell is determined within
    each run."""

    title = "Accuracy by test group"
    about: ClassVar[list[str]] = [
        "The mean of the classes' accuracies, and the accuracy of each sample's worst cell, in percent: mean "
        "± standard error over the dataset samples, with the 95 % interval. With n = 1, the brackets have the interval "
        "over the images of that sample. Image by image: the share of all test images. By training shares: the mean of "
        "all cells' accuracies, weighted by their shares of the training images."
    ]

    def names(self, study: str, known: KnownStudies) -> Sequence[str]:
        places = _places(study, known)
        named = [_name(group, measure, where) for group, where in places for measure in MEASURES]
        return [*named, PLAIN, ADJUSTED]

    def of_run(self, results: Results) -> pd.DataFrame:
        parts = []
        for measure, function in MEASURES.items():
            together = function(results.cells, [*RUN_KEYS, "group"]).assign(environment="")
            apart = function(results.cells, [*RUN_KEYS, "group", "environment"])
            both = pd.concat([together, apart[apart["environment"] != ""]])
            parts.append(both.assign(measure=measure))
        found = pd.concat(parts)
        named = [
            _name(*keys)
            for keys in zip(found["group"], found["measure"], found["environment"], strict=True)
        ]
        wide = found.assign(name=named).pivot(index=RUN_KEYS, columns="name", values="accuracy")
        found = results.runs[RUN_KEYS].merge(wide.reset_index(), how="left", on=RUN_KEYS)
        for name, function in ((PLAIN, per_image), (ADJUSTED, adjusted)):
            own = function(results.cells, RUN_KEYS).rename(columns={"accuracy": name})
            found = found.merge(own, how="left", on=RUN_KEYS)
        return found

    def shown(
        self, own: pd.DataFrame, tables: Mapping[str, pd.DataFrame], known: KnownStudies
    ) -> Iterator[Table]:
        lines = []
        for (study, baseline, binding), part in of_all_bindings(own).groupby(
            ["study", "baseline", "binding"], sort=False
        ):
            there = {row["metric"]: row for row in part.to_dict("records")}
            shown = [
                (group, where or "all", [_name(group, measure, where) for measure in MEASURES])
                for group, where in _places(study, known)
            ]
            shown += [
                ("all, image by image", "all", [PLAIN]),
                ("all, by training shares", "all", [ADJUSTED]),
            ]
            for group, where, metrics in shown:
                rows = [there[metric] for metric in metrics]
                texts = [
                    text
                    for row in rows
                    for text in (self.text(row), interval(row["low"], row["high"]))
                ]
                names = [known.title(study), baseline, binding, group, where]
                lines.append([*names, *texts, *[""] * (4 - len(texts))])
        heads = ["study", "baseline", "binding", "group", "environment"]
        heads += ["accuracy", "95 % interval", "worst cell", "95 % interval"]
        yield Table("accuracy", "All groups", heads, lines, section=self.title, about=self.about)


def _places(study: str, known: KnownStudies) -> list[tuple[str, str]]:
    """Each test group, all environments together ('') and each of those that it names."""
    groups = known.studies[study].groups
    return [(group, where) for group in groups for where in ("", *known.tested_in(study, group))]


def _name(group: str, measure: str, environment: str) -> str:
    return f"{group}_{measure}" + (f"_{environment}" if environment else "")


METRIC_SET = Accuracy()
