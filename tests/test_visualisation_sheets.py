"""Visualisation sheets: how a run's pictures of test images are shown to people."""

import shutil

import pytest

from diagvib.report.visualisation_sheets import (
    read_visualisations,
    visualisation_figures,
    visualisation_sheet,
)
from diagvib.reproduction.tabulate import tabulate
from diagvib.scenes.digits.factors import classes
from reports import drawn_in, make_report
from synthetic_runs import expected_runs, write_pictures, write_run

EXPECTED = expected_runs(
    ["vae", "small_cnn"], ["zso", "zgo"], ["shape-hue", "hue-shape"], samples=1
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for run in EXPECTED:
        folder = write_run(root / "runs", run)
        if run["baseline"] == "vae":
            write_pictures(folder)
    tabulate(root / "runs", root / "tables", EXPECTED, {})
    return root


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr("diagvib.report.figures.KINDS", (visualisation_figures,))


def test_a_sheet_says_what_is_predicted_and_what_each_number_carries(results):
    rows = read_visualisations(results / "runs/vae/zgo/shape-hue/0/exhibits.parquet")
    rows["prediction"] = rows["prediction"].replace({"first": classes("shape")[0]})
    (axes,) = visualisation_sheet(rows, ["shape", "hue"], "a title").axes
    texts = [text.get_text() for text in axes.texts]
    assert [text[0] for text in texts if text[0] in "✓✗"] == list("✓✗✗✓")
    assert "z1\n1.5 nats" in texts and "z0\n2.5 nats" in texts and {"-1", "0", "1"} <= set(texts)


def test_of_zso_every_target_and_of_zgo_the_most_telling_pair_is_drawn(results):
    page = make_report(results, {})
    zgo = {name for name in drawn_in(results) if "zgo" in name}
    zso = {"exhibits/vae_zso_shape", "exhibits/vae_zso_hue"}
    assert drawn_in(results) - zgo == zso and len(zgo) == 1
    _, _, section = page.partition('id="visualisations"')
    assert "vae, ZSO shape" in section
    assert section.count("data:image/webp") >= 3 * 3 and "data:image/png" not in section


def test_a_damaged_run_has_no_sheet_and_is_named(results, tmp_path):
    root = shutil.copytree(results, tmp_path / "root")
    damaged = root / "runs/vae/zso/hue/0/exhibits.parquet"
    shutil.copy(root / "runs/vae/zso/shape/0/exhibits.parquet", damaged)
    shutil.rmtree(root / "runs/vae/zgo")
    tabulate(root / "runs", root / "tables", EXPECTED, {})
    page = make_report(root, {})
    assert drawn_in(root) == {"exhibits/vae_zso_shape"}
    assert "vae, zso: hue sample 0: damaged" in page and "vae, zgo: all 2 runs: missing" in page
