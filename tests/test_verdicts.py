"""The verdict on a reproduction: known answers from the paper's own numbers, shifted ones, and few samples."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from diagvib.collect import Collected
from diagvib.factors import FACTORS
from diagvib.paper import read_paper_tables
from diagvib.tables import TABLE_FILES, chgo_table, make_tables, metrics_table, write_tables
from diagvib.verdicts import comparison_table, shortened_baselines, shortened_protocol, summary_table, verdict_sentence
from synthetic_grid import BASELINES, PAIRS, STUDIES
from synthetic_runs import expected_runs

EXPECTED = expected_runs(BASELINES, STUDIES, PAIRS, samples=5)


def frame_of_the_paper(samples: int = 5, shift: float = 0.0) -> pd.DataFrame:
    """Runs whose FAAvg and FAMin are the paper's: one cue has the minimum, the other four what gives the mean."""
    paper = read_paper_tables().set_index(["study", "baseline", "target", "metric"])
    mean, spread = paper["paper_mean"].to_dict(), paper["paper_spread"].to_dict()
    frame = pd.DataFrame([run for run in EXPECTED if run["sample"] < samples])
    frame["cue"] = frame["cue"].fillna("")
    first_cue = frame.groupby("target")["cue"].transform(lambda cues: sorted(set(cues) - {""})[0])
    deviations = np.array([-1.0, 1, 0, -1, 1])[:samples] * np.sqrt(5 if samples == 5 else 0)

    def accuracy(row, is_first):
        study = "zgo" if row.study == "chgo" else row.study
        average = mean[study, row.baseline, row.target, "faavg"]
        least = mean.get((study, row.baseline, row.target, "famin"), average)
        value = least if is_first and row.cue else average if not row.cue else (5 * average - least) / 4
        if row.study == "chgo":
            key = ("chgo", row.baseline, row.target, "improvement_over_zgo")
            return value + mean[key] + shift + deviations[row.sample] * spread[key] / np.sqrt(5)
        return value + shift + deviations[row.sample] * spread[study, row.baseline, row.target, "faavg"]
    values = [accuracy(row, first) for row, first in zip(frame.itertuples(), frame["cue"] == first_cue, strict=True)]
    return frame.assign(status="ok", reason="", id_accuracy=values, ood_accuracy=values, id_n=1.0, ood_n=1.0,
                        sources="official", comparable=True)


def compare(frame: pd.DataFrame, settings: dict | None = None) -> pd.DataFrame:
    return comparison_table(metrics_table(frame), chgo_table(frame), frame, settings or {})


@pytest.fixture(scope="module")
def papers_own():
    return frame_of_the_paper()


@pytest.mark.parametrize("samples", [5, 3, 1])
def test_the_papers_own_numbers_agree_in_every_cell(samples):
    comparison = compare(frame_of_the_paper(samples))
    assert len(comparison) == 864 and (comparison["verdict"] == "agrees").all()
    assert comparison["difference"].abs().max() < 1e-9
    assert verdict_sentence(comparison) == "864 of 864 compared cells agree with the paper: all that it has."


def test_numbers_shifted_by_ten_points_differ_wherever_the_spread_lets_one_tell(papers_own):
    moved = {name: papers_own[name] + 0.1 for name in ("ood_accuracy", "id_accuracy")}
    comparison = compare(papers_own.assign(**moved))
    cells = comparison[comparison["metric"] != "improvement_over_zgo"]  # there the shift cancels
    assert cells["difference"].to_numpy() == pytest.approx(0.1)
    should = cells["uncertainty"] < 0.1
    assert should.mean() > 0.5
    assert ((cells["verdict"] == "differs") == should).all()
    # and a standard error of at most one point on both sides always lets one tell
    assert (cells[(cells[["paper_stderr", "stderr"]] <= 0.01 + 1e-9).all(axis=1)]["verdict"] == "differs").all()


def test_the_uncertainty_is_welchs_with_the_papers_rounding(papers_own):
    cells = compare(papers_own).query("study == 'zgo' and baseline == 'resnet18' and metric == 'faavg'")
    row = cells[cells["target"] == "hue"]
    ours, theirs = row["stderr"].item() ** 2, row["paper_stderr"].item() ** 2 + 0.01**2 / 12
    freedom = (ours + theirs) ** 2 / (ours**2 / 4 + theirs**2 / 4)
    assert row["uncertainty"].item() == pytest.approx(t.ppf(0.975, freedom) * np.sqrt(ours + theirs) + 0.005)


def test_one_sample_says_that_it_has_no_standard_error():
    comparison = compare(frame_of_the_paper(1))
    assert comparison["stderr"].isna().all()
    assert comparison["reason"].str.startswith("n = 1 has no standard error").all()
    assert (comparison["uncertainty"] > compare(frame_of_the_paper(3))["uncertainty"]).mean() > 0.9


def test_what_did_not_run_and_what_cannot_be_compared_say_why(papers_own):
    missing = (papers_own["baseline"] == "asr") & (papers_own["study"] == "zgo")
    frame = papers_own.copy()
    frame.loc[missing, ["id_accuracy", "ood_accuracy"]] = np.nan
    frame.loc[missing, "status"] = "missing"
    frame = frame[frame["baseline"] != "vae"]
    frame.loc[frame["baseline"] == "alexnet", "comparable"] = False
    comparison = compare(frame)
    by = comparison.groupby("baseline")
    assert set(by.get_group("vae")["verdict"]) == {"not run"}
    assert by.get_group("vae")["reason"].str.startswith("not configured: vae").all()
    assert set(by.get_group("alexnet")["reason"]) == {"embedded sources"}
    asr = by.get_group("asr")
    assert set(asr[asr["study"].isin(["zgo", "chgo"])]["verdict"]) == {"not run"}
    assert set(asr[~asr["study"].isin(["zgo", "chgo"])]["verdict"]) == {"agrees"}
    assert comparison.loc[~comparison["verdict"].isin(["agrees", "differs"]), "difference"].isna().all()


def test_a_shortened_protocol_is_not_comparable_but_fewer_samples_are(papers_own):
    settings = {"counts": {"train": 4374, "ood": 900}, "samples": 2, "baselines": [
        {"name": "resnet18", "settings": {"max_epochs": 1}}]}
    assert set(compare(papers_own, settings)["reason"]) >= {"shortened protocol: 4,374 training images (paper: 43,740)"}
    assert shortened_protocol({"counts": {"train": 43740, "ood": 900}, "samples": 2}, biasing=True) == []
    assert len(shortened_protocol(settings)) == 3
    assert list(shortened_baselines(settings)) == ["resnet18"]


def test_fewer_cues_are_another_number(papers_own):
    comparison = compare(papers_own[papers_own["cue"] != "texture"])
    zgo = comparison[comparison["study"] == "zgo"]
    assert set(zgo[zgo["target"] == "shape"]["reason"]) == {"4 of 5 cues"}
    assert set(zgo[zgo["target"] == "texture"]["verdict"]) == {"agrees"}


def test_the_summary_counts_every_cell_once_by_each_of_its_names(papers_own):
    summary = summary_table(compare(papers_own[papers_own["baseline"] != "vae"]))
    for _, rows in summary.groupby("by"):
        assert rows["cells"].sum() == 864 and rows["agrees"].sum() == 768 and rows["not_run"].sum() == 96
    assert set(summary["by"]) == {"overall", "study", "baseline", "factor"}


def test_every_form_of_the_tables_is_written_and_tells_the_same(papers_own, tmp_path):
    collected = Collected(papers_own, [None] * len(papers_own), [None] * len(papers_own))
    write_tables(collected, tmp_path, {})
    written = {path.name for path in tmp_path.iterdir()}
    assert written == set(TABLE_FILES) - {"versions.json"}
    tables = make_tables(collected, {})
    for name in ("metrics", "comparison", "p_matrix"):
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / f"{name}.parquet"), tables[name], check_dtype=False)
    markdown, latex = (tmp_path / "tables.md").read_text(), (tmp_path / "tables.tex").read_text()
    assert "864 of 864 compared cells agree" in markdown and "864 of 864 compared cells agree" in latex
    assert "| *paper* | 100 ± 0 | 88 ± 2 |" in markdown or "| *paper* |" in markdown
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 9 + 8 + 8 + 1
    assert r"resnet50\_in" in latex and "±" not in latex
    assert (tmp_path / "p_matrix.md").read_text().count("## ") == 81
    assert len(latex_rows(latex)) == 26
    matrices = latex_rows((tmp_path / "p_matrix.tex").read_text())
    assert len(matrices) == 81
    row = tables["p_matrix"].query("study == 'zgo' and baseline == 'resnet18' and target == 'hue' and cue == 'shape' "
                                   "and group == 'ood'").iloc[0]
    matrix = next(rows for caption, rows in matrices if caption.startswith("ZGO, resnet18."))
    assert matrix[0] == ["target", *FACTORS] and [line[0] for line in matrix[1:]] == list(FACTORS)
    assert matrix[2][5] == f"{100 * row['mean']:.1f} $\\pm$ {100 * row['stderr']:.1f}" and matrix[2][2] == ""


def latex_rows(text: str) -> list[tuple[str, list[list[str]]]]:
    """Caption and cells of every table, which must be well formed: as many cells as columns, nothing left unescaped."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[%_#]", text)
    found = []
    for table in re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", text, re.DOTALL):
        assert table.count("{") == table.count("}") and table.count("$") % 2 == 0
        columns, body = re.search(r"\\begin\{tabular\}\{(l+r+)\}(.*)\\end\{tabular\}", table, re.DOTALL).groups()
        lines = re.sub(r"\\(top|mid|bottom)rule", "", body).split(r"\\")[:-1]
        rows = [[cell.strip() for cell in line.split("&")] for line in lines]
        assert {len(row) for row in rows} == {len(columns)}
        found.append((re.search(r"\\caption\{(.*)\}", table)[1], rows))
    return found
