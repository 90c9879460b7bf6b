"""Other selection rules: known answers, and no answer if nothing was recorded."""

import json

import numpy as np
import pandas as pd
import pytest

from diagvib.results.cells import RUN_KEYS
from diagvib.results.read_runs import EPOCH_COLUMNS, Collected, history_columns, read_history
from diagvib.results.selection import (
    AS_RUN,
    PLAIN,
    read_searches,
    selection_sentence,
    selection_table,
    selection_tables,
)
from diagvib.studies.known_studies import SHIPPED

# After each epoch: validation accuracy, accuracy on id, on ood. Neither the last epoch nor the best
# by validation is best on ood. The validation loss is the same in all, so the validation accuracy
# decides.
EPOCHS = [(0.5, 0.6, 0.7), (0.9, 0.8, 0.4), (0.9, 0.9, 0.5), (0.8, 0.7, 0.3)]


def history(rows=EPOCHS, additions=0.0):
    val, id_, ood = np.transpose(rows)
    epochs = pd.DataFrame(0.0, range(len(rows)), EPOCH_COLUMNS).assign(selectable=True)
    return epochs.assign(
        val_accuracy=val, id_accuracy=id_ + additions, ood_accuracy=ood + additions
    )


def runs(study="zgo", cues=("hue", "scale"), samples=2, as_run=0.45):
    return pd.DataFrame(
        [
            {
                "baseline": "m",
                "study": study,
                "binding": f"shape-{cue}".strip("-"),
                "target": "shape",
                "cue": cue,
                "sample": sample,
                "seed": 0,
                "id_accuracy": as_run,
                "ood_accuracy": as_run if cue else np.nan,
            }
            for cue in cues
            for sample in range(samples)
        ]
    )


def table_of(frame, epochs, baselines=()) -> pd.DataFrame:
    rows = pd.concat(dict(zip(frame.index, epochs, strict=True))).droplevel(1)
    collected = Collected(frame, [], frame[RUN_KEYS].join(rows, how="inner"), frame[:0])
    return selection_table(collected, read_searches(None), SHIPPED, dict(baselines))


def means(table, metric):
    return table[table["metric"] == metric].set_index("rule")["mean"].to_dict()


def test_only_epochs_of_the_last_phase_can_be_chosen(tmp_path):
    record = [
        {**dict.fromkeys(EPOCH_COLUMNS, 0.5), "phase": name} for name in ("first", "last", "last")
    ]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in record))
    assert read_history(path, EPOCH_COLUMNS)[:, -1].tolist() == [False, True, True]
    best_of_all = history([(1.0, 1.0, 1.0)]).assign(selectable=False)
    epochs = [pd.concat([best_of_all, history()], ignore_index=True)] * 4
    rows = means(table_of(runs(), epochs), "faavg")
    assert rows == means(table_of(runs(), [history()] * 4), "faavg")


def test_epochs_have_the_columns_of_their_studies():
    columns = {study: history_columns(SHIPPED, [study]) for study in ("zso", "zgo", "whac-95")}
    zso, cue = (
        [*EPOCH_COLUMNS, "id_accuracy", "ood_accuracy", "val_worst_class"],
        "val_follows_cue_1",
    )
    assert columns["zso"] == zso
    assert columns["zgo"] == [*zso, cue, "val_worst_group"]
    assert columns["whac-95"][-3:] == [
        "val_worst_group",
        "val_worst_group_cue_1",
        "val_worst_group_cue_2",
    ]
    assert history_columns(SHIPPED, ["o2o-easy"])[-1] == "val_environment_accuracy"


def test_each_rule_chooses_its_epoch():
    table = table_of(runs(), [history()] * 4)
    assert means(table, "faavg") == pytest.approx(
        {AS_RUN: 0.45, "val_loss": 0.4, "val_accuracy": 0.4, "last": 0.3, "oracle": 0.7}
    )
    assert list(table["rule"].unique()) == [AS_RUN, *PLAIN]
    assert table["change"].tolist() == pytest.approx((table["mean"] - 0.45).tolist())
    assert (table["n"] == 2).all() and (table["expected"] == 2).all()
    sentence = selection_sentence(table, SHIPPED)
    assert "would cost m at most 15.0 points: last epoch, ZGO, target" in sentence


def test_the_worst_cue_is_sought_rule_by_rule():
    table = table_of(runs(samples=1), [history(), history([(0.5, 0, 0.2), (0.4, 0, 0.6)])], {})
    assert means(table, "famin") == pytest.approx(
        {AS_RUN: 0.45, "val_loss": 0.2, "val_accuracy": 0.2, "last": 0.3, "oracle": 0.6}
    )
    assert table["stderr"].isna().all()


def test_only_epochs_that_were_noted_can_be_chosen():
    """An autoencoder's own epochs classify nothing; the last of them is not the classifier's last
    epoch."""
    epochs = history()
    epochs.loc[[0, 3], "ood_accuracy"] = np.nan
    rows = means(table_of(runs(cues=["hue"], samples=1), [epochs]), "faavg")
    assert rows == pytest.approx(
        {AS_RUN: 0.45, "val_loss": 0.4, "val_accuracy": 0.4, "last": 0.5, "oracle": 0.5}
    )


def test_all_rules_are_over_the_runs_that_noted():
    untracked = history().assign(ood_accuracy=np.nan)
    table = table_of(runs(cues=["hue"], samples=3), [history(), untracked, None])
    assert (table["n"] == 1).all() and (table["expected"] == 3).all()
    assert not len(table_of(runs(cues=["hue"], samples=3), [untracked, untracked, None]))


def test_a_change_is_that_of_the_samples_that_the_rule_has():
    """Of a training that diverged, no epoch has the lowest loss."""
    frame, diverged = runs(cues=["hue"]), history().assign(val_loss=np.nan)
    frame.loc[1, "ood_accuracy"] = 0.05
    table = table_of(frame, [history(), diverged]).set_index("rule")
    assert table.loc["val_loss", "change"] == pytest.approx(table.loc["val_loss", "mean"] - 0.45)


def test_a_missing_run_hides_no_other():
    frame = runs(cues=["hue"])
    frame.loc[0, "ood_accuracy"] = np.nan
    table = table_of(frame, [history()] * 2)
    assert table.loc[table["rule"] == AS_RUN, ["mean", "n"]].to_numpy().tolist() == [[0.45, 1]]


def test_what_was_run_is_named_by_the_baselines_own_rule():
    """The epoch of lowest validation loss is found in the history, whatever the baseline selects
    by."""
    epochs, rule = history().assign(val_loss=[0.1, 0.3, 0.2, 0.4]), "val_worst_group_cue_2"
    table = table_of(runs(cues=["hue"], samples=1), [epochs], {"m": {"selection": rule}})
    display = next(selection_tables(table, SHIPPED))
    assert [row[2:4] for row in display.rows][:2] == [
        ["worst group by cue 2, as run", "45.0 (n = 1)"],
        ["validation loss", "70.0 (n = 1) (+25.0)"],
    ]
