"""Figures and the page, from synthetic runs and images: complete, self-contained, repeatable,
showing what is missing."""

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from conftest import REPOSITORY
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_table
from diagvib.report.curves import study_curves
from diagvib.report.figures import draw_figures
from diagvib.report.headlines import headlines
from diagvib.report.heat_maps import heat_map
from diagvib.report.page import write_report
from diagvib.report.sheets import cell_shares, example_images, ood_cells, scene_sample, study_sheet
from diagvib.report.style import accuracy_colours
from diagvib.results.comparability import protocol_differences
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metrics import CHANCE
from diagvib.results.shortcut import telling_bindings
from diagvib.results.tables import read_tables, tabulate
from diagvib.studies import study_cells
from diagvib.studies.binding import Binding
from synthetic_runs import accuracy, expected_runs, write_run

BINDINGS = ["shape-hue", "hue-shape", "shape-position"]
STUDIES = ["zso", "zgo", "fgo-20"]
EXPECTED = expected_runs(["small_cnn"], STUDIES, BINDINGS, samples=2)
SETTINGS = {
    "sources": "embedded",
    "samples": 2,
    "counts": {"train": 4374, "ood": 900},
    "image_size": 128,
}
TELLING = Binding(
    ("shape", "position")
)  # in the model of synthetic_runs the strongest shortcut among PAIRS


def write_images(folder, study, binding, images_per_cell=4):
    """Image files whose every pixel encodes its cell: red = 10 * target class, green = 10 * cue
    class."""
    chosen = scene_sample("digits", 0).classes
    for split in ("train", "test"):
        cells = study_cells(study, split)
        rows = [
            (c.target_class, c.cue_class, c.group)
            for c in cells.itertuples()
            for _ in range(images_per_cell)
        ]
        pixels = [
            np.tile(np.array([10 * t, 10 * c, 0], np.uint8), (8, 8, 1)).tobytes()
            for t, c, _ in rows
        ]
        target, cue = binding.factors
        table = pa.table(
            {
                "group": [g for _, _, g in rows],
                target: [chosen[target][t] for t, _, _ in rows],
                cue: [chosen[cue][c] for _, c, _ in rows],
                "image": pa.array(pixels, pa.binary()),
            }
        )
        write_table(
            folder / f"{split}.parquet",
            table,
            {
                "study": study,
                "binding": binding.name,
                "sample": 0,
                "split": split,
                "image_shape": [8, 8, 3],
            },
        )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for run in EXPECTED:
        write_run(root / "runs", run, comparable=False, tracked=True)
    for study in STUDIES:
        write_images(
            root / "images" / study / ("shape" if study == "zso" else TELLING.name) / "0",
            study,
            TELLING,
        )
    return make(root)


def make(root):
    tabulate(root / "runs", root / "tables", EXPECTED, SETTINGS)
    draw_figures(root / "tables", root / "figures", root / "images", SETTINGS)
    write_report(root / "tables", root / "figures", root / "report.html", SETTINGS)
    return root


def page_of(root):
    return (root / "report.html").read_text(encoding="utf-8")


def matrix_of(text):
    return json.loads(re.search(r'id="matrix-data">(.*?)</script>', text, re.DOTALL)[1])


class Page(HTMLParser):
    """What a browser would load, the ids, the links within the page, and whether tags are
    closed."""

    VOID = ("meta", "link", "br", "hr", "img", "input")

    def __init__(self, text):
        super().__init__()
        self.fetched, self.ids, self.anchors, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.fetched += [
            attributes[k]
            for k in ("src", "href", "xlink:href", "data", "poster", "srcset")
            if k in attributes and not (tag == "a" and k == "href") and attributes[k][:1] != "#"
        ]
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.anchors += (
            [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        )
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_fetches_nothing(results):
    text = page_of(results)
    page = Page(text)
    assert all(address.startswith("data:") for address in page.fetched)
    assert not re.search(r"@import|url\(['\"]?http|\bfetch\(|XMLHttpRequest|<iframe|<object", text)
    assert len(text) < 10_000_000


def test_the_page_is_well_formed_and_its_links_lead_somewhere(results):
    page = Page(page_of(results))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert set(page.anchors) <= set(page.ids)


def test_the_page_says_in_numbers_what_the_runs_say(results):
    text = " ".join(page_of(results).split())
    mean = {
        study: np.mean(
            [
                accuracy({"study": study, "target": "shape", "cue": "position", "sample": s}, "ood")
                for s in range(2)
            ]
        )
        for study in ("zgo", "fgo-20")
    }
    assert (
        "Without a shortcut (ZSO), small_cnn recognises shape in 95 % of the test images." in text
    )
    assert (
        f"When position gives shape away in training (ZGO), it is right in {100 * mean['zgo']:.0f} %"
        in text
    )
    assert f"(FGO-20), bring it back to {100 * mean['fgo-20']:.0f} %." in text
    assert "None: all 16 configured runs are complete." in text


def test_other_sources_and_a_shortened_protocol_are_announced_everywhere(results):
    note = "Made from embedded sources: not comparable to the paper."
    assert note in page_of(results)
    assert note in (results / "tables/tables.md").read_text()
    assert all(note in path.read_text() for path in (results / "figures").rglob("*.svg"))
    assert set(pd.read_csv(results / "tables/metrics.csv")["sources"]) == {"embedded"}
    assert "4,374 training images (paper: 43,740)" in protocol_differences(SETTINGS)
    assert protocol_differences({}) == []


def test_every_configured_figure_is_there_as_png_and_svg(results):
    names = {f"p_matrix/{study}_small_cnn" for study in STUDIES}
    names |= {f"sheets/{study}_{TELLING.name}" for study in STUDIES}
    names |= {"dominance/zgo", "asymmetry/zgo_small_cnn", "training/small_cnn"}
    names |= {f"curves/{metric}_{route}" for metric in ("faavg", "famin") for route in ("fgo",)}
    assert {
        str(path.relative_to(results / "figures")) for path in (results / "figures").rglob("*.*")
    } == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}


def test_the_same_tables_give_the_same_bytes_however_many_processes_draw(
    results, tmp_path, monkeypatch
):
    monkeypatch.setattr("diagvib.report.figures.FIGURES_A_PROCESS", 4)
    draw_figures(results / "tables", tmp_path, results / "images", SETTINGS, threads=2)
    for path in (results / "figures").rglob("*.*"):
        assert (
            tmp_path / path.relative_to(results / "figures")
        ).read_bytes() == path.read_bytes(), path.name


def test_runs_that_noted_their_test_accuracies_show_them(results, tmp_path):
    assert "With other selection rules: FAAvg" in page_of(results)
    assert "test, ood" in (results / "figures/training/small_cnn.svg").read_text()
    for run in EXPECTED:
        write_run(tmp_path / "runs", run, comparable=False)
    without = make(tmp_path)
    assert "another epoch" not in page_of(without)
    assert "test, ood" not in (without / "figures/training/small_cnn.svg").read_text()


def test_a_hole_is_named_on_the_page_and_changes_nothing_else(results, tmp_path):
    root = shutil.copytree(results, tmp_path / "root")
    shutil.rmtree(root / "runs/small_cnn/fgo-20/hue-shape")
    (root / "runs/small_cnn/zgo/shape-hue/0/predictions.parquet").write_bytes(b"PAR1 and no more")
    text = page_of(make(root))
    assert "small_cnn, fgo-20: hue-shape samples 0, 1: missing (not run)" in text
    assert (
        "small_cnn, zgo: shape-hue sample 0: damaged (predictions.parquet: damaged or not a Parquet file"
        in text
    )
    assert "3 runs are missing." in text
    before, after = (matrix_of(page)["cells"] for page in (page_of(results), text))
    missing = after["fgo-20"]["small_cnn"]["hue shape"]
    assert missing["value"] is None and missing["missing"] == [
        f"sample {s}: missing (not run)" for s in range(2)
    ]
    assert {
        (study, cell)
        for study in before
        for cell, was in before[study]["small_cnn"].items()
        if was != after[study]["small_cnn"][cell]
    } == {("fgo-20", "hue shape"), ("zgo", "shape hue")}
    svg = (root / "figures/p_matrix/fgo-20_small_cnn.svg").read_text()
    assert (
        "missing" in svg
        and "missing" not in (root / "figures/p_matrix/zgo_small_cnn.svg").read_text()
    )
    assert "n=1/2" in (root / "figures/p_matrix/zgo_small_cnn.svg").read_text()


def test_a_page_can_be_made_before_anything_ran(tmp_path):
    text = page_of(make(tmp_path))
    assert "No run of ZGO has finished yet" in text
    assert "small_cnn, zgo: all 6 runs: missing (not run)" in text


def test_absent_tables_are_a_readable_error(tmp_path):
    with pytest.raises(DiagvibError, match=r"runs\.csv.*run `diagvib tabulate`"):
        write_report(tmp_path, tmp_path, tmp_path / "report.html", SETTINGS)
    assert not (tmp_path / "report.html").exists()


def test_headlines_need_no_study_but_zgo():
    row = {
        "baseline": "m",
        "target": "shape",
        "cue": "hue",
        "group": "ood",
        "stderr": 0.0,
        "n": 1,
        "expected": 1,
    }
    (headline,) = headlines(pd.DataFrame([{**row, "study": "zgo", "mean": 0.5}]))
    assert headline["text"].startswith(
        "When hue gives shape away in training (ZGO), m is right in 50 %"
    )
    assert "instead of" not in headline["text"] and len(headline["bars"]) == 1


def test_the_most_telling_pair_falls_deepest(results):
    bindings = telling_bindings(read_tables(results / "tables")["p_matrix"])
    assert (bindings["target"][0], bindings["cue"][0], bindings["by"][0]) == (
        "shape",
        "position",
        "fgo-20",
    )
    assert (
        bindings["without"][0] == pytest.approx(0.95)
        and bindings["shortcut"][0] < bindings["recovered"][0]
    )


def test_a_study_sheet_shows_what_is_trained_and_what_is_tested(tmp_path):
    chosen = scene_sample("digits", 0).classes
    write_images(tmp_path, "fgo-20", TELLING)
    shares = cell_shares(tmp_path / "train.parquet", TELLING)
    assert shares.sum() == pytest.approx(1) and len(shares) == 9
    tested = ood_cells(tmp_path / "test.parquet", TELLING)
    assert tested == {
        (t, c)
        for i, t in enumerate(chosen["shape"])
        for j, c in enumerate(chosen["position"])
        if i != j
    }
    cell = (chosen["shape"][2], chosen["position"][1])
    image = example_images(tmp_path / "test.parquet", TELLING, {cell})[cell]
    assert (image == [20, 10, 0]).all()
    texts = [
        t.get_text()
        for axes in study_sheet(tmp_path / "train.parquet", tmp_path / "test.parquet", TELLING).axes
        for t in (axes.xaxis.label,)
    ]
    assert sum("tested as ood" in t for t in texts) == 6


def test_heat_maps_and_curves_work_on_partial_grids(results):
    tables = read_tables(results / "tables")
    zgo_only = tables["p_matrix"].query("study == 'zgo'")
    texts = [t.get_text() for t in heat_map(zgo_only, "zgo", "small_cnn").axes[0].texts]
    assert len([t for t in texts if t.startswith("0.")]) == len(BINDINGS)
    assert study_curves(tables["metrics"].query("study == 'zgo'"), "faavg", "cgo") is None


def test_the_colour_scale_is_palest_at_chance_and_text_stays_legible():
    def lightness(colour):
        return sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))

    values = np.linspace(0, 1, 31)
    assert values[np.argmax([lightness(accuracy_colours(v)[0]) for v in values])] == pytest.approx(
        CHANCE, abs=0.02
    )
    assert (
        accuracy_colours(0.0)[1]
        == accuracy_colours(1.0)[1]
        == "#ffffff"
        != accuracy_colours(CHANCE)[1]
    )


def test_chance_is_that_of_the_studys_target_classes():
    """A different number of classes: the scale's pale point, the line in the figures and the words
    change with it."""
    known = KnownStudies((str(REPOSITORY / "tests" / "square_studies.yaml"),))
    assert known.chance("zgo") == CHANCE and known.chance("two-places") == 1 / 4
    assert accuracy_colours(1 / 4, 1 / 4) == accuracy_colours(CHANCE)
    row = {
        "baseline": "own",
        "study": "two-places",
        "target": "corner",
        "cue": "colour",
        "group": "ood",
        "mean": 0.25,
        "stderr": 0.1,
        "n": 2,
        "expected": 2,
    }
    *_, bar = heat_map(pd.DataFrame([row]), "two-places", "own", known).axes
    assert [t.get_text() for t in bar.get_yticklabels()] == ["0", "chance 1/4", "0.5", "1"]
