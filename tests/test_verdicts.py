"""The verdict on a reproduction: known answers for the paper's own numbers, shifted ones, and few
samples."""

import re
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from diagvib.papers.all_tables import write_tables
from diagvib.papers.diagvib6.comparability import judge_runs, protocol_differences
from diagvib.papers.diagvib6.published import read_paper_tables
from diagvib.papers.diagvib6.verdicts import COMPARED, MARGIN, comparison_table, verdict_sentence
from diagvib.results import TABLE_FILES
from diagvib.results.cells import CELL_COLUMNS
from diagvib.results.metric_sets.metric_set import Results
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import Collected
from diagvib.scenes.digits.factors import FACTORS
from diagvib.settings.baselines import load_settings
from diagvib.studies.known_studies import SHIPPED
from synthetic_runs import expected_runs

BASELINES = ["resnet18", "alexnet", "asr", "factor_vae"]  # four of nine
STUDIES = ("zso", "zgo", "cgo-1", "cgo-2", "cgo-3", "chgo", "fgo-5", "fgo-10", "fgo-20")
BINDINGS = [f"{target}-{cue}" for target, cue in permutations(FACTORS, 2)]
EXPECTED = expected_runs(BASELINES, STUDIES, BINDINGS, samples=5)
CELLS = 4 * 96


def frame_of_the_paper(samples: int = 5) -> pd.DataFrame:
    """Runs whose FAAvg and FAMin are the paper's: one cue has the minimum, the other four give the
    mean."""
    frame = pd.DataFrame([run for run in EXPECTED if run["sample"] < samples]).fillna({"cue": ""})
    paper = read_paper_tables().set_index(["metric", "study", "baseline", "target"])

    def printed(column: str, metric: str, study: pd.Series) -> np.ndarray:
        keys = frame.assign(study=study)[["study", "baseline", "target"]]
        return paper[column][metric].reindex(pd.MultiIndex.from_frame(keys)).to_numpy()

    subject, improvement = frame["study"], "improvement_over_zgo"
    mean, minimum = (
        printed("paper_mean", metric, subject.replace("chgo", "zgo"))
        for metric in ("faavg", "famin")
    )
    values = np.where(frame["cue"] == "", mean, (5 * mean - minimum) / 4)
    lowest = frame["cue"] == frame.groupby("target")["cue"].transform("max")
    values = np.where(lowest, minimum, values)
    values += np.nan_to_num(printed("paper_mean", improvement, subject))
    if samples == 5:  # the paper's spread is a standard error of FAAvg, but a deviation of changes
        spread = 5**0.5 * np.nan_to_num(printed("paper_spread", "faavg", subject))
        spread += np.nan_to_num(printed("paper_spread", improvement, subject))
        values += np.array([-1, 1, 0, -1, 1])[frame["sample"]] * spread
    return frame.assign(
        status="ok",
        reason="",
        id_accuracy=values,
        ood_accuracy=values,
        id_n=1.0,
        ood_n=1.0,
        sources="official",
        comparable=True,
    )


_aggregated: dict[int, tuple] = {}


def compare(
    frame: pd.DataFrame, settings: dict | None = None, judgement: dict | None = None
) -> pd.DataFrame:
    if id(frame) not in _aggregated:  # frames of 11,070 runs, which take seconds
        metrics = METRIC_SETS["shortcut"].metrics(Results(frame, frame[:0], SHIPPED, {}))
        _aggregated[id(frame)] = frame, metrics
    judgement = judgement or judge_runs(frame, [None] * len(frame), settings or {})
    paper = read_paper_tables().query("baseline in @BASELINES")
    return comparison_table(_aggregated[id(frame)][1], frame, judgement, paper)


@pytest.fixture(scope="module")
def papers_own():
    return frame_of_the_paper()


def test_the_papers_own_numbers_agree_or_their_spread_lets_no_one_tell(papers_own):
    comparison = compare(papers_own)
    assert len(comparison) == CELLS and set(comparison["verdict"]) == {"agrees", "cannot tell"}
    assert comparison["difference"].abs().max() < 1e-9
    agrees = comparison["verdict"] == "agrees"
    assert (agrees == (comparison["uncertainty"] <= MARGIN)).all() and 0.3 < agrees.mean() < 0.7
    assert verdict_sentence(comparison) == (
        f"Of {CELLS} compared cells, {agrees.sum()} agree with the paper within 5 points, 0 differ, and "
        f"{CELLS - agrees.sum()} are undecided."
    )


def test_fewer_than_three_samples_decide_nothing_however_close():
    comparison = compare(frame_of_the_paper(2))
    assert set(comparison["verdict"]) == {"cannot tell"} and set(comparison["n"]) == {2}
    assert comparison["reason"].str.endswith("n = 2, at least 3 needed").all()


def test_numbers_shifted_by_ten_points_differ_wherever_the_spread_lets_one_tell(papers_own):
    moved = {name: papers_own[name] + 0.1 for name in ("ood_accuracy", "id_accuracy")}
    comparison = compare(papers_own.assign(**moved))
    cells = comparison[comparison["metric"] != "improvement_over_zgo"]  # there the shift cancels
    assert cells["difference"].to_numpy() == pytest.approx(0.1)
    should = cells["uncertainty"] < 0.1
    assert should.mean() > 0.5
    assert ((cells["verdict"] == "differs") == should).all() and not (
        cells["verdict"] == "agrees"
    ).any()


def test_the_uncertainty_is_welchs_with_the_papers_rounding(papers_own):
    cells = compare(papers_own).query(
        "study == 'zgo' and baseline == 'resnet18' and metric == 'faavg'"
    )
    row = cells[cells["target"] == "hue"]
    ours, theirs = row["stderr"].item() ** 2, row["paper_stderr"].item() ** 2 + 0.01**2 / 12
    freedom = (ours + theirs) ** 2 / (ours**2 / 4 + theirs**2 / 4)
    assert row["uncertainty"].item() == pytest.approx(
        t.ppf(0.975, freedom) * np.sqrt(ours + theirs) + 0.005
    )


def test_what_did_not_run_and_what_cannot_be_compared_say_why(papers_own):
    missing = (papers_own["baseline"] == "asr") & (papers_own["study"] == "zgo")
    frame = papers_own.copy()
    frame.loc[missing, ["id_accuracy", "ood_accuracy"]] = np.nan
    frame.loc[missing, "status"] = "missing"
    frame = frame[frame["baseline"] != "factor_vae"]
    frame.loc[frame["baseline"] == "alexnet", "comparable"] = False
    comparison = compare(frame)
    by = comparison.groupby("baseline")
    vae = by.get_group("factor_vae")
    assert set(vae["verdict"]) == {"not run"}
    assert vae["reason"].str.startswith("not configured: factor_vae").all()
    assert set(by.get_group("alexnet")["reason"]) == {"embedded sources"}
    asr = by.get_group("asr")
    assert set(asr[asr["study"].isin(["zgo", "chgo"])]["verdict"]) == {"not run"}
    assert comparison.loc[~comparison["verdict"].isin(COMPARED), "difference"].isna().all()


def test_fewer_test_images_or_samples_are_comparable_and_said(papers_own):
    settings = {"counts": {"train": 43740, "ood": 900}, "samples": 2}
    assert set(compare(papers_own, settings)["verdict"]) <= set(COMPARED)
    assert protocol_differences(settings) == [
        "900 test images per group (paper: 10,000)",
        "2 dataset samples (paper: 5)",
    ]
    assert protocol_differences({"training": {"patience": 30}}) == [], "it cannot run out"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"counts": {"train": 4374}}, "4,374 training images (paper: 43,740)"),
        ({"image_size": 64}, "64 pixels per side (paper: 128)"),
        ({"training": {"max_epochs": 10}}, "10 epochs at most (paper: 30)"),
        ({"training": {"patience": 3}}, "stops after 3 epochs without improvement (paper: never)"),
    ],
)
def test_less_or_more_training_than_the_papers_is_not_comparable(papers_own, settings, reason):
    comparison = compare(papers_own, settings)
    assert set(comparison["verdict"]) == {"not comparable"}
    assert set(comparison["reason"]) == {f"another protocol: {reason}"}
    assert protocol_differences(settings) == [reason]


PUBLISHED = {
    "model": {"name": "resnet18"},
    "method": {"name": "erm"},
    "batch_size": 64,
    "optimiser": {"name": "adam", "lr": 2e-4, "betas": [0.9, 0.999]},
}


def judged(name: str, *settings: dict) -> tuple[list[str], list[str]]:
    """What differs from the paper, and what is mentioned, of a baseline with these settings."""
    frame = pd.DataFrame([{"baseline": name, "study": "zgo", "target": "hue"}])
    baselines = [{"name": name, "settings": item} for item in settings]
    return judge_runs(frame, [None], {"baselines": baselines})[name, "zgo", "hue"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"optimiser": {"name": "adamw", "lr": 2e-4, "betas": [0.9, 0.999]}},
            "optimiser adamw (paper: adam)",
        ),
        (
            {"model": {"name": "resnet18", "options": {"groups": 2}}},
            "model options {'groups': 2} (paper: none)",
        ),
        ({"max_epochs": 1}, "1 epochs at most (paper: 30)"),
        ({"schedule": "cosine"}, "schedule cosine (paper: none)"),
        ({"model": {"name": "resnet18", "dropout": 0.5}}, "dropout 0.5 (paper: none)"),
    ],
)
def test_published_settings_are_compared_with_the_configured_ones(change, reason):
    for settings, reasons in ((PUBLISHED | change, [reason]), (PUBLISHED, [])):
        assert judged("resnet18", settings) == (reasons, [])


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        *(
            (name, {"optimiser": {"name": "sgd", "lr": 1e-4}}, "optimiser sgd (paper: adam)")
            for name in ("asr", "resnet50_in")
        ),
        (
            "asr",
            {"method": {"name": "asr", "reconstruction_weight": 0.1}},
            "reconstruction weight 0.1 (paper: 1.0)",
        ),
        ("resnet18", {"drop_last": False}, "drop_last False (paper: True)"),
        (
            "resnet50_in",
            {
                "model": {
                    "name": "resnet50",
                    "weights": "IMAGENET1K_V1",
                    "frozen": True,
                    "weights_file": "mine.pth",
                    "weights_sha256": "ab" * 32,
                }
            },
            "weights of another file",
        ),
    ],
)
def test_what_the_paper_says_of_a_baseline_is_compared(name, change, reason):
    settings = load_settings(name) | change
    assert judged(name, settings)[0] == [reason]


def test_every_shipped_baseline_of_the_paper_has_its_protocol():
    for name in read_paper_tables()["baseline"].unique():
        assert judged(name)[0] == []


def test_precision_seed_and_untuned_settings_are_mentioned_and_compared(papers_own):
    outputs = [
        {"precision": "bf16" if name == "alexnet" else "fp32"} for name in papers_own["baseline"]
    ]
    judgement = judge_runs(papers_own, outputs, {"training": {"seed": 7}})
    comparison = compare(papers_own, judgement=judgement)
    mentions = {name: set(rows["mentions"]) for name, rows in comparison.groupby("baseline")}
    seed = "seed 7 (paper: 1332)"
    assert mentions["resnet18"] == {seed}
    assert mentions["alexnet"] == {f"not tuned; bf16 (paper: fp32); {seed}"}
    assert set(comparison["verdict"]) <= set(COMPARED)


def test_fewer_cues_are_another_number(papers_own):
    comparison = compare(papers_own[papers_own["cue"] != "texture"])
    zgo = comparison[comparison["study"] == "zgo"]
    assert set(zgo[zgo["target"] == "shape"]["reason"]) == {"4 of 5 cues"}
    assert set(zgo[zgo["target"] == "texture"]["verdict"]) <= set(COMPARED)


def test_every_form_of_the_tables_is_written_and_tells_the_same(papers_own, tmp_path):
    history = papers_own[:0].assign(epoch=0, selectable=True)
    cells = pd.DataFrame(columns=CELL_COLUMNS)
    collected = Collected(papers_own, [None] * len(papers_own), history, cells)
    write_tables(collected, tmp_path, {}, SHIPPED)
    assert {path.name for path in tmp_path.iterdir()} == set(TABLE_FILES)
    markdown, latex = (tmp_path / "tables.md").read_text(), (tmp_path / "tables.tex").read_text()
    assert f"Of {CELLS} compared cells" in markdown and f"Of {CELLS} compared cells" in latex
    assert re.search(r"together: p = 0\.[1-9].*; no evidence against the paper's num", markdown)
    assert "| alexnet † |" in markdown and re.search(r"\| \*paper\* \| \d+ ± \d+ \|", markdown)
    assert not re.search(r"(?<!\\)[%_#]|±", re.sub("^%.*", "", latex, flags=re.M)), "unescaped"
    tables = re.findall(r"\\begin\{tabular\}\{(l+r+)\}(.*?)\\end\{tab", latex, re.S)
    # The last: how many counter-examples make up for half of what a cue costs, and factors ranked.
    assert len(tables) == 9 + 8 + 8 + 1 + 4 + 1 + 2
    for columns, rows in tables:
        assert {row.count("&") + 1 for row in rows.split(r"\\")[:-1]} == {len(columns)}
