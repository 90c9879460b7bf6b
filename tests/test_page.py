"""The page in a real browser: it loads without errors, shows something, and its matrix reacts to
mouse and keyboard."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser import in_chromium
from diagvib.report.matrix import matrix_data
from diagvib.report.report_data import ReportData
from diagvib.report.sheets import example_pictures, shown_classes
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from reports import make_report, report_data_of
from synthetic_runs import accuracy, expected_runs, run_of, tabulated, write_pictures, write_run

pytestmark = [pytest.mark.integration, in_chromium]

EXPECTED = expected_runs(
    ["resnet18", "small_cnn"],
    ["zso", "zgo", "fgo-20"],
    ["shape-hue", "hue-shape", "shape-scale"],
    samples=2,
)
SETTINGS = {"sources": "official", "samples": 2}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    for run in EXPECTED:
        folder = write_run(root / "runs", run)
        if run["baseline"] == "resnet18":
            write_pictures(folder)
    shutil.rmtree(root / "runs/resnet18/zgo/shape-scale")
    tabulated(root, EXPECTED, SETTINGS)
    make_report(root, SETTINGS)
    return root / "report.html"


@pytest.fixture
def opened(chromium, page):
    chromium.open(page, width=1280)
    yield chromium
    assert chromium.errors == []


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


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_loads_without_complaint_or_network_and_fits(
    chromium, page, width, dark, tmp_path
):
    chromium.open(page, width=width, dark=dark)
    assert {address.split(":")[0] for address in chromium.requests} <= {"file", "data"}
    assert sum(address.startswith("file:") for address in chromium.requests) == 1
    assert chromium.run("document.documentElement.scrollWidth <= window.innerWidth")
    chromium.screenshot(tmp_path / "page.png", entire=True)
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("L"), dtype=float)
    assert pixels.shape[0] > 2000 and all(part.std() > 1 for part in np.array_split(pixels, 6))
    assert chromium.errors == []


def test_what_is_pointed_at_or_chosen_is_told(opened):
    choose(opened, "baseline", "small_cnn")
    opened.point_at('#matrix-table [data-target="shape"][data-cue="hue"]')
    text = detail(opened)
    assert "shape, cue hue" in text and "ZGO, small_cnn" in text and percent("zgo", "hue") in text
    assert "2 of 2 dataset samples" in text and "in distribution" in text
    opened.point_at('#matrix-table [data-target="shape"][data-cue="scale"]')
    choose(opened, "baseline", "resnet18")
    assert "missing" in detail(opened) and "sample 0: missing (not run)" in detail(opened)
    choose(opened, "study", "fgo-20")
    assert percent("fgo-20", "scale") in detail(opened) and "FGO-20, resnet18" in detail(opened)
    choose(opened, "study", "zso")
    assert opened.run("document.querySelectorAll('#matrix-table [role=gridcell]').length") == 2


def test_the_matrix_works_with_the_keyboard_alone(opened):
    cell = '#matrix-table [data-target="shape"][data-cue="hue"]'
    opened.run(f"document.querySelector('{cell}').focus()")
    assert "shape, cue hue" in detail(opened)
    for keys, then in (
        (["ArrowRight"], "shape, cue scale"),
        (["ArrowUp"], "hue, cue scale"),
        (["ArrowLeft"] * 9, "hue, no cue (ZSO)"),  # across the diagonal, where there is no cell
    ):
        for key in keys:
            opened.press(key)
        assert then in detail(opened)
    assert opened.run("document.querySelectorAll('#matrix-table [tabindex=\"0\"]').length") == 1
    label = opened.run("document.activeElement.getAttribute('aria-label')")
    assert label.startswith(detail(opened).splitlines()[0])


def test_each_table_says_what_it_shows(opened):
    supervision_ = """[...document.querySelectorAll('.results caption')].map(caption => {
        caption.closest('details')?.setAttribute('open', ''); return caption.checkVisibility(); })"""
    display = opened.run(supervision_)
    assert len(display) > 5 and all(display)


def test_on_paper_every_table_is_open(chromium, page):
    chromium.open(page)
    heights = """[...document.querySelectorAll('details:not([open]) table')].map(
        table => table.checkVisibility({contentVisibilityAuto: true}) && table.offsetHeight)"""
    assert not any(chromium.run(heights))
    chromium.send("Emulation.setEmulatedMedia", media="print")
    assert len(chromium.run(heights)) > 5
    chromium.wait_for(f"{heights}.every(Boolean)")
    chromium.send("Emulation.setEmulatedMedia", media="")


def test_tables_sort_by_a_click_on_their_heads_and_the_papers_rows_stay_below_ours(opened):
    sort = """(() => {
        const table = [...document.querySelectorAll('.results table')].find(t => t.querySelector('.paper'));
        const rows = [...table.tBodies[0].rows];
        table.tHead.rows[0].cells[1].firstElementChild.click();
        return [...table.tBodies[0].rows].map(r => [r.className, r.cells[1].textContent]);
    })()"""
    up, down = opened.run(sort), opened.run(sort)
    for rows in (up, down):
        ours = [float(text.split()[0]) for kind, text in rows if not kind and text[0] != "-"]
        assert ours == sorted(ours, reverse=rows is down)
        assert {rows[position - 1][0] for position, row in enumerate(rows) if row[0]} == {""}


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


def with_five(root: Path) -> ReportData:
    """Of tables of ZGO and the larger study, without runs."""
    (root / "five.yaml").write_text(FIVE)
    # Where `report_data_of` has it.
    shutil.copytree(cached(load_scene("digits"), "embedded", None), root / "prepared")
    settings = {"studies_from": [str(root / "five.yaml")]}
    tabulated(root, [run_of("x", study, "position-hue", 0) for study in ("zgo", "five")], settings)
    return report_data_of(root, settings)


def test_pictures_of_combinations_are_few_and_in_the_matrix(tmp_path, monkeypatch):
    report_data = with_five(tmp_path)
    assert [*example_pictures(report_data)] == [
        "digits-position-hue-3x3",
        "digits-position-hue-5x4",
    ]
    monkeypatch.setattr("diagvib.report.sheets.MOST_CLASSES", 4)
    assert [*example_pictures(report_data)] == ["digits-position-hue-3x3"]
    p = report_data.frames["p_matrix"]
    report_data.frames["p_matrix"] = p[p["study"] == "five"]
    assert example_pictures(report_data) == {}


def test_each_class_of_a_larger_study_is_shown_under_its_name(chromium, tmp_path):
    """Each picture looks most like the example of the cell that its label names."""
    digits, binding = load_scene("digits"), ["position", "hue"]
    report_data = with_five(tmp_path)
    data, names = matrix_data(report_data), report_data.known_studies
    package = Path(matrix_data.__code__.co_filename).parent
    (tmp_path / "page.html").write_text(
        f"<!DOCTYPE html><meta charset=utf-8><style>{(package / 'page.css').read_text()}</style>"
        "<select id=matrix-study><option>five</select><select id=matrix-baseline><option>x</select>"
        "<div id=matrix-blank></div><table id=matrix-table></table><div id=matrix-detail></div>"
        f"<script id=matrix-data type=application/json>{json.dumps(data)}</script>"
        f"<script>{(package / 'matrix.js').read_text()}</script>"
    )
    chromium.open(tmp_path / "page.html", height=2000)
    display = chromium.run("""[...document.querySelectorAll('.examples i')].map(e => {
        const r = e.getBoundingClientRect();
        return [e.title, e.ariaLabel, r.x + 3, r.y + 3, r.right - 3, r.bottom - 3]; })""")
    chromium.screenshot(tmp_path / "page.png")
    screen = Image.open(tmp_path / "page.png").convert("RGB")
    (_, targets), (_, cues) = shown_classes("five", binding, names)
    cells = [{"position": target, "hue": cue} for target in targets for cue in cues]
    examples = [
        like(Image.fromarray(image)) for image in digits.examples(tmp_path / "prepared", cells)
    ]
    assert len(display) == len(cells) == 20 and chromium.errors == []
    for words, label, *box in display:
        result = like(screen.crop(tuple(map(round, box))))
        cell = cells[np.argmin([np.abs(item - result).mean() for item in examples])]
        assert label == f"position {cell['position']}, hue {cell['hue']}: {words}"
    # the training cells are marked, and no others
    assert [words for words, *_ in display].count("never trained, tested as ood") == 15


def like(image: Image.Image) -> np.ndarray:
    """Properties that two pictures of the same thing share."""
    return np.asarray(image.resize((32, 32)), float)
