"""The page in a real browser: it loads without errors, shows something, and its matrix reacts to
mouse and keyboard."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from browser import Browser, find_browser
from diagvib.report.examples import example_addresses
from diagvib.report.figures import _draw_examples, draw_figures
from diagvib.report.matrix import matrix_data
from diagvib.report.page import write_report
from diagvib.report.sheets import shown_classes
from diagvib.results.known_studies import KnownStudies
from diagvib.results.tables import tabulate
from diagvib.scenes import load_scene
from diagvib.studies.binding import Binding
from synthetic_runs import accuracy, expected_runs, write_pictures, write_run

pytestmark = pytest.mark.skipif(
    find_browser() is None or os.name != "posix",
    reason="no Chromium here; install it, e.g. apt-get install chromium",
)

BASELINES, STUDIES = ["resnet18", "small_cnn"], ["zso", "zgo", "fgo-20"]
BINDINGS = ["shape-hue", "hue-shape", "shape-scale"]
SETTINGS = {"sources": "official", "samples": 2}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root, expected = (
        tmp_path_factory.mktemp("page"),
        expected_runs(BASELINES, STUDIES, BINDINGS, samples=2),
    )
    for run in expected:
        folder = write_run(root / "runs", run)
        if run["baseline"] == "small_cnn":
            write_pictures(folder)
    shutil.rmtree(root / "runs/resnet18/zgo/shape-scale")
    tabulate(root / "runs", root / "tables", expected, SETTINGS)
    draw_figures(root / "tables", root / "figures", root / "images", SETTINGS, runs=root / "runs")
    write_report(root / "tables", root / "figures", root / "report.html", SETTINGS)
    return root / "report.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Browser(find_browser(), tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(params=[(1280, False), (1280, True), (390, False)], ids=["light", "dark", "phone"])
def opened(request, chromium, page):
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.open(page, width=request.param[0], dark=request.param[1])
    return chromium


def detail(browser) -> str:
    return browser.run("document.getElementById('matrix-detail').innerText")


def choose(browser, control: str, value: str) -> None:
    browser.run(
        f"(() => {{ const e = document.getElementById('matrix-{control}'); e.value = '{value}'; "
        "e.dispatchEvent(new Event('change')); })()"
    )


def percent(study: str, cue: str) -> str:
    run = {"study": study, "target": "shape", "cue": cue}
    return f"{100 * np.mean([accuracy({**run, 'sample': s}, 'ood') for s in range(2)]):.1f} %"


def test_the_page_loads_without_complaint_or_network_and_fits(opened, tmp_path):
    assert opened.errors == []
    assert {address.split(":")[0] for address in opened.requests} <= {"file", "data"}
    assert sum(address.startswith("file:") for address in opened.requests) == 1
    assert opened.run("document.documentElement.scrollWidth <= window.innerWidth")
    opened.screenshot(tmp_path / "page.png", whole=True)
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("L"), dtype=float)
    assert pixels.shape[0] > 2000 and pixels.std() > 10
    assert all(part.std() > 1 for part in np.array_split(pixels, 6))


def test_pointing_at_a_cell_tells_what_it_is(opened):
    choose(opened, "baseline", "small_cnn")
    opened.point_at('#matrix [data-target="shape"][data-cue="hue"]')
    text = detail(opened)
    assert "shape, cue hue" in text and "ZGO, small_cnn" in text and percent("zgo", "hue") in text
    assert "2 of 2 dataset samples" in text and "in distribution" in text and "paper" in text
    opened.point_at('#matrix [data-target="hue"][data-cue="shape"]')
    assert "hue, cue shape" in detail(opened)
    assert opened.errors == []


def test_another_study_and_baseline_show_other_numbers_and_holes(opened):
    opened.point_at('#matrix [data-target="shape"][data-cue="scale"]')
    choose(opened, "baseline", "resnet18")
    choose(opened, "study", "zgo")
    assert "missing" in detail(opened) and "sample 0: missing (not run)" in detail(opened)
    choose(opened, "study", "fgo-20")
    assert percent("fgo-20", "scale") in detail(opened) and "FGO-20, resnet18" in detail(opened)
    choose(opened, "study", "zso")
    assert opened.run("document.querySelectorAll('#matrix [role=gridcell]').length") == 6


def test_the_matrix_works_with_the_keyboard_alone(opened):
    opened.run('document.querySelector(\'#matrix [data-target="shape"][data-cue="hue"]\').focus()')
    assert "shape, cue hue" in detail(opened)
    opened.press("ArrowRight")
    assert "shape, cue lightness" in detail(opened)
    opened.press("ArrowUp")
    assert "scale, cue lightness" in detail(opened)
    opened.press("ArrowRight")  # across the diagonal, where there is no cell
    assert "scale, cue shape" in detail(opened)
    for _ in range(9):
        opened.press("ArrowLeft")
    assert "scale, no cue (ZSO)" in detail(opened)
    assert opened.run("document.querySelectorAll('#matrix [tabindex=\"0\"]').length") == 1
    assert opened.run("document.activeElement.getAttribute('aria-label')").startswith(
        detail(opened).splitlines()[0]
    )


def test_tables_sort_by_a_click_on_their_heads(opened):
    values = "[...document.querySelectorAll('.results')].at(0).tBodies[0].rows.length"
    assert opened.run(values) > 0
    sort = """(() => {
        const tables = [...document.querySelectorAll('.results')];
        const table = tables.find(t => t.tHead.innerText.includes('shape')), heads = [...table.tHead.rows[0].cells];
        const column = heads.findIndex(c => c.innerText.startsWith('shape'));
        heads[column].firstElementChild.click();
        return [...table.tBodies[0].rows].map(r => r.cells[column].dataset.value).filter(v => v !== '').map(Number);
    })()"""
    found = opened.run(sort)
    assert len(found) > 2 and found == sorted(found)
    assert opened.run(sort) == sorted(found, reverse=True)


FIVE = """
title: Five
studies:
  five:
    title: Five
    meaning: five classes of the target, four of the cue
    roles: {target: 5, cue: 4}
    rows:
      - {splits: [train, val, test], group: id, cells: [[0, 0], [1, 1], [2, 2], [3, 3], [4, 0]]}
      - {splits: [test], group: ood, cells: others}
"""


def test_each_class_of_a_larger_study_is_shown_under_its_name(chromium, tmp_path):
    """Each picture looks most like the example of the cell that its label names."""
    (tmp_path / "five.yaml").write_text(FIVE)
    known, digits = KnownStudies((str(tmp_path / "five.yaml"),)), load_scene("digits")
    digits.prepare(tmp_path, tmp_path, "embedded")
    binding = Binding(("position", "hue"))
    _draw_examples(
        "digits",
        tmp_path,
        [shown_classes(study, binding, 0, known) for study in ("zgo", "five")],
        tmp_path / "examples",
    )
    row = {"study": "five", "baseline": "x", "target": "position", "cue": "hue", "group": "ood"}
    p = pd.DataFrame([row | {"mean": 0.5, "stderr": 0.1, "n": 3, "expected": 3}])
    p = pd.concat([p, p.assign(group="id")])
    frames = {"p_matrix": p, "runs": pd.DataFrame({"status": []}), "comparison": pd.DataFrame()}
    data = matrix_data(frames, example_addresses(tmp_path / "examples"), known)
    package = Path(matrix_data.__code__.co_filename).parent
    (tmp_path / "page.html").write_text(
        f"<!DOCTYPE html><meta charset=utf-8><style>{(package / 'page.css').read_text()}</style>"
        "<select id=matrix-study><option>five</select><select id=matrix-baseline><option>x</select>"
        "<table id=matrix></table><div id=matrix-detail></div>"
        f"<script id=matrix-data type=application/json>{json.dumps(data)}</script>"
        f"<script>{(package / 'matrix.js').read_text()}</script>"
    )
    chromium.errors.clear()
    chromium.open(tmp_path / "page.html", height=2000)
    shown = chromium.run("""[...document.querySelectorAll('.examples i')].map(e => {
        const r = e.getBoundingClientRect();
        return [e.title, e.ariaLabel, r.x + 3, r.y + 3, r.right - 3, r.bottom - 3]; })""")
    chromium.screenshot(tmp_path / "page.png")
    screen, cells = Image.open(tmp_path / "page.png").convert("RGB"), {}
    for target in shown_classes("five", binding, 0, known)[0][1]:
        for cue in shown_classes("five", binding, 0, known)[1][1]:
            cells[f"position {target}, hue {cue}"] = {"position": target, "hue": cue}
    examples = list(digits.examples(tmp_path, list(cells.values())))
    assert len(shown) == len(cells) == 20 and chromium.errors == []
    for words, label, *box in shown:
        found = np.asarray(screen.crop(tuple(map(round, box))).resize((32, 32)), float)
        unlike = [
            np.abs(np.asarray(Image.fromarray(each).resize((32, 32)), float) - found).mean()
            for each in examples
        ]
        assert label == f"{list(cells)[int(np.argmin(unlike))]}: {words}"
    # the training cells are marked, and no others
    assert [words for words, *_ in shown].count("never trained, tested as ood") == 15
