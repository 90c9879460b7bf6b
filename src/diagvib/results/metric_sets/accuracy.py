"""The set of metrics `accuracy`, for any roles and groups: each test group's mean per-class accuracy
and worst cell; the accuracy of all test images, and of all cells by their shares in training."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from diagvib.results.cells import RUN_KEYS, adjusted, class_mean, per_image, worst_cell
from diagvib.results.combinations import combination_tables, combinations
from diagvib.results.effects import Effect, cautions, unseen
from diagvib.results.metric_sets.metric_set import Finding, MetricSet, Results, of_all_bindings
from diagvib.results.reader_tables import Frames, Table, interval, whole_percent
from diagvib.studies.known_studies import KnownStudies

MEASURES = {"accuracy": class_mean, "worst_cell": worst_cell}
PLAIN, ADJUSTED = "plain_accuracy", "adjusted_accuracy"
# A share of wrong predictions from which on they follow the cue, where there are other classes.
_MOSTLY = 0.5


class Accuracy(MetricSet):
    """`{group}_accuracy` and `{group}_worst_cell`, and `{group}_accuracy_{environment}` in a test
    group with environments; PLAIN and ADJUSTED, of all test images. The worst cell is determined within
    each run."""

    title = "Accuracy by test group"
    summary = PLAIN
    introduction = (
        "The mean of the classes' accuracies, and the accuracy of each sample's worst combination of classes, in "
        "percent: mean ± standard error over the {samples}, with the 95 % interval. With n = 1, the brackets have the "
        "interval over the images of that sample. Image by image: the share of all test images. By training shares: the "
        "mean of all combinations' accuracies, weighted by their shares of the training images.",
    )

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        places = _places(study, known_studies)
        names = [
            _name(group, measure, environment)
            for group, environment in places
            for measure in MEASURES
        ]
        return [*names, PLAIN, ADJUSTED]

    def of_run(self, results: Results) -> pd.DataFrame:
        cells, metrics = results.cells, {}
        for environment in dict.fromkeys(["", *cells["environment"]]):
            tested = cells[cells["environment"] == environment] if environment else cells
            for group, group_cells in tested.groupby("group", sort=False):
                for measure, function in MEASURES.items():
                    metrics[_name(group, measure, environment)] = function(group_cells, RUN_KEYS)
        metrics |= {PLAIN: per_image(cells, RUN_KEYS), ADJUSTED: adjusted(cells, RUN_KEYS)}
        return results.runs[RUN_KEYS].join(pd.DataFrame(metrics), on=RUN_KEYS)

    def tables(self, results: Results) -> Frames:
        return {"combinations": combinations(results)}

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        lines, keys = [], ["study", "baseline", "binding"]
        for names, rows in of_all_bindings(metric_rows).groupby(keys, sort=False):
            texts = {
                row["metric"]: (self.text(row), interval(row["low"], row["high"]))
                for row in rows.to_dict("records")
            }
            over_all = [texts[metric][0] for metric in (PLAIN, ADJUSTED)]
            for group, environment in _places(names[0], known_studies):
                accuracy, worst = (
                    texts[_name(group, measure, environment)] for measure in MEASURES
                )
                title = known_studies.title(names[0])
                lines.append(
                    [title, *names[1:], group, environment or "all", *accuracy, *worst, *over_all]
                )
                over_all = ["", ""]  # of all groups together
        heads = [*keys, "group", "environment", "accuracy", "95 % interval"]
        heads += ["worst combination", "95 % interval", "image by image", "by training shares"]
        yield Table("All groups", heads, lines, section=self.title, introduction=self.introduction)
        for table in combination_tables(tables, known_studies):
            yield replace(table, section=self.title, introduction=self.introduction)

    def findings(self, tables: Frames, known_studies: KnownStudies) -> Iterator[Finding]:
        """The first baseline on the study with the combination of classes that loses most to its cue;
        without cues, or where no cue points to a class, on the study with the worst combination."""
        table = tables["combinations"]
        tested = table[table["mean"].notna()]
        firsts = {
            study: rows["baseline"].iloc[0] for study, rows in tested.groupby("study", sort=False)
        }
        tested = tested[tested["baseline"] == tested["study"].map(firsts)]
        misled = tested[tested["change"].notna()]
        if tested.empty:
            return
        significant = misled[misled["change_high"] < 0]
        rows = significant if len(significant) else misled if len(misled) else tested
        row = rows.loc[rows["change" if len(misled) else "mean"].idxmin()]
        binding_rows = tested[
            (tested["study"] == row["study"]) & (tested["binding"] == row["binding"])
        ]
        bars, intervals = {}, {}
        for combination in binding_rows.to_dict("records"):
            label = " on ".join(
                filter(None, (combination["target_class"], combination["cue_class"]))
            )
            bars[label] = combination["mean"]
            intervals[label] = combination["low"], combination["high"]
        text = _combination_text(row) if len(misled) else _worst_text(row, known_studies)
        if (pool := len(misled) or len(tested)) > 1:
            measure = "largest loss" if row["change"] < 0 else "smallest gain"
            measure = measure + " that is seen" * bool(len(significant))
            measure = measure if len(misled) else "lowest accuracy"
            text += f" Among {pool} combinations, this is the {measure}, without a correction for choosing it."
        text += cautions(tables, row["baseline"], studies=[row["study"]])
        yield Finding(self.title, text, known_studies.chance(row["study"]), bars, intervals)


def _places(study: str, known_studies: KnownStudies) -> list[tuple[str, str]]:
    """Each test group, all environments together ('') and each of those that it names."""
    groups = known_studies.studies[study].groups
    return [
        (group, environment)
        for group in groups
        for environment in ("", *known_studies.tested_in(study, group))
    ]


def _name(group: str, measure: str, environment: str) -> str:
    return f"{group}_{measure}" + (f"_{environment}" if environment else "")


def _combination_text(row: pd.Series) -> str:
    """`On forest, erm calls 99 % of bird mammal: it follows background.`"""
    effect = Effect(*row[["change", "change_low", "change_high"]])
    follows_cue = row["followed"] >= _MOSTLY * (1 - row["mean"])
    place, target, cue = row["cue_class"], row["target_class"], row["cue"].partition("-")[0]
    if effect.high < 0 and follows_cue:
        return (
            f"On {place}, {row['baseline']} calls {whole_percent(row['followed'])} of {target} "
            f"{row['cue_label']}: it follows {cue}. It recognises {target} in "
            f"{whole_percent(row['mean'])} there, and in "
            f"{whole_percent(row['mean'] - row['change'])} where {cue} points to it "
            f"({effect.reach})."
        )
    text = (
        f"On {place}, {row['baseline']} recognises {target} in {whole_percent(row['mean'])} of the "
        f"test images, and in {whole_percent(row['mean'] - row['change'])} where {cue} points to it"
    )
    return text + (f" ({effect.reach})." if effect.is_shown else f": {unseen(effect)}.")


def _worst_text(row: pd.Series, known_studies: KnownStudies) -> str:
    name = " on ".join(filter(None, (row["target_class"], row["cue_class"])))
    return (
        f"{row['baseline']} recognises {row['target']} in {whole_percent(row['mean'])} of the test "
        f"images of its worst combination of classes, {name} ({known_studies.title(row['study'])})."
    )


METRIC_SET = Accuracy()
