"""Studies with two environments, and the set of metrics `average`: counts and known answers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from conftest import refused
from diagvib.foundation.files import definition_path, read_json, read_table
from diagvib.papers.all_tables import shown_tables
from diagvib.papers.spawrious.average import MEASURES, guessed_confusion
from diagvib.papers.spawrious.published import read_spawrious_tables
from diagvib.report.confusion import confusion_bars, confusion_matrices, confusion_shares
from diagvib.results.metric_sets.metric_set import Results, describe
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.published import beside_papers
from diagvib.results.read_runs import run_folder
from diagvib.results.tidy_tables import with_seeds, write_scores
from diagvib.scenes import load_scene
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import SHIPPED
from diagvib.studies.preference import cue_label
from diagvib.studies.study import (
    load_studies,
    load_study,
)
from reports import make_report
from synthetic_runs import configured, expected_runs, settings, tabulated, write_cells
from synthetic_studies import changed_study, definition_of

DIGITS = load_scene("digits")
DOGS = ("bulldog", "corgi", "dachshund", "labrador")


# Aliases: Table 2 lists the M2M studies of the code under different headings.
ALIASES = {
    "paper_table2_m2m_easy": "m2m-hard",
    "paper_table2_m2m_medium": "m2m-easy",
    "paper_table2_m2m_hard": "m2m-medium",
    "paper_table2_dogs_m2m_easy": "dogs-m2m-hard",
    "paper_table2_dogs_m2m_medium": "dogs-m2m-easy",
    "paper_table2_dogs_m2m_hard": "dogs-m2m-medium",
}


def test_the_headings_of_table_2_are_aliases(tmp_path, monkeypatch):
    for alias, study in ALIASES.items():
        assert load_study(alias) is load_study(study)
    inputs = [
        "studies=[paper_table2_m2m_easy, o2o-easy]",
        "bindings=[shape-hue]",
        "tuning.study=zso",
    ]
    entry = "baselines=[{name: small_cnn, studies: [paper_table2_m2m_easy]}]"
    config = load_config(None, [*inputs, entry])
    assert config.study("paper_table2_m2m_easy").name == "m2m-hard", "as folders are named"
    assert config.studies == ["m2m-hard", "o2o-easy"] and config.baselines[0].studies == [
        "m2m-hard"
    ]
    twice = (
        "studies: paper_table2_m2m_easy is another name for m2m-hard, so this study is listed twice"
    )
    with refused(twice):
        load_config(None, ["studies=[m2m-hard, paper_table2_m2m_easy]", *inputs[1:]])


BINDING, LATER = "shape-hue", "hue-position"
SETTINGS = settings()
METRICS = [*MEASURES, "id_accuracy_env-1", "id_accuracy_env-2"]


def expected(baselines, studies=("o2o-easy",), bindings=(BINDING,), samples=2) -> list[dict]:
    return expected_runs(baselines, studies, bindings, samples)


def tables_of(folder, predictors: dict, expected: list[dict]) -> dict[str, pd.DataFrame]:
    """predictors: baseline -> function of a run that gives a predictor for one of its images; None:
    no runs."""
    for run in expected:
        if predictors[run["baseline"]]:
            write_cells(folder / "runs", run, predictors[run["baseline"]](run))
    baselines = dict.fromkeys(predictors, SETTINGS)
    return tabulated(folder, expected, configured(baselines), "average")


def means(
    average: pd.DataFrame, baseline: str, study: str, binding: str = BINDING, metrics=METRICS
) -> list[float]:
    subject = average[
        (average["baseline"] == baseline)
        & (average["study"] == study)
        & (average["binding"] == binding)
    ]
    return subject.set_index("metric")["mean"][list(metrics)].to_list()


def perfect(run):
    return lambda cell, position: cell["target_class"]


def following(run):
    """Predicts a class that the cue points to, each of two equally often; if it points to none, the
    next class."""
    all_items = [sorted(values) for values in cue_label(load_study(run["study"]), "cue")]

    def predict(cell, position):
        among = all_items[cell["cue_class"]]
        return among[position % len(among)] if among else (cell["target_class"] + 1) % 4

    return predict


# By hand, in distribution: each class of O2O has a cell in which the cue points to it, and one in
# which it points to none, here with equally many images; in M2M it points to two classes, one of
# which is right. In the test environment it is always wrong; in O2O-Medium one cue of four never
# occurred in training, and is left out.
@pytest.mark.parametrize("study", ["o2o-medium", "m2m-hard"])
def test_who_follows_the_cue_is_all_confusion_and_who_is_perfect_none(tmp_path, study):
    average = tables_of(
        tmp_path, {"cue": following, "right": perfect}, expected(["cue", "right"], [study])
    )["average"]
    assert means(average, "right", study) == [1, 1, 1, 0, 1, 1]
    assert means(average, "cue", study) == pytest.approx([0, 0, 0.5, 1, 0.5, 0.5])


def by_hand(run):
    """Right except for the corgis of the test (17 of 20) and one bulldog in 20, predicted as
    labrador, to which its cue points; in the second environment half of the dachshunds are wrong.
    One sample and binding more: two more bulldogs wrong."""
    additions = 2 * run["sample"] + 2 * (run["binding"] == LATER)

    def predict(cell, position):
        target = cell["target_class"]
        if cell["environment"] == "test":
            return {1: 0 if position < 17 else 1, 0: 3 if position < 1 + additions else 0}.get(
                target, target
            )
        return 3 if cell["environment"] == "env-2" and target == 2 and position % 2 else target

    return predict


def test_averages_of_a_case_worked_by_hand(tmp_path):
    provenance = expected(["net"], bindings=(BINDING, LATER))
    tables = tables_of(tmp_path, {"net": by_hand}, provenance)
    # Test: bulldogs 19 of 20 (17 in sample 1), corgis 3 of 20, the others all. A wrong corgi is
    # predicted as a bulldog, but its cue, jungle, points to dachshund: the confusion is that of the
    # bulldogs alone, of 80 images.
    accuracy, confusion = (19 + 3 + 40) / 80 - 1 / 80, (1 + 3) / 2 / 80
    inside = (3 + 0.75) / 4
    assert means(tables["average"], "net", "o2o-easy") == pytest.approx(
        [accuracy, 0.15, inside, confusion, 1, (3 + 0.5) / 4]
    )
    assert means(tables["average"], "net", "o2o-easy", "") == pytest.approx(
        [accuracy - 1 / 80, 0.15, inside, confusion + 1 / 80, 1, (3 + 0.5) / 4]
    )
    row = tables["average"].query("binding == '' and metric == 'accuracy'").iloc[0]
    # Two samples, two images of 80 apart: the spread of the samples' means, not of the four runs.
    assert (row["stderr"], row["n"], row["expected"]) == (pytest.approx(1 / 80), 2, 2)
    row = tables["average"].query("binding == @BINDING and metric == 'accuracy'").iloc[0]
    assert row["images"] == 80
    cells = with_seeds(read_table(tmp_path / "tables/cells.parquet").to_pandas())
    cells = cells.query("binding == @BINDING and sample == 0")
    missing = cells["misled"].isna()
    assert cells.loc[cells["group"] == "ood", "misled"].to_list() == [1, 0, 0, 0]
    assert missing.sum() == 16 and (cells.loc[missing, "group"] == "id").all()
    write_scores(tables["metrics"], SHIPPED, tmp_path / "scores")
    scores = read_json(tmp_path / "scores/net/o2o-easy.json")
    assert scores["confusion"] == round(confusion + 1 / 80, 4)
    # The accuracy by environment is that of the group id, wherever the other groups' images are from.
    moved = cells.assign(environment=cells["environment"].replace("test", "env-2"))
    output = METRIC_SETS["average"].of_run(Results(tables["runs"], moved, SHIPPED, {}))
    rows = output.query("binding == @BINDING and sample == 0")
    assert rows["id_accuracy_env-2"].item() == pytest.approx((3 + 0.5) / 4)


@pytest.mark.parametrize(("study", "share"), [("o2o-medium", 1 / 4), ("m2m-hard", 2 / 4)])
def test_guessing_names_a_class_of_the_cue_as_often_as_there_are(study, share):
    assert guessed_confusion(load_study(study)) == pytest.approx(share)


def test_the_mean_over_studies_is_of_those_who_have_all(tmp_path):
    studies = ["o2o-easy", "m2m-hard"]
    provenance = [
        run
        for run in expected(["half", "cue", "part"], studies, (BINDING, LATER))
        if (run["baseline"], run["study"]) != ("part", "m2m-hard")
    ]
    tables = tables_of(
        tmp_path,
        {
            "cue": following,
            "part": perfect,
            "half": lambda run: (perfect if run["study"] == "o2o-easy" else following)(run),
        },
        provenance,
    )
    average = tables["average"]
    for binding in ("", BINDING, LATER):
        assert means(average, "half", "", binding, MEASURES) == pytest.approx([0.5, 0.5, 0.75, 0.5])
        assert means(average, "cue", "", binding, MEASURES) == pytest.approx([0, 0, 0.5, 1])
    assert "part" not in set(average.loc[average["study"] == "", "baseline"])
    display = shown_tables(tables, SHIPPED)[0]
    assert display.heads[-3:] == ["O2O-Easy", "M2M-Hard", "mean"] and display.notes == []
    assert [(row[0], *row[5:]) for row in display.rows] == [
        ("half", "mean of all", "100.0 (n = 2)", "0.0 (n = 2)", "50.0 (n = 2)"),
        ("cue", "mean of all", *["0.0 (n = 2)"] * 3),
        ("part", "mean of all", "100.0 (n = 2)", "", ""),
    ]
    assert "paper |" not in (tmp_path / "tables/tables.md").read_text()


def dogs(study: str, scene: str = "dogs", **changed):
    """One of the paper's studies with photographs, under another name."""
    return changed_study(study, f"{study}-photos", scene=scene, **changed)


SIX = [f"{kind}-{level}" for kind in ("o2o", "m2m") for level in ("easy", "medium", "hard")]
RESNET = {
    "model": {
        "name": "resnet50",
        "weights": "IMAGENET1K_V1",
        "frozen_statistics": True,
        "dropout": 0.1,
    },
    "selection": "val_environment_accuracy",
}
CAUSIRL = {"method": {"name": "causirl_coral", "supervision": "environments"}}
JTT = {"name": "jtt", "supervision": "none", "restart": False}
PAPERS = {
    "erm": SETTINGS | RESNET,
    "irl": SETTINGS | RESNET | CAUSIRL,
    "scratch": SETTINGS | RESNET | {"model": {"name": "resnet50", "weights": None, "dropout": 0.1}},
    "last": SETTINGS | RESNET | {"selection": "last"},
    "without dropout": SETTINGS | RESNET | {"model": RESNET["model"] | {"dropout": None}},
    "thawed": SETTINGS | RESNET | {"model": RESNET["model"] | {"frozen_statistics": False}},
    "jtt": SETTINGS | RESNET | {"method": JTT | {"copies": 20}},
    "restarted": SETTINGS | RESNET | {"method": JTT | {"restart": True}},
}


def accuracies_of(studies, baselines: dict, binding="breed-background") -> pd.DataFrame:
    """An accuracy of 50 % for every study and baseline, as rows of `metrics`."""
    rows = [
        {"study": study, **describe(name, baselines), "mean": 0.5}
        for study in studies
        for name in baselines
    ]
    equal = {"metric": "accuracy", "metric_set": "average", "note": ""}
    return pd.DataFrame(rows).assign(binding=binding, **equal)


def beside_the_paper(
    studies=SIX, comparable=True, binding="breed-background", **changed
) -> pd.DataFrame:
    """Rows of `metrics` with a number of the paper's, for all of PAPERS."""
    names = {f"{study}-photos": dogs(study, **changed) for study in studies}
    runs = pd.DataFrame(
        [
            {"baseline": baseline, "study": study, "status": "ok", "comparable": comparable}
            for baseline in PAPERS
            for study in names
        ]
    )
    average = accuracies_of([*names, ""], PAPERS, binding)
    comparison = beside_papers(
        average, runs, SimpleNamespace(studies=load_studies() | names), PAPERS
    )
    return comparison[comparison["paper"].notna()].set_index(["baseline", "study"])


def test_the_papers_numbers_stand_beside_its_methods_on_its_scene_alone():
    comparison = beside_the_paper()
    percents = comparison["paper"].mul(100).round(2)
    assert percents["erm"].to_dict() == {
        "o2o-easy-photos": 77.49,
        "o2o-medium-photos": 76.6,
        "o2o-hard-photos": 71.32,
        "m2m-easy-photos": 83.8,
        "m2m-medium-photos": 53.05,
        "m2m-hard-photos": 58.7,
        "": 70.16,
    }
    assert set(percents.index.get_level_values("baseline")) == {"erm", "irl", "scratch", "jtt"}
    # The printed mean is over six, of which one follows from it.
    assert percents["scratch"].size == 7 and percents["scratch", ""] == 42.04
    assert "implied by the mean" in comparison.loc[("scratch", "o2o-easy-photos"), "note"]
    assert percents["irl", ""] == 77.7 and "prints 77.20" in comparison.loc[("irl", ""), "note"]
    assert ("erm", "") not in beside_the_paper(SIX[:5]).index, (
        "a mean over five of six is not the paper's"
    )
    assert not len(beside_the_paper(comparable=False)) and not len(
        beside_the_paper(binding="background-breed")
    )
    rows = definition_of("o2o-easy")["rows"]
    rows[0]["weight"] = 3000.0
    assert not len(beside_the_paper(["o2o-easy"], rows=rows)), (
        "a different share of images is a different study"
    )


def test_the_papers_numbers_are_those_of_its_tables(mirror):
    theirs, all_items = pd.read_csv(mirror / "paper/spawrious_tables.csv"), read_spawrious_tables()
    ours = all_items[~all_items["note"].str.startswith("implied")].reset_index(drop=True)
    assert ours[["table", "study"]].equals(theirs[["table", "study"]])
    for part, printed in (("paper", "accuracy"), ("paper_spread", "spread")):
        assert ours[part].mul(100).to_list() == pytest.approx(theirs[printed].to_list())


def test_the_page_of_environments_alone(tmp_path):
    provenance = expected(["net", "cue"], ["o2o-easy", "m2m-easy"], (BINDING, LATER))
    tables_of(tmp_path, {"net": by_hand, "cue": following}, provenance)
    page = make_report(tmp_path, {"sources": "embedded"})
    draws = sorted((tmp_path / "figures").glob("confusion/*.svg"))
    assert {path.stem.partition("_")[0] for path in draws} == {"m2m-easy", "o2o-easy"}
    run = {"baseline": "cue", "study": "o2o-easy", "binding": BINDING, "sample": 0, "seed": 0}
    factors = BINDING.split("-")
    shares = confusion_shares(run_folder(tmp_path / "runs", run), *factors)
    labels_of_cue = SHIPPED.misleading_label("o2o-easy", factors, 0, {})
    for (_, cue), row in shares.iterrows():
        assert row[list(labels_of_cue[cue])].sum() == 1, (
            "who follows the cue predicts what it points to"
        )
    assert 'id="average"' in page and 'id="verdict"' not in page and 'id="gaps"' not in page


def test_the_configuration_on_digits_has_all_six_with_exact_shares():
    config = load_config(definition_path("environments.yaml"))
    assert set(config.studies) == set(SIX) and config.counts["train"] % 6336 == 0
    plain = [binding for baseline, _, binding in config.train_jobs if baseline == "erm_env"]
    assert set(plain) == {"shape-hue", "shape-position"} and len(plain) * config.samples == 36


def test_a_matrix_of_predictions_has_the_shares_of_each_row_and_frames_what_cues_say(tmp_path):
    predictors = {"cue": following, "hand": by_hand}
    for run in expected(predictors, samples=1):
        write_cells(tmp_path, run, predictors[run["baseline"]](run))
    folders = {
        run["baseline"]: run_folder(tmp_path, run) for run in expected(predictors, samples=1)
    }
    shares = confusion_shares(folders["hand"], *BINDING.split("-"))
    assert shares.sum(axis=1).to_list() == [1] * 4 and shares.to_numpy().min(initial=1) == 0
    axes = confusion_matrices(folders, "o2o-easy", BINDING, SHIPPED).axes[0]
    shown = {text.get_position() for text in axes.texts if text.get_text() != "0"}
    framed = {(round(row.get_x() + 0.48), round(row.get_y() + 0.46)) for row in axes.patches}
    assert shown == framed and len(framed) == 4, "one class of each of four cues"


def test_bars_of_confusion_are_the_means_over_bindings_in_the_order_of_the_configuration():
    means = {"b": (0.2, 0.4, 0.3), "a": (0.6, 0.8, 0.7), "none": (np.nan,) * 3}
    rows = [
        {"baseline": name, "binding": binding, "mean": mean, "low": mean - 0.1, "high": mean + 0.1}
        for name, part in means.items()
        for binding, mean in zip(("shape-hue", "hue-shape", ""), part, strict=True)
    ]
    subject = pd.DataFrame(rows).assign(study="o2o-easy", metric="confusion", n=3)
    subject.loc[subject["baseline"] == "none", "n"] = 0
    (axes,) = confusion_bars(subject, "o2o-easy", SHIPPED).axes
    names = [label.get_text() for label in axes.get_yticklabels()][::-1]
    widths = [bar.get_width() for bar in axes.patches][::-1]
    assert names == [*means] and widths == pytest.approx([0.3, 0.7, 0])
    assert [text.get_text() for text in axes.texts][::-1] == ["0.30", "0.70", "missing"]
