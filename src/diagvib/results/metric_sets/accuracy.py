"""The set of metrics `accuracy`, for any roles and groups: each test group's mean per-class accuracy
and worst cell; the accuracy of all test images, and of all cells by their shares in training."""

from collections.abc import Iterator, Sequence

import pandas as pd

from diagvib.results.cells import RUN_KEYS, adjusted, class_mean, per_image, worst_cell
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets.metric_set import MetricSet, Results, of_all_bindings
from diagvib.results.table import Frames, Table, interval

MEASURES = {"accuracy": class_mean, "worst_cell": worst_cell}
PLAIN, ADJUSTED = "plain_accuracy", "adjusted_accuracy"
_OF_ALL = {"all, image by image": PLAIN, "all, by training shares": ADJUSTED}


class Accuracy(MetricSet):
    """`{group}_accuracy` and `{group}_worst_cell`, and `{group}_accuracy_{environment}` in a test
    group with environments; PLAIN and ADJUSTED, of all test images. The worst cell is determined within
    each run."""

    title = "Accuracy by test group"
    about = (
        "The mean of the classes' accuracies, and the accuracy of each sample's worst cell, in percent: mean "
        "± standard error over the dataset samples, with the 95 % interval. With n = 1, the brackets have the interval "
        "over the images of that sample. Image by image: the share of all test images. By training shares: the mean of "
        "all cells' accuracies, weighted by their shares of the training images.",
    )

    def names(self, study: str, known: KnownStudies) -> Sequence[str]:
        places = _places(study, known)
        named = [_name(group, measure, where) for group, where in places for measure in MEASURES]
        return [*named, PLAIN, ADJUSTED]

    def of_run(self, results: Results) -> pd.DataFrame:
        cells, found = results.cells, {}
        for where in dict.fromkeys(["", *cells["environment"]]):
            tested = cells[cells["environment"] == where] if where else cells
            for group, own in tested.groupby("group", sort=False):
                for measure, function in MEASURES.items():
                    found[_name(group, measure, where)] = function(own, RUN_KEYS)
        found |= {PLAIN: per_image(cells, RUN_KEYS), ADJUSTED: adjusted(cells, RUN_KEYS)}
        return results.runs[RUN_KEYS].join(pd.DataFrame(found), on=RUN_KEYS)

    def shown(self, own: pd.DataFrame, tables: Frames, known: KnownStudies) -> Iterator[Table]:
        lines = []
        for (study, baseline, binding), part in of_all_bindings(own).groupby(
            ["study", "baseline", "binding"], sort=False
        ):
            names = [known.title(study), baseline, binding]
            texts = {
                row["metric"]: (self.text(row), interval(row["low"], row["high"]))
                for row in part.to_dict("records")
            }
            for group, where in _places(study, known):
                accuracy, worst = (texts[_name(group, measure, where)] for measure in MEASURES)
                lines.append([*names, group, where or "all", *accuracy, *worst])
            for group, metric in _OF_ALL.items():
                lines.append([*names, group, "all", *texts[metric], "", ""])
        heads = ["study", "baseline", "binding", "group", "environment"]
        heads += ["accuracy", "95 % interval", "worst cell", "95 % interval"]
        yield Table("All groups", heads, lines, section=self.title, about=self.about)


def _places(study: str, known: KnownStudies) -> list[tuple[str, str]]:
    """Each test group, all environments together ('') and each of those that it names."""
    groups = known.studies[study].groups
    return [(group, where) for group in groups for where in ("", *known.tested_in(study, group))]


def _name(group: str, measure: str, environment: str) -> str:
    return f"{group}_{measure}" + (f"_{environment}" if environment else "")


METRIC_SET = Accuracy()
