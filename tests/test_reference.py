"""A model next to the paper's nine: ranges of known numbers, and said to be a reference."""

import pandas as pd
import pytest

from diagvib.reproduction.comparability import judge_runs
from diagvib.reproduction.reference import reference_note, reference_table
from diagvib.reproduction.verdicts import comparison_table
from diagvib.scenes.digits.factors import FACTORS

OURS = dict(zip(FACTORS, (1.0, 0.78, 0.48, 0.24, 0.35, 0.05), strict=True))
SETTINGS = {"counts": {"train": 4374}, "samples": 1}


def metrics(baseline: str = "small_cnn", cues: int = 5) -> pd.DataFrame:
    row = {"baseline": baseline, "metric": "faavg", "stderr": float("nan"), "n": 1, "expected": 1}
    return pd.DataFrame(
        [
            {
                **row,
                "study": study,
                "target": factor,
                "mean": value,
                "cues": cues if study == "zgo" else 0,
            }
            for study in ("zso", "zgo")
            for factor, value in OURS.items()
        ]
    )


def referred(table: pd.DataFrame, sources: str = "official") -> pd.DataFrame:
    frame = table[["study", "baseline", "target"]].assign(
        cue="x", status="ok", comparable=sources == "official"
    )
    judged = judge_runs(frame, [None] * len(frame), SETTINGS)
    comparison = comparison_table(table, frame, judged)
    return reference_table(table, comparison, judged).assign(sources=sources)


def test_a_model_of_our_own_stands_beside_the_papers_nine():
    reference = referred(metrics())
    row = reference[(reference["study"] == "zgo") & (reference["target"] == "hue")].iloc[0]
    assert row["ours"] == 0.78 and row["paper_resnet18"] == 0.74
    assert row["paper_low"] <= 0.74 <= row["paper_high"]


@pytest.mark.parametrize("baseline", ["small_cnn", "resnet18"])
def test_a_reference_says_that_it_is_one_and_what_was_reduced(baseline):
    note = reference_note(referred(metrics(baseline)))
    assert (
        "not a reproduction" in note
        and "4,374 training images (paper: 43,740)" in note
        and baseline in note
    )
    assert "embedded" not in note
    words = "From embedded sources, so the images are not the paper's"
    assert words in reference_note(referred(metrics(baseline), "embedded"))


def test_averages_over_fewer_cues_are_no_reference():
    assert set(referred(metrics(cues=2))["study"]) == {"zso"}
