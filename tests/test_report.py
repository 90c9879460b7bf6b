"""Figures and the page, from synthetic runs and images: complete, self-contained, repeatable,
showing what is missing."""

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import REPOSITORY, refused
from diagvib import stages
from diagvib.papers.diagvib6.comparability import protocol_differences
from diagvib.papers.diagvib6.finding import shortcut_sentences, telling_bindings
from diagvib.report.figures import draw_figures
from diagvib.report.matrix import (
    heat_map,
    heat_map_figures,
    matrix_cells,
    matrix_columns,
    study_matrix,
)
from diagvib.report.page import write_report
from diagvib.report.report_data import Figure
from diagvib.report.style import PALETTE, accuracy_colours, by_baseline, luminance
from diagvib.report.visualisation_sheets import (
    looking_sheet,
    read_visualisations,
    reconstruction_sheet,
    visualisation_figures,
    visualisation_sheet,
)
from diagvib.results.metric_sets.metric_set import Finding
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.scenes.digits.factors import classes
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout, Run
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import SHIPPED, KnownStudies
from diagvib.studies.study import Study
from reports import drawn_in, make_report, matrix_of, report_data_of, write_images
from synthetic_runs import accuracy, expected_runs, tabulated, write_pictures, write_run
from synthetic_studies import changed_study, definition_of
from test_gap_figures import tables

BINDINGS = ["shape-hue", "hue-shape", "shape-position"]
STUDIES = ["zso", "zgo", "fgo-20"]
EXPECTED = expected_runs(["small_cnn"], STUDIES, BINDINGS, samples=2)
SETTINGS = {
    "sources": "embedded",
    "samples": 2,
    "counts": {"train": 4374, "ood": 900},
    "image_size": 128,
}
BINDINGS_ZSO = ("hue", "shape")
# In the model of synthetic_runs the strongest shortcut among BINDINGS.
TELLING = ["shape", "position"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for run in EXPECTED:
        write_pictures(write_run(root / "runs", run, comparable=False, tracked=True))
    for study in STUDIES:
        name = "shape" if study == "zso" else "-".join(TELLING)
        write_images(root / "images" / study / name / "0", study, TELLING)
    made_again(root)
    return root


def made_again(root):
    tabulated(root, EXPECTED, SETTINGS)
    return make_report(root, SETTINGS)


@pytest.fixture
def page(results):
    return (results / "report.html").read_text(encoding="utf-8")


def test_the_page_fetches_nothing_and_its_links_lead_somewhere(page):
    tags = re.findall("<[a-z][^>]*>", page)
    ids = [name for tag in tags for name in re.findall(r'\sid="([^"]+)"', tag)]
    anchors = {name for tag in tags for name in re.findall(r'href="#([^"]+)"', tag)}
    assert len(ids) == len(set(ids)) and anchors and anchors <= set(ids)
    loaded = [tag for tag in tags if not tag.startswith("<a ")]
    fetched = [url for tag in loaded for url in re.findall(r'(?:src|href|data)="([^#"]+)', tag)]
    assert fetched and all(address.startswith("data:") for address in fetched)
    assert not re.search(r"@import|url\(['\"]?http|\bfetch\(|XMLHttpRequest|<iframe|<object", page)
    regions = re.findall(r'role="region" aria-label="([^"]+)"', page)
    assert len(regions) == len(set(regions)) > 5
    assert len(page) < 1_500_000


def test_what_shows_nothing_at_once_is_folded_into_the_details(page):
    main, _, details = page.partition('id="details"')
    for key in ("curves", "matrices", "visualisations", "pictures"):
        assert f'<h2 id="{key}">' in main
    for key in ("tables", "overall", "training", "rules", "times", "settings", "cite"):
        assert f'<div id="{key}"' in details and f'href="#{key}"' not in page


def test_a_single_pair_needs_no_matrix(tmp_path):
    expected = expected_runs(["small_cnn"], ["zso", "zgo", "cgo-1"], ["shape-hue"], samples=2)
    for run in expected[:-2]:
        write_run(tmp_path / "runs", run)
    tabulated(tmp_path, expected, SETTINGS)
    (tmp_path / "figures").mkdir()
    write_report(report_data_of(tmp_path, SETTINGS), [], tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    _, _, table = page.partition('<table class="heat pair">')
    texts = re.findall(r"<td[^>]*>([^<]+)</td>", table.partition("</table>")[0])
    right = [accuracy({**run, "sample": s}, "ood") for run in expected[2:3] for s in range(2)]
    assert texts[0].startswith("95.0") and texts[1].startswith(f"{100 * np.mean(right):.1f} ±")
    assert texts[2:] == ["missing"] and "matrix-data" not in page


def test_the_page_says_in_numbers_what_the_runs_say(page):
    text = " ".join(plain(page).split())
    run = {"target": "shape", "cue": "position", "sample": 0}
    right = {study: 100 * accuracy(run | {"study": study}, "ood") for study in ("zgo", "fgo-20")}
    assert right == {"zgo": 0, "fgo-20": 60}  # sample 1: 5 points more
    words = (
        r"Trained with position as a shortcut to shape \(the clearest of 3 pairs\), small_cnn recognises shape in "
        r"[23] % of the test images where position misleads, instead of 95 % without it \(95 % interval: .*\)\. "
        r"Counter-examples, .* raise it to 6[23] % \("
    )
    assert re.search(words, text)
    for words in (
        "small_cnn, ZGO: 50 % of the evidence for its predictions lies where the image shows the target, on 25 %",
        "Accuracy is below chance in 2 of 3 trained pairs",
        "No other rule changes an accuracy.",
        "None: all 16 configured runs are complete.",
    ):
        assert words in text


def test_other_sources_and_a_shortened_protocol_are_announced_everywhere(results, page):
    note = "Made from embedded sources: not comparable to the paper."
    assert note in page and note in (results / "tables/tables.md").read_text()
    assert all(note in path.read_text() for path in (results / "figures").rglob("*.svg"))
    assert "4,374 training images (paper: 43,740)" in protocol_differences(SETTINGS)
    assert protocol_differences({}) == []


def test_every_configured_figure_is_there_however_many_processes_draw(
    results, tmp_path, monkeypatch
):
    assert drawn_in(results) == {
        *(f"p_matrix/{study}_small_cnn" for study in STUDIES),
        *(f"sheets/{study}_{'-'.join(TELLING)}" for study in STUDIES),
        *("training/small_cnn", "curves/faavg_fgo", "curves/famin_fgo"),
        # Of ZSO every target, of ZGO the most telling pair.
        *(f"exhibits/small_cnn_{name}" for name in ("zso_shape", "zso_hue", "zgo_shape-position")),
        *("looks/zso_shape", "looks/zgo_shape-position", "selection/price"),
        *(f"{kind}/{study}" for kind in ("asymmetry", "ranking") for study in ("zgo", "fgo-20")),
    }
    monkeypatch.setattr("diagvib.report.figures.FIGURES_A_PROCESS", 4)
    draw_figures(report_data_of(results, SETTINGS), tmp_path, threads=2)
    for path in (results / "figures").rglob("*.*"):
        again = tmp_path / path.relative_to(results / "figures")
        assert again.read_bytes() == path.read_bytes(), path.name


def run_with_pictures(results) -> Path:
    return results / "runs/small_cnn/zgo/shape-hue/0"


def texts_on(sheet) -> list[str]:
    """Those on a figure of one panel."""
    (axes,) = sheet.axes
    return [text.get_text() for text in axes.texts]


def test_a_sheet_says_what_is_predicted_and_what_each_number_carries(results, page):
    rows = read_visualisations(run_with_pictures(results) / "exhibits.parquet")
    rows["prediction"] = rows["prediction"].replace({"first": classes("shape")[0]})
    texts = texts_on(visualisation_sheet(rows, ["shape", "hue"], "a title"))
    assert [text[0] for text in texts if text[0] in "✓✗"] == list("✓✗✗✓" * 2)
    assert "z1\n1.5 nats" in texts and "z0\n2.5 nats" in texts
    _, _, section = page.partition('id="visualisations"')
    assert section.count("data:image/webp") >= 3 * 3 and "data:image/png" not in section


def test_where_networks_look_is_shown_beside_the_images(results):
    folders = dict.fromkeys(("one", "two"), run_with_pictures(results))
    texts = texts_on(looking_sheet(folders, ["shape", "hue"], "a title"))
    assert [text for text in texts if text in ("input", "one", "two")] == ["input", "one", "two"]
    assert len([text for text in texts if text[0] in "✓✗"]) == 2 * 4
    assert "| FGO-20 | small_cnn | 50 % (25 %) | 50 % (25 %) | 6 |" in tables_md(results)


def test_reconstructions_of_several_autoencoders_stand_below_the_images(results):
    folders = dict.fromkeys(("one", "two"), run_with_pictures(results))
    texts = texts_on(reconstruction_sheet(folders, ["shape", "hue"], "a title"))
    assert [text for text in texts if "of 2" in text] == ["one\n2 of 2", "two\n2 of 2"]
    assert len([text for text in texts if text[0] in "✓✗"]) == 2 * 4
    folders.pop("two")
    assert reconstruction_sheet(folders, ["shape", "hue"], "a title") is None


def tables_md(root) -> str:
    return plain((root / "tables/tables.md").read_text())


def test_a_figure_is_one_record(results, tmp_path, monkeypatch):
    def toys(report_data):
        draw = partial(
            heat_map, report_data.frames["p_matrix"], "zgo", "small_cnn", report_data.known_studies
        )
        yield Figure("toys/one", "A toy", draw, "Toys", "Its caption.")

    monkeypatch.setattr("diagvib.report.figures.KINDS", (toys,))
    shutil.copytree(results / "tables", tmp_path / "tables")
    page = make_report(tmp_path, SETTINGS)
    _, _, section = page.partition(">Toys</h2>")
    assert drawn_in(tmp_path) == {"toys/one"} and 'aria-label="Figure: A toy"' in section
    assert "<figcaption>Its caption.</figcaption>" in section


def test_a_hole_is_named_on_the_page_and_changes_nothing_else(results, page, tmp_path, monkeypatch):
    kinds = (heat_map_figures, visualisation_figures)
    monkeypatch.setattr("diagvib.report.figures.KINDS", kinds)
    root = shutil.copytree(results, tmp_path / "root")
    runs = root / "runs/small_cnn"
    shutil.rmtree(runs / "fgo-20/hue-shape")
    (runs / "zgo/shape-hue/0/predictions.parquet").write_bytes(b"PAR1 and no more")
    shutil.copy(runs / "zso/shape/0/exhibits.parquet", runs / "zso/hue/0/exhibits.parquet")
    text = made_again(root)
    for words in (
        "small_cnn, fgo-20: hue-shape samples 0, 1: missing (not run)",
        "small_cnn, zgo: shape-hue sample 0: damaged (predictions.parquet: changed since it was made",
        "small_cnn, zso: hue sample 0: damaged",
        "4 runs are missing.",
    ):
        assert words in text
    assert "exhibits/small_cnn_zso_hue" not in drawn_in(root)
    before, after = (matrix_of(item)["cells"] for item in (page, text))
    missing = after["fgo-20"]["small_cnn"]["hue shape"]
    assert missing["value"] is None
    assert missing["missing"] == [f"sample {s}: missing (not run)" for s in range(2)]
    changed = {
        (study, cell)
        for study in before
        for cell, was in before[study]["small_cnn"].items()
        if was != after[study]["small_cnn"][cell]
    }
    assert changed == {("fgo-20", "hue shape"), ("zgo", "shape hue"), ("zso", "hue")}
    assert "missing" in (root / "figures/p_matrix/fgo-20_small_cnn.svg").read_text()
    assert "n=1/2" in (root / "figures/p_matrix/zgo_small_cnn.svg").read_text()


def test_a_page_can_be_made_before_anything_ran_but_not_without_tables(tmp_path):
    text = made_again(tmp_path / "none")
    assert "No finished run can answer this yet" in text and 'id="visualisations"' not in text
    assert "small_cnn, zgo: all 6 runs: missing (not run)" in text
    with refused(r"runs\.parquet.*run `diagvib tabulate --config FILE`"):
        make_report(tmp_path / "absent", SETTINGS)


def test_a_page_stands_for_all_that_is_drawn_with_it(tmp_path):
    """Whatever stops the drawing, no earlier page is left beside half of the others' files."""
    config = load_config("config/demo.yaml", ["samples=1", "studies=[zgo]"])
    layout, job = Layout(tmp_path), stage_settings(config, "plot")
    stages.tabulate(layout, stage_settings(config, "tabulate"), 1)
    layout.report.write_text("of other tables")
    layout.explorer.touch()  # so that the folder cannot be made
    with pytest.raises(FileExistsError):
        stages.plot(layout, job, 1)
    assert not layout.report.exists()
    layout.explorer.unlink()
    stages.plot(layout, job, 1)
    assert layout.report.exists()


def test_a_page_without_cues_and_with_seeds_says_so(tmp_path, monkeypatch):
    """And rounds a half as its tables do; Chromium's toFixed would round 12.5 up."""
    monkeypatch.setattr("diagvib.report.figures.KINDS", ())
    runs = [
        Run("net", "zso", name, 0, seed=seed).keys for name in BINDINGS_ZSO for seed in range(3)
    ]
    for run in runs:
        write_run(tmp_path / "runs", run)
    tabulated(tmp_path, runs, SETTINGS | {"seeds": 3})
    text = " ".join(make_report(tmp_path, SETTINGS | {"seeds": 3}).split())
    assert "1 study, 2 bindings, 1 dataset sample, 3 training seeds: 6 of 6 runs." in text
    assert "Accuracy in percent by target; vermilion" in text and "columns: cues" not in text
    assert "intervals. Vertical line" not in text.partition("</header>")[0]
    p = pd.DataFrame(
        [dict.fromkeys(("study", "baseline", "target"), "a") | {"cue": "", "mean": 0.125}]
    )
    p = p.assign(stderr=0.0, n=1, expected=1, low=np.nan, high=np.nan)
    runs = pd.DataFrame(columns=["study", "baseline", "target", "cue", "status"])
    assert matrix_cells(p, runs)["a"]["a"]["a"]["whole"] == "12"


def test_headlines_need_no_study_but_zgo():
    row = {"baseline": "m", "target": "shape", "cue": "hue", "group": "ood", "study": "zgo"}
    row |= {"mean": 0.5, "stderr": 0.0, "n": 1, "expected": 1}
    finding = finding_in("shortcut", {"p_matrix": pd.DataFrame([row])})
    message = "50 % of the test images where hue misleads."
    assert finding.text.endswith(message), "and nothing about studies that did not run"
    assert len(finding.accuracies) == 1


def test_the_watermark_has_a_headline_of_its_own():
    study = str(REPOSITORY / "config/imagenet_w/studies.yaml")
    names = {"metric_set": "watermark", "study": "in-w-drawn", "baseline": "net", "target": "class"}
    names |= {"binding": "class-watermark-photos", "cue": "watermark-photos"}
    values = {"in1k_accuracy": 0.5, "in_w_gap": -0.3, "p_carton": 0.01, "delta_p_carton": 0.79}
    rows = [{**names, "metric": metric, "mean": mean} for metric, mean in values.items()]
    frames = {"metrics": pd.DataFrame(rows)}
    finding = finding_in("watermark", frames, KnownStudies((study,)))
    message = re.findall("[0-9.]+(?= %)", finding.text)
    assert message == ["50", "20", "1.00", "80.00"]
    assert [*finding.accuracies.values()] == pytest.approx([0.5, 0.2])


def contrast(item: str, alternative: str) -> float:
    """Of two colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted(map(luminance, (item, alternative)))
    return (light + 0.05) / (dark + 0.05)


def test_texts_have_the_contrast_that_wcag_aa_asks_for_in_both_themes():
    folder = Path(accuracy_colours.__code__.co_filename).parent
    styles = (folder / "page.css").read_text() + (folder / "explorer.css").read_text()
    light, dark = {}, {}
    for line in re.findall(r"--([\w-]+): (#[0-9a-f]{6})", styles):
        (dark if line[0] in light else light)[line[0]] = line[1]
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        for text in ("ink", "muted", "trained", "held-out", "other"):
            for below in ("paper", "soft", "warn"):
                assert contrast(colours[text], colours[below]) >= 4.5, (text, below)
        for line in (colours["hatch"], *(set(PALETTE) - {"#4d4d4d"})):  # that is `muted`
            assert contrast(line, colours["paper"]) >= 3, "no text"
    for chance in (1 / 2, 1 / 3, 1 / 10):
        assert all(
            contrast(*accuracy_colours(position / 100, chance)) >= 4.5 for position in range(101)
        )


def test_the_colour_scale_is_palest_at_chance():
    def lightness(value):
        return sum(bytes.fromhex(accuracy_colours(value, 1 / 3)[0][1:]))

    assert max(np.linspace(0, 1, 31), key=lightness) == pytest.approx(1 / 3, abs=0.02)


def test_a_heat_map_has_targets_in_rows_cues_in_columns_and_the_chance_of_the_study():
    known_studies = KnownStudies((str(REPOSITORY / "tests" / "square_studies.yaml"),))
    row = {"baseline": "own", "study": "two-places", "target": "corner", "cue": "colour"}
    row |= {"group": "ood", "mean": 0.25, "stderr": 0.1, "n": 2, "expected": 2}
    axes, bar = heat_map(pd.DataFrame([row]), "two-places", "own", known_studies).axes
    assert [t.get_text() for t in bar.get_yticklabels()] == ["0", "chance 1/4", "0.5", "1"]
    (column, position) = next(
        t.get_position() for t in axes.texts if t.get_text().startswith("0.25")
    )
    assert axes.get_xticklabels()[[*axes.get_xticks()].index(column)].get_text() == "colour"
    assert axes.get_yticklabels()[[*axes.get_yticks()].index(position)].get_text() == "corner"


def test_a_study_without_a_shortcut_stands_beside_the_map():
    p = p_rows(("zso", "", 0.8), ("zgo", "hue", 0.1))
    axes = heat_map(p, "zgo", "m", SHIPPED).axes[0]
    texts = [text.get_text().partition("\n")[0] for text in axes.texts]
    assert sorted(texts) == ["0.10", "0.80"]
    p, mine = p_rows(("zso", "", 0.8), ("mine", "", 0.4)), changed_study("zso")
    axes = heat_map(p, "mine", "m", KnownStudies(definitions=(mine,))).axes[0]
    assert [text.get_text().partition("\n")[0] for text in axes.texts] == ["0.40"]


def trained_shares(study: Study) -> Iterable[float]:
    """What the matrix says in percent of each cell of a study called mine."""
    known_studies = KnownStudies(definitions=(study,))
    return study_matrix("mine", p_rows(("mine", "hue", 0.1)), known_studies)["train"].values()


def test_a_cell_of_several_rows_is_trained_as_often_as_all_of_them_say():
    (calls, misled), additional = definition_of("zgo")["rows"], {"environment": "other"}
    additional["weight"] = 3.0
    single = changed_study("zgo", rows=[calls, calls | additional, misled])
    assert set(trained_shares(single)) == {33.3}


def test_studies_of_one_title_have_their_names_in_the_matrix():
    names = ("mine", "again")
    studies = tuple(changed_study("zgo", name) for name in names)
    known_studies = KnownStudies(definitions=studies, configured=names)
    titles = [study_matrix(name, p_rows((name, "hue", 0.1)), known_studies) for name in names]
    assert [matrix["title"] for matrix in titles] == ["ZGO (mine)", "ZGO (again)"]


def test_a_rare_cell_is_not_said_to_be_never_trained():
    rows = definition_of("fgo-1")["rows"]
    rows[0]["weight"], rows[1]["weight"] = 0.9998, 0.0002
    assert min(trained_shares(changed_study("fgo-1", rows=rows))) > 0


def finding_in(name: str, frames: dict[str, pd.DataFrame], known_studies=SHIPPED) -> Finding:
    """The only one of a set of metrics; its text with plain spaces."""
    (finding,) = METRIC_SETS[name].findings(frames, known_studies)
    return replace(finding, text=plain(finding.text))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def p_rows(*rows: tuple) -> pd.DataFrame:
    """P_ij by study, cue and mean; of one baseline, and of shape."""
    result = pd.DataFrame(rows, columns=["study", "cue", "mean"])
    result["group"] = ["ood" if cue else "id" for cue in result["cue"]]
    return result.assign(baseline="m", target="shape", stderr=0.0, n=1, expected=2)


@pytest.mark.parametrize(
    ("recovered", "says"),
    [
        ((0.73, 0.75, 0.77), "raise it to 75 % (95 % interval: 22.5 to 27.5 points higher)"),
        ((0.28, 0.3, 0.32), "lower it to 30 % (95 % interval: 17.5 to 22.5 points lower)"),
        ((0.3, 0.54, 0.78), "it is 54 %: no effect is seen (95 % interval: -"),
    ],
)
def test_a_headline_claims_only_what_its_interval_shows(recovered, says):
    values = {"zgo": (0.49, 0.5, 0.51), "fgo-20": recovered}
    p = p_rows(*((study, "hue", np.mean(part)) for study, part in values.items()))
    runs = pd.DataFrame(
        {"study": study, "sample": sample, "ood_accuracy": value}
        for study, part in values.items()
        for sample, value in enumerate(part)
    )
    runs = runs.assign(baseline="m", target="shape", cue="hue", status="ok", reason="", ood_n=90)
    runs.loc[0, "reason"] = "predicts 3 for every test image"
    finding = finding_in("shortcut", {"p_matrix": p, "runs": runs})
    assert says in finding.text and finding.text.endswith("Caution: 1 of 6 runs is doubtful.")
    assert [*finding.accuracies.values()] == pytest.approx([0.5, np.mean(recovered)])


def test_the_clearest_pair_loses_most_and_recovers_most():
    """Twice as far below as without a shortcut: what it loses, and what it could win back."""
    p = p_rows(
        *(("zso", "", 0.9), ("zgo", "hue", 0.1), ("fgo-20", "hue", 0.2)),
        *(("zgo", "scale", 0.0), ("fgo-20", "scale", 0.05)),
    )
    result = telling_bindings(p, SHIPPED)
    assert result["cue"].tolist() == ["scale", "hue"]
    p.loc[p["study"] == "zgo", "mean"] = [0.0, 0.1]
    assert telling_bindings(p, SHIPPED)["cue"].tolist() == ["hue", "scale"]


def test_a_mean_over_targets_is_of_those_that_ran_in_every_study():
    rows = [
        ("zso", "hue", 1.0),
        ("zso", "scale", 0.9),
        ("zgo", "hue", np.nan),
        ("zgo", "scale", 0.1),
    ]
    metrics = pd.DataFrame(rows, columns=["study", "target", "mean"])
    metrics = metrics.assign(metric_set="shortcut", metric="faavg", baseline="m")
    frames = {"p_matrix": p_rows(("zgo", "hue", 0.1)), "metrics": metrics}
    message = plain(shortcut_sentences(frames, SHIPPED)[0])
    assert message == "m, mean over 1 of 2 targets, which ran everywhere: ZSO 90 %, ZGO 10 %."


def test_each_of_many_baselines_has_a_look_of_its_own():
    assert len(set(by_baseline(map(str, range(81))).values())) == 81


def test_the_lowest_pair_is_named():
    at_chance = float(np.mean([1 / 3] * 15))
    assert at_chance < 1 / 3, "by its last digit"
    cells = ("hue", 0.1), ("scale", at_chance), ("texture", 0.3)
    p = p_rows(*(("zgo", *cell) for cell in cells))
    metrics = pd.DataFrame([{"metric_set": "shortcut", "metric": "faavg", "mean": 0.3}])
    metrics = metrics.assign(study="zgo", baseline="m", target="shape")
    message = plain(shortcut_sentences({"p_matrix": p, "metrics": metrics}, SHIPPED)[1])
    assert "below chance in 2 of 3 trained pairs" in message
    assert "The lowest is that of shape with hue as the cue: 10 % (m)." in message


def test_the_matrix_tells_how_many_samples_a_cell_is_of():
    p, runs = p_rows(("zgo", "hue", 0.1)), pd.DataFrame({"status": ["ok"]})
    for name in ("study", "baseline", "target", "cue"):
        runs[name] = p[name]
    cell = matrix_cells(p, runs)["zgo"]["m"]["shape hue"]
    assert (cell["value"], cell["n"], cell["expected"]) == (10, 1, 2)
    value = matrix_cells(p.assign(mean=0.4946), runs)["zgo"]["m"]["shape hue"]["value"]
    assert value == 49.46, "rounded once, by the page"


def finding_of(name: str, values: dict, **names) -> Finding:
    """The finding from the means of the metrics of baselines."""
    rows = [
        {"baseline": baseline, "metric": metric, "mean": mean, "metric_set": name, **names}
        for baseline, part in values.items()
        for metric, mean in part.items()
    ]
    return finding_in(name, {"metrics": pd.DataFrame(rows)})


def test_the_best_of_the_other_baselines_stands_beside_the_first():
    values = {
        name: {"accuracy": mean, "id_accuracy": 0.9}
        for name, mean in (("first", 0.2), ("low", 0.1), ("high", 0.6))
    }
    names = {"study": "o2o-easy", "binding": "shape-hue", "target": "shape", "cue": "hue"}
    result = finding_of("average", values, **names)
    assert "The highest of 2 other baselines is high, with 60" in result.text
    assert [*result.accuracies.values()] == [0.9, 0.2, 0.6]


def test_a_baseline_that_has_not_run_takes_no_headline():
    metrics = ("in1k_accuracy", "in_w_gap", "p_carton", "delta_p_carton")
    values = {"first": dict.fromkeys(metrics, np.nan), "second": dict.fromkeys(metrics, 0.2)}
    names = {"study": "zgo", "binding": "shape-hue", "target": "shape", "cue": "hue"}
    result = finding_of("watermark", values, **names)
    assert result.text.startswith("second recognises")


def test_bars_of_a_finding_about_gaps_are_accuracies():
    gaps, judgement = tables()
    frames = {"metrics": gaps.assign(metric_set="gaps"), "whac_a_mole": judgement}
    result = finding_in("gaps", frames)
    assert [*result.accuracies.values()] == pytest.approx([0.93, 0.53, 0.63, 0.27])


def test_a_study_without_cues_stands_beside_those_of_its_own_scene():
    p = p_rows(("dogs-o2o-easy", "", 0.9), ("zso", "", 0.8), ("zgo", "hue", 0.1))
    assert matrix_columns(p, "zgo", SHIPPED) == (["shape"], ["hue"], "zso")
