"""Tables from synthetic runs: aggregates match the closed form; a missing run is named and changes
nothing else."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from conftest import refused
from diagvib import stages
from diagvib.commands.table import Choices, methods_table
from diagvib.foundation.files import read_metadata, read_table, write_table
from diagvib.papers.all_tables import tabulate
from diagvib.papers.diagvib6.shortcut import cue_contrasts
from diagvib.papers.notes import source_note
from diagvib.results import TABLE_FILES
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import Collected, mixed_note, read_runs, run_folder, versions
from diagvib.results.reader_tables import (
    PAPER,
    Table,
    describe_doubtful,
    html,
    latex,
    markdown,
    narrowed,
)
from diagvib.results.tidy_tables import marked, read_history, read_tables, time_table
from diagvib.scenes.digits.factors import FACTORS
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import RUN_FILES, Layout
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import SHIPPED
from synthetic_runs import accuracy, expected_runs, note_files, run_of, write_run

STUDIES = ("zso", "zgo", "chgo")
BINDINGS = [
    f"{target}-{cue}"
    for target in FACTORS
    for cue in FACTORS
    if target in ("shape", "hue") and cue != target
]
EXPECTED = expected_runs(["resnet18", "small_cnn"], STUDIES, BINDINGS, samples=3)
TRACKED = "resnet18"  # its runs recorded the test accuracies of every epoch
MISSING = run_of("resnet18", "zgo", "shape-hue", 1)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    runs = tmp_path_factory.mktemp("complete") / "runs"
    for run in EXPECTED:
        write_run(runs, run, tracked=run["baseline"] == TRACKED)
    return runs


@pytest.fixture(scope="module")
def tables(complete):
    """The tables of the complete runs."""
    return tables_of(complete)


@pytest.fixture
def runs(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "runs")


def tables_of(runs):
    out = runs.parent / "tables"
    tabulate(runs, out, EXPECTED, {"counts": {"train": 4374}})
    return read_tables(out)


def cell(table, **keys):
    for column, value in keys.items():
        table = table[table[column] == value]
    assert len(table) == 1, keys
    return table.iloc[0]


def acc_array(study, target):
    cues = [f for f in FACTORS if f != target]
    runs = [[run_of("m", study, f"{target}-{cue}", s) for cue in cues] for s in range(3)]
    return np.array([[accuracy(run, "ood") for run in row] for row in runs])


def test_aggregates_equal_the_closed_form(tables):
    acc = acc_array("zgo", "shape")
    for metric, reduced in (("faavg", acc.mean(axis=1)), ("famin", acc.min(axis=1))):
        row = cell(
            tables["metrics"], study="zgo", baseline="resnet18", target="shape", metric=metric
        )
        assert row["mean"] == pytest.approx(reduced.mean())
        assert row["stderr"] == pytest.approx(reduced.std(ddof=1) / np.sqrt(3))
        assert (row["n"], row["expected"], row["cues"]) == (3, 3, 5)
    p = cell(
        tables["p_matrix"], study="zgo", baseline="resnet18", target="shape", cue="hue", group="ood"
    )
    j = [f for f in FACTORS if f != "shape"].index("hue")
    assert p["mean"] == pytest.approx(acc[:, j].mean())
    assert p["stderr"] == pytest.approx(acc[:, j].std(ddof=1) / np.sqrt(3))
    zso = cell(tables["metrics"], study="zso", baseline="resnet18", target="hue", metric="faavg")
    assert zso["mean"] == pytest.approx(0.95)
    overall = cell(tables["overall"], study="zgo", baseline="resnet18")
    pair = (acc.mean() + acc_array("zgo", "hue").mean()) / 2
    assert overall["mean"] == pytest.approx(pair) and overall["n"] == 3


def test_chgo_minus_zgo_is_paired_and_spread_is_a_standard_deviation(tables):
    row = cell(tables["metrics"], baseline="small_cnn", target="hue", metric="improvement_over_zgo")
    change = (acc_array("chgo", "hue") - acc_array("zgo", "hue")).mean(axis=1)
    assert row["mean"] == pytest.approx(change.mean())
    assert row["stderr"] == pytest.approx(change.std(ddof=1) / np.sqrt(3))
    runs = tables["runs"].query("baseline == 'small_cnn'")
    fewer = runs[(runs["study"] != "zgo") | (runs["binding"] != "hue-shape")]
    (alternative,) = (
        item["mean"] for item in cue_contrasts(fewer, SHIPPED) if item["target"] == "hue"
    )
    cues = [
        position
        for position, cue in enumerate([f for f in FACTORS if f != "hue"])
        if cue != "shape"
    ]
    assert alternative == pytest.approx(
        (acc_array("chgo", "hue") - acc_array("zgo", "hue"))[:, cues].mean()
    )
    display = {"mean": 0.1, "stderr": 0.02, "n": 4, "expected": 4, "metric": row["metric"]}
    assert METRIC_SETS["shortcut"].text(display) == "10.0 ± 4.0"


def test_a_contrast_is_the_mean_of_its_cues():
    values = [(study, cue) for study in ("zgo", "chgo") for cue in ("hue", "scale")]
    runs = pd.DataFrame(values, columns=["study", "cue"]).assign(
        baseline="m", target="shape", sample=0, seed=0
    )
    runs["binding"], runs["ood_accuracy"] = "shape-" + runs["cue"], [0.1, 0.2, 0.2, 0.7]
    (result,) = cue_contrasts(runs, SHIPPED)
    assert result["mean"] == pytest.approx(0.3)


def test_the_papers_number_stands_beside_ours_where_it_has_one(tables):
    metrics = tables["metrics"]
    row = cell(metrics, study="zgo", baseline="resnet18", target="shape", metric="faavg")
    assert (row["paper"], row["printed"]) == (0.41, "41 ± 2")
    assert row["difference"] == pytest.approx(row["mean"] - 0.41)
    assert metrics[metrics["baseline"] == "small_cnn"]["paper"].isna().all()
    assert metrics[metrics["metric"] == "id_accuracy"]["paper"].isna().all()


def test_the_same_runs_give_the_same_bytes_however_many_processes_read(
    complete, tmp_path, monkeypatch
):
    monkeypatch.setattr("diagvib.results.read_runs.RUNS_A_PROCESS", 2)
    for threads in (1, 2):
        tabulate(complete, tmp_path / str(threads), EXPECTED[::5], {}, threads)
    for name in TABLE_FILES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_other_sources_or_fewer_cues_are_never_set_beside_the_paper(tmp_path):
    expected = expected_runs(["resnet18"], ["zso", "zgo"], ["shape-hue", "shape-scale"], samples=2)
    for name, comparable in (("embedded", False), ("official", True)):
        for run in expected:
            write_run(tmp_path / name / "runs", run, comparable)
        tabulate(tmp_path / name / "runs", tmp_path / name / "tables", expected, {})
    embedded, official = (
        read_tables(tmp_path / name / "tables")["metrics"] for name in ("embedded", "official")
    )
    assert embedded["difference"].isna().all()
    # over two cues of five, FAAvg is a different number from the paper's
    assert set(official[official["difference"].notna()]["study"]) == {"zso"}


SPOILT = {
    "truncated": ("predictions.parquet", "PAR1"),
    "not json": ("run.json", "{"),
    "seconds": ("run.json", '{"seconds": {"train": "x"}}'),
    "doubts": ("metrics.json", '{"doubts": "x"}'),
    "no epoch": ("history.jsonl", '{"epoch": null}'),
}


def harm(folder, damage):
    if damage in ("absent", "moved"):
        shutil.rmtree(folder)
    if damage in SPOILT:
        name, content = SPOILT[damage]
        (folder / name).write_text(content)
    elif damage in RUN_FILES:
        (folder / damage).unlink()
    elif damage == "moved":
        shutil.copytree(folder.parent / "2", folder)
    elif damage in ("prediction", "shape"):
        path = folder / "predictions.parquet"
        table, record = read_table(path), read_metadata(path)
        nothing = pa.array([None] * len(table), pa.string())
        less = table.drop(damage)
        write_table(
            path, less if damage == "prediction" else less.append_column(damage, nothing), record
        )
    if damage in WITH_HASHES:
        note_files(folder)


DAMAGES = ["absent", *RUN_FILES, *SPOILT, "moved"]
# Not noticed by the hashes of the files.
WITH_HASHES = ("doubts", "no epoch", "prediction", "shape")
DAMAGES += WITH_HASHES[2:]


def test_every_damage_is_named(runs):
    expected = [run for run in EXPECTED if run["cue"] and run["sample"] == 1][: len(DAMAGES)]
    for damage, run in zip(DAMAGES, expected, strict=True):
        harm(run_folder(runs, run), damage)
    missing = {"absent": "not run", **{name: f"unfinished: no {name}" for name in RUN_FILES}}
    for damage, row in zip(DAMAGES, read_runs(runs, expected).frame.itertuples(), strict=True):
        assert row.status == ("missing" if damage in missing else "damaged"), damage
        assert row.reason == missing.get(damage, row.reason)
        assert row.reason and str(runs) not in row.reason and "\n" not in row.reason
        assert len(row.reason) < 400 and SPOILT.get(damage, [""])[0] in row.reason


@pytest.mark.parametrize(("by", "name"), [("baseline", TRACKED), ("study", "zso")])
def test_epochs_are_read_of_one_baseline_or_study(tables, complete, by, name):
    rows = read_history(complete.parent / "tables", by, name)
    assert set(rows[by]) == {name}
    names = {run["baseline"] for run in EXPECTED} if by == "study" else {TRACKED}
    assert set(rows["baseline"]) == names


def test_speeds_of_several_devices_are_not_averaged():
    times = pd.DataFrame(
        {
            "baseline": "resnet18",
            "device": ["cpu", None, "NVIDIA H200", "cpu"],
            "images_per_second": [100.0, 7.0, 2000.0, 300.0],
            "seconds_train": [8.0, np.nan, 1.0, 4.0],
        }
    )
    assert time_table(times).rows == [
        ["resnet18", "cpu", "200.0", "6.0", "2"],
        ["resnet18", "-", "7.0", "-", "1"],
        ["resnet18", "NVIDIA H200", "2,000.0", "1.0", "1"],
    ]


def test_a_missing_run_is_named_everywhere_and_changes_nothing_else(tables, runs):
    harm(run_folder(runs, MISSING), "absent")
    after = tables_of(runs)
    row = cell(after["runs"], **{k: MISSING[k] for k in ("baseline", "study", "binding", "sample")})
    p = cell(
        after["p_matrix"], study="zgo", baseline="resnet18", target="shape", cue="hue", group="ood"
    )
    assert (p["n"], p["expected"]) == (2, 3)
    markdown = (runs.parent / "tables" / "tables.md").read_text()
    assert f"resnet18, zgo: shape-hue sample 1: {row['status']} ({row['reason']})" in markdown
    assert "(n = 2 of 3)" in markdown
    run, cells = ["baseline", "study", "binding", "sample"], ["baseline", "target"]
    for name, keys in {
        "runs": run,
        "run_times": run,
        "p_matrix": ["study", "baseline", "target", "cue"],
        "metrics": cells,
        "comparison": cells,
        "overall": ["study", "baseline"],
        "baselines": ["study"],
        "selection": ["study", "baseline", "target"],
    }.items():
        concerned = {key: MISSING[key] for key in keys}
        before, later = (
            table[~(table[keys] == concerned).all(axis=1)].reset_index(drop=True)
            for table in (tables[name], after[name])
        )
        pd.testing.assert_frame_equal(before, later, check_dtype=False)


def test_several_versions_of_a_package_and_several_devices_are_named():
    output = {"device": ["cpu"], "machine": ["a, 2 cores", "b"], "torch": ["2.4", "2.5"]}
    message = "Not all runs were made with the same packages and devices: torch 2.4, 2.5"
    assert mixed_note(output) == f"{message}." and mixed_note(output | {"torch": ["2.4"]}) == ""
    output |= {"device": ["NVIDIA H200", "cpu"], "precision": ["bf16", "fp32"]}
    assert mixed_note(output) == f"{message}; device NVIDIA H200, cpu; precision bf16, fp32."


def test_when_where_and_from_which_commit_runs_were_made_is_told():
    output = {"date": "2026-11-24", "machine": "a, 2 cores", "device": "cpu"}
    git = {"commit": "0123456789abcdef", "changed": True}
    frame = pd.DataFrame({"baseline": ["one", "one", "one"]})
    result = versions(Collected(frame, [{**output, "git": git}, output, None], frame, frame))[
        "versions"
    ]
    item = {key: [value] for key, value in output.items()}
    assert result == item | {"commit": ["0123456789, code changed since"]}


def test_words_that_are_the_same_in_all_rows_stand_below_the_table():
    heads = ["baseline", "model", "selection", "binding", "accuracy"]
    rows = [
        ["one", "cnn", "last", "all", "10.0"],
        [PAPER, "", "", "", "12"],
        ["two", "cnn", "last", "some", "10.0"],
    ]
    result = narrowed(Table("T", heads, rows, ["A note."]))
    assert result.heads == ["baseline", "binding", "accuracy"]
    assert result.rows == [["one", "all", "10.0"], ["paper", "", "12"], ["two", "some", "10.0"]]
    assert result.notes == ["A note.", "The same in all rows: model cnn, selection last."]
    strengths = [["one", "> 50 (20.1 to > 50)", "< 0.5", "no loss"]] * 2
    table = Table("T", ["baseline", "hue", "scale", "texture"], strengths)
    assert narrowed(table) == table, "results, not words"


FEW = ["studies=[zgo]", "bindings=[shape-hue]", "samples=2", "baselines=[small_cnn]"]


def make(stage: str, root: Path, *overrides: str) -> None:
    """Make the tables or the page of a root by hand, in a configuration with FEW runs."""
    config = load_config(overrides=[*FEW, *overrides])
    getattr(stages, stage)(Layout(root), stage_settings(config, stage), 1)


def test_tabulate_and_plot_say_that_runs_are_missing(tmp_path, capsys):
    for stage, name in (("tabulate", "tables/tables.md"), ("plot", "report.html")):
        make(stage, tmp_path)
        page = tmp_path / "results" / name
        message = f"2 of 2 runs are missing or damaged (small_cnn 2); {page} lists them"
        assert message in capsys.readouterr().err
        assert "small_cnn, zgo: all 2 runs: missing" in page.read_text()


def test_tables_of_another_configuration_are_not_drawn(tmp_path):
    make("tabulate", tmp_path)
    with refused(
        "tables: made with other counts, training than the configuration has; make the tab"
    ):
        make("plot", tmp_path, "training.max_epochs=7", "counts.ood=1500")
    assert not (tmp_path / "results/report.html").exists()


@pytest.mark.parametrize("name", ["tables/tables.md", "metrics"])
def test_tables_that_are_not_all_made_are_not_used(tmp_path, name):
    make("tabulate", tmp_path)
    path = tmp_path / "results" / name
    if path.is_file():
        path.unlink()
        path.mkdir()  # so that they cannot be finished
    else:
        shutil.rmtree(path)
        path.touch()
    with pytest.raises(OSError):
        make("tabulate", tmp_path)
    for use in (partial(make, "plot", tmp_path), partial(methods_table, tmp_path, Choices())):
        with refused(
            "versions.json: no such file, so the tables are not complete; run `diagvib tab"
        ):
            use()


@pytest.mark.parametrize(
    ("sources", "comparable", "note"),
    [
        ("official", False, "Made from official sources: not comparable to the paper."),
        (
            "official (6 of 90 files left out)",
            True,
            "Made from official (6 of 90 files left out) sources.",
        ),
    ],
)
def test_the_note_names_sources_and_what_was_left_out(sources, comparable, note):
    runs = pd.DataFrame({"status": ["ok"], "sources": [sources], "comparable": [comparable]})
    assert source_note(runs, {}) == note


def test_doubtful_runs_are_counted_and_named(runs, tmp_path):
    expected = EXPECTED[:6]
    path = run_folder(runs, expected[0]) / "metrics.json"
    record = {**json.loads(path.read_text()), "doubts": ["predicts a for every test image"]}
    path.write_text(json.dumps(record))
    note_files(path.parent)
    tabulate(runs, tmp_path, expected, {})
    frame = read_runs(runs, expected).frame
    assert set(frame["status"]) == {"ok"}
    (line,) = describe_doubtful(frame)
    assert line.endswith("doubtful (predicts a for every test image)")
    text = (tmp_path / "tables.md").read_text()
    assert f"## Doubtful runs\n\n- {line}\n" in text


def test_a_table_has_the_sign_of_doubt_of_its_studies_alone():
    """FGO-1 is no part of FGO-10; a difference of two studies is of both."""
    rows = [("a", "fgo-1", "doubt"), ("a", "fgo-10", ""), ("a", "chgo", ""), ("a", "zgo", "doubt")]
    runs = pd.DataFrame(rows, columns=["baseline", "study", "reason"]).assign(status="ok")
    titles = ["FGO-1: FAAvg", "FGO-10: FAAvg", "CHGO: FAAvg", "CHGO: CHGO minus ZGO", "Mean"]
    tables = [Table(title, ["baseline", "shape"], [["a", "41.2"]]) for title in titles]
    signs = [table.rows[0][0] for table in marked(tables, {"runs": runs}, SHIPPED)]
    assert signs == ["a ‡", "a", "a", "a ‡", "a ‡"]
    table = Table("Runs", ["study", "baseline"], [["FGO-1", "a"], ["FGO-10", "a"], ["mean", "a"]])
    (table,) = marked([table], {"runs": runs}, SHIPPED)
    assert [row[1] for row in table.rows] == ["a ‡", "a", "a ‡"], "a mean over studies has them all"


def test_a_class_called_paper_is_no_number_of_the_papers():
    rows = [["paper", "wood", "1.0"], [PAPER, "", "2.0"], ["rock", "sand", "3.0"]]
    table = Table("Hands", ["hand", "ground", "erm"], [*rows, ["scissors", "sand", "4.0"]])
    assert narrowed(table).heads == table.heads, "grounds differ"
    assert [line[:9] for line in markdown(table)[4:6]] == ["| paper |", "| *paper*"]
    lines = latex(table, "")[7:9]
    assert [line.partition(" &")[0] for line in lines] == ["paper", r"\emph{paper}"]
    assert html(table).count("<tr class=paper>") == 1 and html(table).count(">paper<") == 2


def test_marks_that_markdown_and_latex_read_otherwise_are_escaped():
    table = Table("Mine", ["study", "half-way"], [["a|b", "< 1 (0.5 to > 20)"], [r"c\|d", "{1}$"]])
    assert markdown(table)[2:] == [
        "| study | half-way |",
        "|---|---|",
        r"| a\|b | < 1 (0.5 to > 20) |",
        r"| c&#92;\|d | {1}$ |",
    ]
    titled = Table("A\n\n# <b>B</b> [x](y)", ["c"], [["d\n|e~f~"]], ["`f` <g>\n- h"])
    assert markdown(titled) == [
        "### A  # &#60;b>B&#60;/b> &#91;x](y)",
        "",
        "| c |",
        "|---|",
        r"| d \|e&#126;f&#126; |",
        "",
        "- `f` &#60;g> - h",
    ]
    assert not any("\n" in line for line in latex(titled, ""))
    text = "\n".join(latex(table, ""))
    assert "$<$ 1 (0.5 to $>$ 20)" in text and r"\{1\}\$" in text and r"a\textbar{}b" in text
