"""Accuracies under each selection rule: known answers, for runs and for random searches."""

import json

import pandas as pd
import pytest

from conftest import refused
from diagvib.foundation.files import write_text
from diagvib.papers.all_tables import shown_tables, tabulate
from diagvib.results.selection import read_searches
from diagvib.results.tidy_tables import read_tables
from diagvib.studies.known_studies import SHIPPED
from synthetic_runs import configured, note_files, write_cells
from test_average import SETTINGS, expected, perfect
from test_random_search import EPOCHS, RULES, history

BY_RULE = dict(zip(RULES, (0.3, 0.4, 0.5, 0.6, 0.1, 0.7), strict=True))


def shifted(additions: float) -> list[dict]:
    return history(*((*part, tested + additions) for *part, tested in EPOCHS))


def found_of(folder, expected: list[dict], epochs) -> pd.DataFrame:
    """The table of runs whose epochs are given by a function of the run; none: not recorded."""
    for run in expected:
        place = write_cells(folder / "runs", run, perfect(run))
        if rows := epochs(run):
            write_text(place / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
            note_files(place)
    settings = configured({run["baseline"]: SETTINGS for run in expected})
    tabulate(folder / "runs", folder / "tables", expected, settings, 1, folder / "tuning")
    return read_tables(folder / "tables")["selection"]


def means(
    result: pd.DataFrame, baseline: str, study: str, over: str = "runs", value: str = "mean"
) -> dict:
    subject = result[
        (result["baseline"] == baseline) & (result["study"] == study) & (result["over"] == over)
    ]
    return subject.set_index("rule")[value].to_dict()


def test_each_rule_gives_what_it_would_have_got(tmp_path):
    # Epochs of a first phase cannot be kept. `b` recorded nothing.
    studies = ["o2o-easy", "m2m-hard"]
    excluded_epoch = {
        "phase": "identify",
        "ood_accuracy": 1.0,
        "val_accuracy": 1.0,
        "val_loss": 0.0,
    }

    def epochs(run):
        subject = shifted(0.1 * run["sample"])
        pair = [{**subject[0], **excluded_epoch}, *subject] if run["baseline"] == "a" else []
        return [{**row, "epoch": number} for number, row in enumerate(pair, 1)]

    result = found_of(tmp_path, expected(["a", "b"], studies), epochs)
    assert set(result["baseline"]) == {"a"}, "a baseline without test accuracies has no rows"
    for study in (*studies, ""):
        assert means(result, "a", study) == pytest.approx(
            {rule: value + 0.05 for rule, value in BY_RULE.items()}
        )
    row = result.query("baseline == 'a' and study == 'o2o-easy' and rule == 'oracle'").iloc[0]
    assert row[["n", "expected", "binding"]].to_list() == [2, 2, "shape-hue"]
    assert row["stderr"] == pytest.approx(0.05) and pd.isna(row["trial"])
    markdown = (tmp_path / "tables/tables.md").read_text()
    assert "| O2O-Easy | a | erm | none | shape-hue | 35.0 ± 5.0 |" in markdown


def search(folder, baseline: str, selection: dict[str, int], samples: int = 2) -> None:
    """A table as `diagvib tune` writes it, of three trials; trial t tests as 0.2 + 0.1 t, and 0.1
    more in sample 1."""
    rows = [
        {
            "baseline": baseline,
            "study": "o2o-easy",
            "binding": "shape-hue",
            "sample": sample,
            "trial": trial,
            "optimiser.lr": 1e-3,
            "status": "ok",
            "rule": rule,
            "score": 0.5,
            "test_accuracy": 0.2 + 0.1 * trial + 0.1 * sample,
            "chosen": selection[rule] == trial,
        }
        for sample in range(samples)
        for trial in range(3)
        for rule in RULES
    ]
    write_text(folder / "tuning" / f"{baseline}.csv", pd.DataFrame(rows).to_csv(index=False))


def test_random_searches_count_with_the_trial_that_each_rule_would_choose(tmp_path):
    search(tmp_path, "a", dict.fromkeys(RULES, 2))
    search(tmp_path, "b", {**dict.fromkeys(RULES, 1), "val_loss": 2, "oracle": 2})
    search(tmp_path, "other", dict.fromkeys(RULES, 2))
    (tmp_path / "tuning/grid.csv").write_text("baseline,batch_size,lr\nc,32,0.001\n")
    result = found_of(
        tmp_path, expected(["a", "b"]), lambda run: shifted(0) if run["baseline"] == "b" else None
    )
    assert set(result["over"]) == {"runs", "trials"} and "other" not in set(result["baseline"])
    assert means(result, "a", "o2o-easy", "trials") == pytest.approx(dict.fromkeys(RULES, 0.45))
    assert means(result, "b", "o2o-easy", "trials", "trial") == {
        **dict.fromkeys(RULES, 1),
        "val_loss": 2,
        "oracle": 2,
    }
    tables = shown_tables(read_tables(tmp_path / "tables"), SHIPPED)
    (trials,) = (item for item in tables if item.title == "Random searches")
    assert next(row for row in trials.rows if row[1] == "b")[-1] == "45.0 ± 5.0 (trial 2)"


def test_names_of_searches_are_texts(tmp_path):
    names = ["007", "1e3", "None", "nan"]
    for name in names:
        search(tmp_path, name, dict.fromkeys(RULES, 1))
    assert read_searches(tmp_path / "tuning")["baseline"].unique().tolist() == names


def test_a_search_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"")
    with refused(r"a.csv: not readable .*; delete it and run `snakemake tuned` again"):
        read_searches(tmp_path)
    assert not len(read_searches(None)) and not len(read_searches(tmp_path / "absent"))
