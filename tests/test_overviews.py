"""Figures over many cells, and example images: what they show is what the tables and sources
say."""

from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from diagvib.foundation.files import write_table
from diagvib.papers.diagvib6.published import read_paper_tables
from diagvib.papers.diagvib6.shortcut import study_notes
from diagvib.report.curves import strength_curves, study_curves
from diagvib.report.epochs import preference_curves, training_curves
from diagvib.report.figures import draw_figure
from diagvib.report.report_data import Figure
from diagvib.report.sheets import factor_sheet, images_at
from diagvib.report.visualisation_sheets import looking_figures
from diagvib.results.cells import RUN_KEYS
from diagvib.results.read_runs import EPOCH_COLUMNS
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.studies.known_studies import SHIPPED
from reports import band_of
from test_gap_figures import STUDY


def curve_rows(cues: int) -> pd.DataFrame:
    """FAAvg of hue in three studies, of which the first has no cue."""
    row = {"baseline": "m", "target": "hue", "metric": "faavg", "mean": 0.6, "stderr": 0.1}
    studies = {"zso": 0, "zgo": cues, "cgo-1": cues}
    rows = [row | {"study": name, "cues": count} for name, count in studies.items()]
    return pd.DataFrame(rows).assign(n=3, expected=3)


def curves_of(rows: pd.DataFrame, beside_paper: bool = False):
    """The figure of FAAvg."""
    return study_curves(rows, "faavg", ["zso", "zgo", "cgo-1"], SHIPPED, beside_paper)


def drawn_curves(cues: int = 5, beside_paper: bool = True):
    """Labels of the lines, and y of the dashed one, that of the paper's resnet18."""
    axes = curves_of(curve_rows(cues), beside_paper).axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    bands = {band.get_label(): band for band in axes.collections}
    return lines, bands


def test_a_panel_says_of_how_many_cues_its_curves_are():
    rows = pd.concat([curve_rows(5), curve_rows(1).assign(baseline="other")], ignore_index=True)
    for part, title in ((rows, "hue (1 or 5 of 5 cues)"), (curve_rows(5), "hue")):
        assert curves_of(part).axes[0].get_title("left") == title
    notes = study_notes(
        rows.query("study == 'zgo'"), pd.DataFrame(columns=[*RUN_KEYS, "status", "reason"]), SHIPPED
    )
    assert notes[0] == "over the configured cues only: hue 1 of 5 (other)"


def test_curves_show_the_range_of_the_papers_nine():
    """Of hue in ZSO, ZGO and CGO-1, as in Tables A2 to A4."""
    lines, bands = drawn_curves()
    hue = read_paper_tables().query("target == 'hue' and metric == 'faavg'")
    resnet = hue[hue["baseline"] == "resnet18"].set_index("study")["paper_mean"]
    studies = ["zso", "zgo", "cgo-1"]
    dashed = lines["paper's resnet18 (reference)"]
    assert list(dashed) == list(resnet[studies]) and dashed[1] == 0.74
    band = bands["paper's nine, range (reference)"].get_paths()[0].vertices
    for position, study in enumerate(studies):
        subject = hue.loc[hue["study"] == study, "paper_mean"]
        heights = band[band[:, 0] == position][:, 1]
        assert (heights.min(), heights.max()) == pytest.approx((subject.min(), subject.max()))
    assert not any("paper" in label for label in drawn_curves(beside_paper=False)[0])


def test_averages_over_fewer_cues_have_no_range_beside_them():
    assert "paper's nine, range (reference)" not in drawn_curves(cues=2)[1], "only ZSO is alike"


def test_a_panel_says_of_how_many_cues_it_is_only_if_the_scene_has_more():
    for rows, study, title in (
        (curve_rows(2), "zgo", "hue (2 of 5 cues)"),
        (
            curve_rows(1)[1:2].assign(study="dogs-o2o-easy", target="breed"),
            "dogs-o2o-easy",
            "breed",
        ),
    ):
        axes = study_curves(rows, "faavg", [study], SHIPPED).axes[0]
        assert "".join(axes.get_title(loc=location) for location in ("left", "center")) == title


@pytest.mark.parametrize("count", [1, 29])
def test_a_legend_takes_no_room_from_the_panels(count):
    rows = pd.concat([curve_rows(5).assign(baseline=f"method {i}") for i in range(count)])
    figure = curves_of(rows)
    figure.get_layout_engine().execute(figure)
    (axes,), (legend,) = figure.axes, figure.legends
    inches = figure.dpi_scale_trans.inverted()
    assert axes.get_window_extent().transformed(inches).height > 1.5
    box, panel = legend.get_window_extent(), axes.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 > panel.y1 - 1


def test_an_axis_keeps_its_name_beside_a_note(tmp_path):
    options = {"target": "shape", "cue": "hue", "counter_examples": [0, 0.1], "baseline": "m"}
    options |= {"mean": 0.5, "low": 0.4, "high": 0.6, "without": 0.9, "half_way": 0.05}
    draw = partial(strength_curves, pd.DataFrame(options), "baseline", ["shape", "hue"], 1 / 3)
    assert draw_figure(Figure("one", "", draw), tmp_path, "A note.")
    text = (tmp_path / "one.svg").read_text()
    assert ">A note.<" in text and ">training images in which the cue misleads, %<" in text


def test_where_networks_look_is_shown_for_what_was_run():
    def wanted(binding, **studies):
        rows = [(study, name) for study, names in studies.items() for name in names]
        runs = pd.DataFrame(rows, columns=["study", "binding"]).assign(baseline="m", folder="f")
        present = {
            "known_studies": SHIPPED,
            "first_runs": runs,
            "studies": [*studies],
            "binding": binding,
        }
        return [(item.name, item.folded) for item in looking_figures(SimpleNamespace(**present))]

    zso = {"zso": ["hue", "shape"]}
    assert wanted("", **zso) == [("looks/zso_hue", False)]
    options = {**zso, "cgo-2": ["shape-hue"]}
    assert wanted("", **options) == [("looks/zso_hue", False), ("looks/cgo-2_shape-hue", True)]
    options["zgo"] = ["hue-shape", "shape-hue"]
    assert wanted("shape-hue", **options) == [
        ("looks/zgo_shape-hue", False),
        ("looks/zso_shape", True),
    ]


def test_training_curves_draw_every_run():
    names = {
        "baseline": "m",
        "study": "zgo",
        **dict.fromkeys(EPOCH_COLUMNS, 0.5),
        "ood_accuracy": 0.1,
    }
    names["val_environment_accuracy"] = 0.2

    def figure(samples: int):
        runs = product(("hue-shape", "shape-hue"), range(samples), range(1, 5))
        rows = pd.DataFrame(runs, columns=["binding", "sample", "epoch"])
        return training_curves(pd.DataFrame(names | {"seed": 0} | dict(rows)), "m", SHIPPED)

    subset = figure(2)
    assert all(len(lines.get_segments()) == 4 for lines in subset.axes[0].collections)
    assert not subset.axes[0].lines, "of a few runs no median"
    assert [line.get_label() for line in figure(6).axes[0].lines] == ["training", "validation"]
    accuracies = [line.get_label() for line in figure(6).axes[1].lines]
    assert accuracies[:3] == ["training", "validation", "test, ood"] and "environment" not in str(
        accuracies
    )


def test_every_class_of_every_factor_is_shown_under_its_name():
    scene = load_scene("digits")
    prepared = cached(scene, "embedded", None)
    (axes,) = factor_sheet("digits", prepared).axes
    names = [text.get_text() for text in axes.texts if not text.get_rotation()]
    assert names == [name for factor in FACTORS for name in classes(factor)]
    for factor, picture in zip(FACTORS, axes.images, strict=True):
        images = scene.examples(prepared, [{factor: name} for name in classes(factor)])
        side, tiles = images.shape[1], np.hsplit(picture.get_array(), len(images))
        edge = (len(tiles[0]) - side) // 2
        for image, tile in zip(images, tiles, strict=True):
            assert (tile[edge : edge + side, edge : edge + side, :3] == image).all(), factor


def test_points_of_fewer_samples_are_hollow_and_missing_ones_crosses():
    rows = curve_rows(5).assign(n=[3, 2, 0], mean=[0.6, 0.7, np.nan])
    axes = curves_of(rows).axes[0]
    dots = [line for line in axes.lines if line.get_linestyle() == "None"]
    hollow, cross = ([item.tolist() for item in line.get_xydata()] for line in dots)
    assert (hollow, cross) == ([[1, 0.7]], [[2, 0]])
    assert dots[0].get_markerfacecolor() == "white" and dots[1].get_marker() == "x"
    assert band_of(axes).max() == pytest.approx(0.8), "one standard error"


def test_the_median_is_of_the_epochs_that_half_of_the_runs_reached():
    rows = pd.DataFrame(
        [
            {"sample": sample, "epoch": epoch, "val_loss": float(sample)}
            for sample in range(5)
            for epoch in range(1, 5 if sample == 4 else 4)
        ]
    ).assign(study="zgo", binding="shape-hue", baseline="m", seed=0)
    (line,) = training_curves(rows, "m", SHIPPED).axes[0].lines
    assert line.get_xydata().tolist() == [[1, 2], [2, 2], [3, 2]]
    shorter = rows[rows["epoch"] < 3].assign(study="zso")
    for axes in training_curves(pd.concat([rows, shorter]), "m", SHIPPED).axes:
        assert axes.get_xlim() == (0.5, 4.5), "the study with the most epochs"


def test_cue_preference_has_the_error_of_samples_and_nothing_where_cues_cannot_be_told():
    """Of two bindings for each sample, whose means are 0.3 and 0.5."""
    rows = pd.DataFrame(
        [(0, "a-b-c", 0.1), (0, "b-a-c", 0.5), (1, "a-b-c", 0.3), (1, "b-a-c", 0.7)],
        columns=["sample", "binding", "val_accuracy"],
    ).assign(
        epoch=1, study=STUDY, baseline="m", seed=0, val_follows_cue_1=0.5, val_follows_cue_2=0.5
    )
    axes = preference_curves(rows, STUDY, SHIPPED).axes[0]
    band = band_of(axes)
    assert (band.min(), band.max()) == pytest.approx((0.3, 0.5))
    equal = {f"val_follows_cue_{position}": rows["val_accuracy"] for position in (1, 2)}
    assert preference_curves(rows.assign(**equal), STUDY, SHIPPED) is None
    # In m2m studies, no class of the cue points to one class of the target.
    assert preference_curves(rows.assign(study="m2m-easy"), "m2m-easy", SHIPPED) is None


def test_images_beyond_the_first_batch_are_those_of_their_rows(tmp_path):
    images = [bytes([row % 256, row // 256, 0]) for row in range(600)]
    facts = {"image_shape": [1, 1, 3]}
    write_table(tmp_path / "a.parquet", pa.table({"image": images}), facts)
    rows = np.array([3, 255, 256, 300, 599])
    result = images_at(tmp_path / "a.parquet", rows)
    assert [int(image[0, 0, 0]) + 256 * int(image[0, 0, 1]) for image in result] == rows.tolist()
