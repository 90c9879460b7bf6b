"""The table for a paper: methods by studies."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from conftest import refused
from diagvib.commands.table import Choices, methods_table, write_table
from diagvib.papers.all_tables import tabulate
from diagvib.settings.baselines import load_settings
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import KnownStudies
from reports import report_data_of
from synthetic_runs import accuracy, expected_runs, run_of, write_run

STUDIES, BINDINGS, SAMPLES = ("zso", "zgo", "chgo"), ["shape-hue", "shape-scale"], 3
BASELINES = ["resnet18", "resnet50", "small_cnn"]  # the last is `mine`
ALONE = {"baseline": "resnet18", "study": "zgo"}
MISSING = run_of("resnet50", "chgo", "shape-hue", 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    expected = expected_runs(BASELINES, STUDIES, BINDINGS, samples=SAMPLES)
    return make_root(tmp_path_factory.mktemp("root"), expected)


def make_root(root: Path, expected: list[dict]) -> Path:
    for run in expected:
        if run["baseline"] != "resnet50" or run != {**run, **MISSING}:
            write_run(root / "results/runs", run)
    titled = {**load_settings("small_cnn"), "title": "Ours_100% & more"}
    entries = [
        {"name": name, "settings": titled if name == "small_cnn" else load_settings(name)}
        for name in BASELINES
    ]
    settings = {"counts": {"train": 4374}, "mine": "small_cnn", "baselines": entries}
    settings |= {"studies": [*STUDIES], "sources": "embedded"}
    tabulate(root / "results/runs", root / "results/tables", expected, settings)
    return root


def mean(baseline: str, study: str) -> float:
    bindings, group = (["shape"], "id") if study == "zso" else (BINDINGS, "ood")
    runs = [run_of(baseline, study, b, s) for b in bindings for s in range(SAMPLES)]
    return 100 * sum(accuracy(run, group) for run in runs) / len(runs)


def test_the_best_of_each_study_is_bold_and_mine_is_last(root):
    table = methods_table(root, Choices())
    rows = {row[0].split(" ")[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert [*rows] == ["resnet18", "resnet50", "Ours_100%"] and table.last_apart
    assert "supervision" not in table.heads  # the same in all rows
    (note,) = [note for note in table.notes if note.startswith("The same in all rows")]
    assert "supervision none" in note
    studies = table.heads[-3:-1]
    names = {"resnet18": "resnet18", "small_cnn": "Ours_100%"}
    for head, study in zip(studies, STUDIES[1:], strict=True):
        for name, title in names.items():
            assert rows[title][head].startswith(f"{mean(name, study):.1f} ± ")
    assert "n = 2 of 3" in rows["resnet50"][studies[1]]
    assert rows["resnet50"]["average"] == "-"
    for name, title in names.items():
        average = sum(mean(name, study) for study in STUDIES) / 3
        assert float(rows[title]["average"].split(" ")[0]) == pytest.approx(average, abs=0.051)
    complete = {0: mean("resnet18", "chgo"), 2: mean("small_cnn", "chgo")}
    top = max(round(value, 1) for value in complete.values())
    best = {(row, studies[1]) for row, value in complete.items() if round(value, 1) == top}
    assert {cell for cell in table.best if cell[1] == studies[1]} == best
    low, high = re.search(
        r"\((\S+) to (\S+)\)", methods_table(root, Choices(spread="interval")).rows[0][-3]
    ).groups()
    assert float(low) < mean("resnet18", "zgo") < float(high)


def test_a_study_may_be_titled_as_the_average_is(root, monkeypatch):
    monkeypatch.setattr(
        KnownStudies, "title", lambda _, study: "average" if study == "zso" else study
    )
    table = methods_table(root, Choices(spread="none"))
    assert table.heads[-4:] == ["average", "zgo", "chgo", "average of the studies"]
    assert float(table.rows[0][-4]) == pytest.approx(mean("resnet18", "zso"), abs=0.051)


def test_a_baseline_with_fewer_bindings_says_so_and_is_never_best(tmp_path):
    """Nor is a mean over studies that of the bindings alone that all of them have."""
    expected = expected_runs(BASELINES, STUDIES[1:], BINDINGS, samples=SAMPLES)
    fewer = [
        run
        for run in expected
        if run["binding"] == "shape-scale" or (run["baseline"], run["study"]) != ("resnet18", "zgo")
    ]
    table = methods_table(make_root(tmp_path, fewer), Choices())
    *studies, average = table.heads[-3:]
    cells = dict(zip(table.heads, table.rows[0], strict=True))
    assert cells[studies[0]].endswith(" (1 of 2 bindings)")
    assert "bindings" not in cells[studies[1]] + table.rows[2][-3]
    alone = [accuracy(run, "ood") for run in fewer if run == {**run, **ALONE}]
    mean_of_studies = (100 * sum(alone) / len(alone) + mean("resnet18", "chgo")) / 2
    assert cells[average] == f"{mean_of_studies:.1f} (1 of 2 bindings)"
    assert {head for row, head in table.best if row == 0} <= {studies[1]}


def test_doubts_on_studies_that_a_table_leaves_out_give_no_sign(tmp_path):
    root = make_root(tmp_path, expected_runs(BASELINES, STUDIES[1:], BINDINGS[:1], SAMPLES))
    path = root / "results/tables/runs.parquet"
    runs = pd.read_parquet(path)
    runs.assign(reason=runs["study"].map({"zgo": "", "chgo": "doubt"})).to_parquet(path)
    names = [methods_table(root, Choices(studies=[study])).rows[0][0] for study in STUDIES[1:]]
    assert names == ["resnet18", "resnet18 ‡"]


def test_a_table_of_earlier_runs_says_so(tmp_path):
    runs = expected_runs(BASELINES, STUDIES[1:], BINDINGS[:1], SAMPLES)
    root = make_root(tmp_path, runs)
    write_run(root / "results/runs", {**MISSING})  # finished since
    again = "The tables were made from other runs of resnet50 on chgo than those there now; make"
    assert any(note.startswith(again) for note in methods_table(root, Choices()).notes)
    assert "other runs" not in str(methods_table(root, Choices(studies=["zgo"])).notes)
    shutil.rmtree(root / "results/runs")  # of tables that were pulled alone
    assert "other runs" not in str(methods_table(root, Choices()).notes)


def test_every_format_has_the_same_cells(root, tmp_path):
    for name in ("t.tex", "t.md", "t.csv"):
        table = write_table(root, Choices(label="tab:mine"), tmp_path / name)
    tex = (tmp_path / "t.tex").read_text()
    assert "booktabs" in tex and r"\label{tab:mine}" in tex and tex.count(r"\midrule") == 2
    assert tex.index(r"\midrule", tex.index("resnet50")) < tex.index(r"Ours\_100\% \& more")
    plain = re.sub(r"\\[_%&#${}]", "", re.sub("(?m)^%.*", "", tex))
    assert plain.count("{") == plain.count("}") and not re.search("[_%#]", plain)
    lines = [line for line in plain.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in lines} == {len(table.heads) - 1}
    assert (
        tex.count(r"\textbf{") == len(table.best) == (tmp_path / "t.md").read_text().count("**") / 2
    )
    if shutil.which("pdflatex"):
        document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{tex}\end{{document}}"
        (tmp_path / "all.tex").write_text(document)
        subprocess.run(["pdflatex", "-halt-on-error", "all.tex"], cwd=tmp_path, check=True)
    cells = pd.read_csv(tmp_path / "t.csv", dtype=str, keep_default_na=False)
    assert cells.to_numpy().tolist() == table.rows and [*cells] == table.heads


def test_what_there_is_not_is_named(root, tmp_path):
    with refused("unknown study 'zgs'; did you mean zso or zgo"):
        methods_table(root, Choices(studies=["zgs"]))
    with refused("zso: unknown metric 'ood'; known: id_accuracy, ood_accuracy"):
        methods_table(root, Choices(metric="ood"))
    with refused("t.pdf: the extension must be one of .tex, .md, .csv"):
        write_table(root, Choices(), tmp_path / "t.pdf")
    with refused("mine: unknown baseline 'r_sam'; known: small_cnn"):
        load_config("config/demo.yaml", ["mine=r_sam"])


def test_mine_is_last_of_the_baselines_and_first_of_the_findings(root, tmp_path):
    names = ["alexnet", "small_cnn", "resnet18"]
    config = load_config("config/demo.yaml", [f"baselines=[{', '.join(names)}]", "mine=alexnet"])
    assert [entry.name for entry in config.baselines] == ["small_cnn", "resnet18", "alexnet"]
    data = report_data_of(root / "results", {"mine": "small_cnn", "studies": [*STUDIES]})
    assert "small_cnn recognises" in data.findings[0].text
