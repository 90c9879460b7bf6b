"""Accuracies under each selection rule: known answers, for runs and for random searches."""

import json

import pandas as pd
import pytest

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_text
from diagvib.reproduction.tabulate import shown_tables, tabulate
from diagvib.results.known_studies import SHIPPED
from diagvib.results.selection import read_searches
from diagvib.results.tables import read_tables
from synthetic_runs import configured, note_files, write_cells
from test_average import SETTINGS, expected, perfect
from test_random_search import EPOCHS, RULES, history

BY_RULE = dict(zip(RULES, (0.3, 0.4, 0.5, 0.6, 0.1, 0.7), strict=True))


def shifted(more: float) -> list[dict]:
    return history(*((*own, tested + more) for *own, tested in EPOCHS))


def found_of(folder, wanted: list[dict], epochs) -> pd.DataFrame:
    """The table of runs whose epochs are given by a function of the run; none: not recorded."""
    for run in wanted:
        place = write_cells(folder / "runs", run, perfect(run))
        if rows := epochs(run):
            write_text(place / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
            note_files(place)
    settings = configured({run["baseline"]: SETTINGS for run in wanted})
    tabulate(folder / "runs", folder / "tables", wanted, settings, 1, folder / "tuning")
    return read_tables(folder / "tables")["selection"]


def means(
    found: pd.DataFrame, baseline: str, study: str, over: str = "runs", value: str = "mean"
) -> dict:
    own = found[
        (found["baseline"] == baseline) & (found["study"] == study) & (found["over"] == over)
    ]
    return own.set_index("rule")[value].to_dict()


def test_each_rule_gives_what_it_would_have_got(tmp_path):
    # Epochs of a first phase cannot be kept. `b` recorded nothing.
    studies = ["o2o-easy", "m2m-hard"]
    first = {"phase": "identify", "ood_accuracy": 1.0, "val_accuracy": 1.0, "val_loss": 0.0}

    def epochs(run):
        own = shifted(0.1 * run["sample"])
        both = [{**own[0], **first}, *own] if run["baseline"] == "a" else []
        return [{**row, "epoch": number} for number, row in enumerate(both, 1)]

    found = found_of(tmp_path, expected(["a", "b"], studies), epochs)
    assert set(found["baseline"]) == {"a"}, "a baseline without test accuracies has no rows"
    for study in (*studies, ""):
        assert means(found, "a", study) == pytest.approx(
            {rule: value + 0.05 for rule, value in BY_RULE.items()}
        )
    row = found.query("baseline == 'a' and study == 'o2o-easy' and rule == 'oracle'").iloc[0]
    assert row[["n", "expected", "binding"]].to_list() == [2, 2, "shape-hue"]
    assert row["stderr"] == pytest.approx(0.05) and pd.isna(row["trial"])
    markdown = (tmp_path / "tables/tables.md").read_text()
    assert "| O2O-Easy | a | erm | none | shape-hue | 35.0 ± 5.0 |" in markdown


def search(folder, baseline: str, chosen: dict[str, int], samples: int = 2) -> None:
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
            "chosen": chosen[rule] == trial,
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
    found = found_of(
        tmp_path, expected(["a", "b"]), lambda run: shifted(0) if run["baseline"] == "b" else None
    )
    assert set(found["over"]) == {"runs", "trials"} and "other" not in set(found["baseline"])
    assert means(found, "a", "o2o-easy", "trials") == pytest.approx(dict.fromkeys(RULES, 0.45))
    assert means(found, "b", "o2o-easy", "trials", "trial") == {
        **dict.fromkeys(RULES, 1),
        "val_loss": 2,
        "oracle": 2,
    }
    tables = shown_tables(read_tables(tmp_path / "tables"), SHIPPED)
    (trials,) = (one for one in tables if one.title == "Random searches")
    assert next(row for row in trials.rows if row[1] == "b")[-1] == "45.0 ± 5.0 (trial 2)"


def test_a_search_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"")
    with pytest.raises(
        DiagvibError, match=r"a.csv: not readable .*; delete it and run `snakemake tuned` again"
    ):
        read_searches(tmp_path)
    assert not len(read_searches(None)) and not len(read_searches(tmp_path / "absent"))
