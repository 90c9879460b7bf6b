"""Visualisation sheets: how a run's pictures of test images are shown to people."""

import re
import shutil

import pandas as pd
import pytest

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_metadata, read_table, write_table
from diagvib.report.figures import draw_figures, sheet_binding
from diagvib.report.page import write_report
from diagvib.report.style import save_figure
from diagvib.report.visualisation_sheets import (
    read_visualisations,
    visualisation_sheet,
    visualisations,
)
from diagvib.results.tables import read_tables, tabulate
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.studies.binding import Binding
from synthetic_runs import expected_runs, write_pictures, write_run

BINDING = Binding(("shape", "hue"))
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
    draw_figures(root / "tables", root / "figures", root / "images", {}, runs=root / "runs")
    write_report(root / "tables", root / "figures", root / "report.html", {})
    return root


def made_again(root):
    """Tables, sheets and page, without the figures that have separate tests."""
    tabulate(root / "runs", root / "tables", EXPECTED, {})
    tables = read_tables(root / "tables")
    for name, draw in visualisations(
        tables["runs"], root / "runs", sheet_binding(tables["p_matrix"])
    ):
        save_figure(draw(), root / "figures" / name)
    write_report(root / "tables", root / "figures", root / "report.html", {})
    return root


def sheets(root):
    return {path.stem: path.read_text() for path in (root / "figures" / "exhibits").glob("*.svg")}


def test_a_sheet_says_what_the_classifier_says_and_what_each_number_carries(results):
    rows = read_visualisations(results / "runs/vae/zgo/shape-hue/0/exhibits.parquet", BINDING)
    assert all(picture.shape == (16, 16, 3) for picture in rows["picture"])
    first = classes("shape")[0]
    rows["prediction"] = rows["prediction"].replace({"first": first})
    texts = [
        text.get_text() for text in visualisation_sheet(rows, BINDING, "a title").axes[0].texts
    ]
    assert [text[0] for text in texts if text[0] in "✓✗"] == list("✓✗✗✓")
    assert "z1\n1.5 nats" in texts and "z0\n2.5 nats" in texts and {"-1", "0", "1"} <= set(texts)


def test_of_zso_every_target_and_of_zgo_the_most_telling_pair_is_drawn(results):
    drawn = set(sheets(results))
    zgo = {name for name in drawn if "zgo" in name}
    assert drawn - zgo == {"vae_zso_shape", "vae_zso_hue"} and len(zgo) == 1
    page = (results / "report.html").read_text()
    assert 'id="visualisations"' in page and "vae, ZSO shape" in page
    assert (
        page.count("data:image/webp") >= 3 * 3
        and "data:image/png" not in page.split('id="visualisations"')[1]
    )


def test_a_page_without_visualisations_has_no_such_section(results, tmp_path):
    root = shutil.copytree(results, tmp_path / "root")
    shutil.rmtree(root / "figures/exhibits")
    write_report(root / "tables", root / "figures", root / "report.html", {})
    assert 'id="visualisations"' not in (root / "report.html").read_text().split("<main>")[1]


@pytest.mark.parametrize("damage", ["absent", "truncated", "a picture", "another run's"])
def test_missing_pictures_are_named_and_change_nothing_else(results, tmp_path, damage):
    root = shutil.copytree(results, tmp_path / "root")
    path, before, tables = (
        root / "runs/vae/zso/hue/0/exhibits.parquet",
        sheets(results),
        read_tables(root / "tables"),
    )
    if damage == "absent":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "another run's":
        shutil.copy(root / "runs/vae/zso/shape/0/exhibits.parquet", path)
    else:
        table, metadata = read_table(path), read_metadata(path)
        column = table.schema.names.index("picture")
        write_table(
            path, table.set_column(column, "picture", [[b"RIFF no picture"] * len(table)]), metadata
        )
    after = sheets(made_again(root))
    assert {name for name in before if name not in after or before[name] != after[name]} == {
        "vae_zso_hue"
    }
    assert "pictures missing:" in after["vae_zso_hue"] and str(root) not in after["vae_zso_hue"]
    page = re.sub(r"\s+", " ", (root / "report.html").read_text())
    assert "pictures missing:" in page
    frame = read_tables(root / "tables")["runs"]
    missing = frame[frame["status"] != "ok"]
    if (
        damage == "a picture"
    ):  # the run's numbers are valid; only decoding the picture reveals the damage
        assert not len(missing)
    else:
        assert missing[["baseline", "study", "binding"]].to_numpy().tolist() == [
            ["vae", "zso", "hue"]
        ]
        others = frame[frame["status"] == "ok"].index
        pd.testing.assert_frame_equal(
            frame.loc[others], tables["runs"].loc[others], check_dtype=False
        )
        assert f"vae, zso: hue sample 0: {missing['status'].item()}" in page


def test_a_baseline_without_pictures_has_no_sheet_even_where_its_runs_are_missing(
    results, tmp_path
):
    frame = read_tables(results / "tables")["runs"]
    frame.loc[frame["baseline"] == "small_cnn", "status"] = "missing"
    assert all(
        "small_cnn" not in name for name, _ in visualisations(frame, results / "runs", BINDING)
    )


def test_a_file_of_another_kind_is_refused(results):
    with pytest.raises(DiagvibError, match="lacks column what"):
        read_visualisations(results / "runs/vae/zgo/shape-hue/0/predictions.parquet", BINDING)
    assert set(FACTORS) <= set(
        read_table(results / "runs/vae/zgo/shape-hue/0/exhibits.parquet").schema.names
    )
