"""The set of metrics `gaps`: known answers, ERM as the reference, the paper's numbers for UrbanCars
alone."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from diagvib.foundation.files import read_json
from diagvib.papers.all_tables import shown_tables
from diagvib.papers.whac_a_mole.against_erm import judge_gap, reference_of
from diagvib.papers.whac_a_mole.gaps import MEASURES, METRIC_SET
from diagvib.papers.whac_a_mole.published import read_urbancars_tables
from diagvib.results.metric_sets.metric_set import over_samples
from diagvib.results.published import beside_papers, is_comparable
from diagvib.results.tidy_tables import write_scores
from diagvib.studies.known_studies import SHIPPED
from synthetic_runs import configured, expected_runs, run_of, settings, tabulated, write_cells
from synthetic_studies import changed_study, definition_of

BINDING, LATER = "shape-hue-texture", "position-hue-scale"


def expected(baselines, study="whac-95", bindings=(BINDING,), samples=3) -> list[dict]:
    return expected_runs(baselines, [study], bindings, samples)


def write(runs, run: dict, accuracy) -> None:
    """A run in which accuracy(target, cue 1, cue 2) of the test images of each cell are right."""

    def predict(cell, position):
        target, *cues = (cell[f"{role}_class"] for role in ("target", "cue-1", "cue-2"))
        return target if position < round(20 * accuracy(target, *cues)) else (target + 1) % 3

    write_cells(runs, run, predict)


def follows_first(target, left, right) -> float:
    return float(left == target)


def losing(left: float, right: float):
    """A predictor that is right less often by this much where cue 1, or cue 2, misleads."""
    return lambda target, single, two: 1 - left * (single != target) - right * (two != target)


def tables_of(folder, runs: dict, expected: list[dict]) -> dict[str, pd.DataFrame]:
    """runs: baseline -> settings and accuracy, a function of the sample that gives one for a cell;
    None: no runs."""
    for run in expected:
        if runs[run["baseline"]] is not None:
            write(folder / "runs", run, runs[run["baseline"]][1](run["sample"]))
    baselines = {name: output[0] for name, output in runs.items() if output}
    return tabulated(folder, expected, configured(baselines), "gaps")


def means(
    gaps: pd.DataFrame, baseline: str, binding: str = BINDING, study: str = "whac-95"
) -> list[float]:
    subject = gaps[
        (gaps["baseline"] == baseline) & (gaps["binding"] == binding) & (gaps["study"] == study)
    ]
    return subject.set_index("metric")["mean"][[*MEASURES]].to_list()


def test_who_follows_cue_1_has_the_gaps_that_the_weights_imply(tmp_path):
    """By hand: where cue 1 is followed, a(+,+) = a(+,-) = 1 and a(-,+) = a(-,-) = 0, so I.D. Acc is
    the share in which cue 1 agrees, here a third, the gap of cue 1 and the joint gap are minus that
    share, and the gap of cue 2 is what is left to 1."""
    runs, study = {"cue": (settings("mixup"), lambda s: follows_first)}, "cue-2-95"
    gaps = tables_of(tmp_path, runs, expected(runs, study, samples=2))["gaps"]
    assert means(gaps, "cue", study=study) == pytest.approx(
        [1 / 3, -1 / 3, 2 / 3, -1 / 3, 0], abs=1e-9
    )


def test_gaps_of_a_case_worked_by_hand(tmp_path):
    # a(+,+) = 1, a(-,+) = 0.7, a(+,-) = 0.9, a(-,-) = 0.6; 0.1 less in sample 1, and 0.1 in the
    # second binding.
    provenance = expected(["net"], bindings=(BINDING, LATER), samples=2)
    for run in provenance:
        less = 0.1 * run["sample"] + 0.1 * (run["binding"] == LATER)
        write(tmp_path / "runs", run, lambda *cell, less=less: losing(0.3, 0.1)(*cell) - less)
    gaps = tabulated(tmp_path, provenance, configured({"net": settings()}), "gaps")["gaps"]
    inside = 0.9025 + 0.0475 * 0.7 + 0.0475 * 0.9 + 0.0025 * 0.6
    assert means(gaps, "net") == pytest.approx(
        [inside - 0.05, 0.7 - inside, 0.9 - inside, 0.6 - inside, 0.55]
    )
    assert means(gaps, "net", "") == pytest.approx(
        [inside - 0.1, 0.7 - inside, 0.9 - inside, 0.6 - inside, 0.5]
    )
    row = gaps[(gaps["binding"] == "") & (gaps["metric"] == "id_accuracy")].iloc[0]
    # Two samples, 0.1 apart: the spread of the samples' means, not of the four runs.
    assert (row["stderr"], row["n"], row["expected"]) == (pytest.approx(0.05), 2, 2)
    write_scores(gaps, SHIPPED, tmp_path / "scores")
    assert read_json(tmp_path / "scores/net/whac-95.json")["cue_1_gap"] == round(0.7 - inside, 4)


def some(left: float, right: float):
    """Samples that differ from each other, and a difference from ERM (0.2) that varies a little."""

    def of(sample: int):
        additions = 0.05 * (sample == 2 and left != 0.2)
        return losing(
            left + 0.05 * (sample % 2) + additions, right + 0.05 * (sample // 2 % 2) + additions
        )

    return of


JUDGEMENTS = {
    "plain": (settings(), some(0.2, 0.2)),
    "moved": (settings("cutmix"), some(0.5, 0.05)),
    "same": (settings("mixup"), lambda s: losing(0.2 + 0.05 * (s == 2), 0.2 + 0.05 * (s == 1))),
    "mended": (settings("group_dro", "cues"), some(0.05, 0.05)),
    "own": (settings("vae", model=None), some(0.3, 0.3)),
    "absent": None,
}


def test_who_follows_a_cue_more_than_erm_is_flagged_and_erm_is_not(tmp_path):
    tables = tables_of(tmp_path, JUDGEMENTS, expected(JUDGEMENTS, samples=4))
    whac = tables["whac_a_mole"].set_index(["baseline", "cue"])
    assert "plain" not in whac.index.get_level_values("baseline")
    assert whac["verdict"].to_dict() == {
        ("moved", 1): "worse",
        ("moved", 2): "better",
        ("same", 1): "cannot tell",
        ("same", 2): "cannot tell",
        ("mended", 1): "better",
        ("mended", 2): "better",
        ("own", 1): "no verdict",
        ("own", 2): "no verdict",
        ("absent", 1): "no verdict",
        ("absent", 2): "no verdict",
    }
    numbers = tables["gaps"].set_index(["baseline", "metric"])[["n", "expected"]]
    assert numbers.loc[("absent", "joint_gap")].to_list() == [0, 4]
    moved = whac.loc["moved", 1]
    gaps = {name: means(tables["gaps"], name)[1] for name in ("plain", "moved")}
    assert moved["reference"] == "plain" and moved["n"] == 4 and moved["reason"] == ""
    assert moved["gap"] == pytest.approx(gaps["moved"]) and moved["reference_gap"] == pytest.approx(
        gaps["plain"]
    )
    assert moved["difference"] == pytest.approx(gaps["moved"] - gaps["plain"])
    assert moved["low"] <= moved["difference"] <= moved["high"] < 0
    assert whac.loc["own", 1]["reason"] == "no baseline with method erm and the same model"


def test_methods_are_judged_by_the_erm_most_like_them():
    baselines = {
        "big": settings(batch_size=64),
        "erm": settings(),
        "worst": settings(selection="val_worst_group"),
        "resnet": settings(model={"name": "resnet18"}),
        "mixup": settings("mixup"),
        "dfr": settings("dfr", "cues", selection="val_worst_group"),
        "large": settings("sd", batch_size=128, optimiser={"name": "sgd", "lr": 0.1}),
        "alexnet": settings("mixup", model={"name": "alexnet"}),
    }
    baselines["lle"] = settings("lle", model={**baselines["erm"]["model"], "views": ["cue.1"]})
    names = list(baselines)
    assert reference_of("lle", names, baselines) == ("erm", ""), "the same network"
    assert reference_of("mixup", names, baselines) == ("erm", "")
    assert reference_of("dfr", names, baselines) == ("worst", "")
    assert reference_of("large", ["big", "mixup"], baselines) == (
        "big",
        "big differs in batch size and optimiser",
    )
    assert reference_of("alexnet", names, baselines) == (
        "",
        "no baseline with method erm and model alexnet",
    )
    for key, value in {
        "batch_size": 64,
        "drop_last": False,
        "optimiser": {"name": "sgd", "lr": 0.1},
        "normalise": "imagenet",
        "augment": ["flip"],
        "max_epochs": 7,
        "selection": "last",
        "schedule": "cosine",
    }.items():
        pair = {"erm": settings(), "mixup": settings("mixup", **{key: value})}
        assert "erm differs in " in reference_of("mixup", ["erm"], pair)[1], key
    message = baselines | {"mixup": settings("mixup", selection="val_loss")}
    assert reference_of("mixup", ["erm", "mixup"], message) == ("erm", ""), (
        "the default, written out"
    )


@pytest.mark.parametrize(
    ("gap", "erm", "verdict"),
    [
        ([0.001, 0.0, 0.002], [0.120, 0.121, 0.119], "cannot tell"),  # no accuracy is lost
        ([-0.30, -0.31, -0.29], [0.0, 0.01, -0.01], "worse"),
        # All of the difference's interval lies below zero, but the gap itself may be none.
        ([-0.5, 0.1, -0.2], [-0.451, 0.150, -0.149], "cannot tell"),
    ],
)
def test_a_gap_that_may_be_none_is_not_worse(gap, erm, verdict):
    inside = np.full(3, 0.7)
    judgement = judge_gap(np.array([gap + inside, inside, erm + inside, inside]))
    assert judgement["high"] < 0 and judgement["verdict"] == verdict


def test_tables_are_in_the_papers_form(tmp_path):
    runs = JUDGEMENTS | {"one": (settings("di", "cue-1"), some(0.01, 0.4))}
    tables = tables_of(tmp_path, runs, expected(runs, bindings=(BINDING, LATER), samples=3))
    third, fifth, _ = shown_tables(tables, SHIPPED)
    assert [row[0] for row in third.rows] == ["plain", "moved", "same", "own", "absent"]
    assert [row[0] for row in fifth.rows] == ["plain", "mended", "one"]
    assert [row[3] for row in fifth.rows] == ["none", "cues", "cue-1"]
    markdown = (tmp_path / "tables/tables.md").read_text()
    assert "binding | I.D. Acc | cue-1 gap |" in markdown
    # The digits are not the paper's cars.
    assert tables["gaps"]["paper"].isna().all() and "*paper*" not in markdown


def test_one_run_on_other_sources_makes_a_baseline_incomparable():
    runs = pd.DataFrame({"status": ["ok", "ok", "missing"], "comparable": [True, True, False]})
    assert is_comparable(runs) and not is_comparable(runs.assign(comparable=[True, False, False]))
    assert not is_comparable(runs.iloc[2:])


RESNET = {"model": {"name": "resnet50", "weights": "IMAGENET1K_V1"}, "selection": "val_worst_group"}
PAPERS = {
    "erm": settings(**RESNET),
    "jtt": settings("jtt", options={"identify_epochs": 2}, **RESNET),
    "lle": settings("lle", "cue_types", **RESNET),
    "dro": settings("group_dro", "cues", **RESNET),
    "one": settings("group_dro", "cue-1", **RESNET | {"selection": "val_worst_group_cue_1"}),
    "last": settings("erm", **RESNET | {"selection": "last"}),
    "small": settings(selection="val_worst_group"),
}
FRAME = [
    run_of(baseline, "mine", "car-background-object", sample) | {"status": "ok", "comparable": True}
    for baseline, sample in product(PAPERS, range(3))
]


def beside_the_paper(frame=FRAME, **changed) -> dict[str, list[float]]:
    """The paper's numbers, in percent, for each baseline, beside UrbanCars' study under another
    name. changed: in the study."""
    names = SimpleNamespace(studies={"mine": changed_study("urbancars", **changed)})
    values = pd.DataFrame(frame).assign(**dict.fromkeys(MEASURES, 0.5))
    metrics = over_samples(values, MEASURES, PAPERS, METRIC_SET.differences)
    metrics = metrics.assign(metric_set="gaps", note="")
    comparison = beside_papers(metrics, pd.DataFrame(frame), names, PAPERS)
    comparison = comparison[comparison["paper"].notna()]
    return {
        str(name): part["paper"].mul(100).round(6).to_list()
        for name, part in comparison.groupby("baseline", sort=False)
    }


def test_the_papers_numbers_stand_beside_its_methods_on_its_scene_alone():
    assert beside_the_paper() == {
        "erm": [97.6, -15.3, -11.2, -69.2],
        "jtt": [94.6, -23.3, -5.3, -52.1],
        "lle": [96.7, -2.1, -2.7, -5.9],
        "dro": [91.6, -10.9, -3.6, -16.4],
        "one": pytest.approx(
            read_urbancars_tables()
            .query("method == 'group_dro' and supervision == 'cue-1'")["value"]
            .mul(100)
            .to_list()
        ),
    }
    rows = definition_of("urbancars")["rows"]
    rows[0]["weight"] *= 2
    assert beside_the_paper(rows=rows) == {}, "other shares of the training images"
    assert beside_the_paper(scene="digits") == {}
    assert beside_the_paper([{**run, "comparable": False} for run in FRAME]) == {}
    assert beside_the_paper([{**run, "binding": "car-object-background"} for run in FRAME]) == {}


def test_the_papers_numbers_are_not_beside_another_experiment(monkeypatch):
    """Other weights, a part of the network alone, or another value of any option."""

    def shown(name: str, supervision: str = "none", model: dict | None = None, **options) -> bool:
        changed = RESNET | {"model": RESNET["model"] | (model or {})}
        monkeypatch.setitem(PAPERS, "one", settings(name, supervision, options, **changed))
        return bool(beside_the_paper([run for run in FRAME if run["baseline"] == "one"]))

    assert shown("erm", model={"weights_file": "mine.pth", "weights_sha256": "0676ba61"})
    for model in ({"frozen": True}, {"weights_file": "mine.pth", "weights_sha256": "12345678"}):
        assert not shown("erm", model=model), model
    assert shown("sd", penalised="true_class") and not shown("sd")
    # Which of the two the numbers are of is not known.
    assert shown("lle", "cue_types") and shown("lle", "cue_types", detach=False)


def test_a_bracket_says_over_how_many_bindings_it_is(tmp_path):
    """Where ERM is restricted to fewer bindings than the method, or the method to fewer than ERM."""
    third = "scale-shape-hue"
    runs = {"plain": (settings(), some(0.2, 0.2)), "moved": (settings("cutmix"), some(0.5, 0.05))}
    for restricted, bindings in (
        ("plain", (BINDING, LATER)),
        ("plain", (BINDING,)),
        ("moved", (BINDING,)),
    ):
        provenance = [
            run
            for run in expected(runs, bindings=(BINDING, LATER, third))
            if run["baseline"] != restricted or run["binding"] in bindings
        ]
        folder = tmp_path / f"{restricted}-{len(bindings)}"
        tables = tables_of(folder, runs, provenance)
        whac = tables["whac_a_mole"].query("baseline == 'moved'").set_index(["binding", "cue"])
        single = restricted == "moved"
        row = whac.loc[(BINDING if single else "", 1)]
        assert row["bindings"] == len(bindings)
        (method,) = (line for line in shown_tables(tables, SHIPPED)[0].rows if line[0] == "moved")
        message = f"; {len(bindings)} of 3 bindings)"
        assert [message in cell for cell in method[6:10]] == [False, *[not single] * 2, False]
        assert ("to" in method[7]) and method[7].endswith(")")
        (sentences,) = METRIC_SET.sentences(tables, SHIPPED).values()
        compared = [text for text in sentences if "compared on the bindings that ERM has" in text]
        assert len(compared) == (not single)
        assert all(text.endswith(f"too, {len(bindings)} of 3.") for text in compared)
