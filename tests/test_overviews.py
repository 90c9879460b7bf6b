"""Figures over many cells, and example images: what they show is what the tables and sources
say."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagvib.report.examples import example_addresses, factor_sheet, write_examples
from diagvib.report.overviews import (
    asymmetry,
    dominance,
    dominance_table,
    paper_scatter,
    training_curves,
)
from diagvib.report.sheets import shown_classes
from diagvib.results.known_studies import SHIPPED
from diagvib.results.selection import HISTORY
from diagvib.scenes import load_scene
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.studies.binding import Binding


def zgo_runs(accuracies: dict[tuple[str, str], float], samples: int = 3) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "study": "zgo",
                "baseline": "resnet18",
                "target": target,
                "cue": cue,
                "sample": sample,
                "ood_accuracy": value,
            }
            for (target, cue), value in accuracies.items()
            for sample in range(samples)
        ]
    )


def test_a_factor_that_always_wins_has_dominance_one():
    order = {factor: rank for rank, factor in enumerate(FACTORS)}
    runs = zgo_runs(
        {(i, j): float(order[i] < order[j]) for i in FACTORS for j in FACTORS if i != j}
    )
    table = dominance_table(runs, "zgo").set_index("factor")
    assert table["mean"].tolist() == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0])
    assert (
        table.loc[FACTORS[0], "low"] > 0.88
        and table.loc[FACTORS[3], ["low", "high"]].isna().all()
        and set(table["n"]) == {3}
        and set(table["opponents"]) == {5}
    )
    assert dominance(runs, "zgo") is not None


def test_a_missing_run_takes_its_sample_out_of_the_ranking():
    runs = zgo_runs({("hue", "shape"): 0.9, ("shape", "hue"): 0.1})
    runs.loc[0, "ood_accuracy"] = np.nan
    table = dominance_table(runs, "zgo").set_index("factor")
    assert table.loc["hue", "mean"] == pytest.approx(0.9) and table.loc["hue", "n"] == 2
    assert dominance(zgo_runs({("hue", "shape"): 0.9}), "zgo") is None


def test_symmetry_needs_both_ways_of_a_pair():
    row = {"baseline": "m", "study": "zgo", "group": "ood", "n": 2, "stderr": 0.01}
    p = pd.DataFrame(
        [
            {**row, "target": "hue", "cue": "shape", "mean": 0.8},
            {**row, "target": "shape", "cue": "hue", "mean": 0.3},
            {**row, "target": "shape", "cue": "scale", "mean": 0.5},
        ]
    )
    labels = [text.get_text() for text in asymmetry(p, "m", "zgo").axes[0].texts]
    assert labels == ["hue-shape"]
    assert asymmetry(p[p["target"] == "shape"], "m", "zgo") is None


def test_the_scatter_shows_compared_cells_only():
    row = {
        "baseline": "resnet18",
        "metric": "faavg",
        "paper": 0.5,
        "ours": 0.4,
        "uncertainty": 0.05,
    }
    cells = pd.DataFrame(
        [{**row, "verdict": "agrees"}, {**row, "verdict": "differs"}, {**row, "verdict": "not run"}]
    )
    assert "1 agrees, 1 differs, 0 cannot tell" in paper_scatter(cells, ["resnet18"]).axes[
        0
    ].get_title(loc="left")
    assert paper_scatter(cells[cells["verdict"] == "not run"], ["resnet18"]) is None


def test_training_curves_draw_every_run():
    names = {"baseline": "m", "study": "zgo", **dict.fromkeys(HISTORY, 0.5)}
    rows = [
        {**names, "binding": binding, "sample": sample, "epoch": epoch}
        for binding in ("hue-shape", "shape-hue")
        for sample in range(2)
        for epoch in range(1, 4 + sample)
    ]
    figure = training_curves(pd.DataFrame(rows), "m")
    assert "ZGO, 4 runs" in figure.axes[0].get_title(loc="left")
    assert all(len(lines.get_segments()) == 4 for lines in figure.axes[0].collections)
    assert not figure.axes[0].lines, "of a few runs no median"
    many = pd.DataFrame(
        [{**row, "sample": sample} for row in rows for sample in range(row["sample"], 6, 2)]
    )
    assert [line.get_label() for line in training_curves(many, "m").axes[0].lines] == [
        "training",
        "validation",
    ]
    assert training_curves(pd.DataFrame(rows), "another") is None


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The embedded sources, prepared."""
    folder = tmp_path_factory.mktemp("prepared")
    load_scene("digits").prepare(folder, folder, "embedded")
    return folder


def test_every_class_of_every_factor_looks_different_and_is_shown_under_its_name(prepared):
    scene = load_scene("digits")
    (axes,) = factor_sheet(scene, prepared).axes
    sheet, texts = (
        axes.images[0].get_array(),
        [text for text in axes.texts if not text.get_rotation()],
    )
    assert [text.get_text() for text in axes.texts if text.get_rotation()] == list(FACTORS)
    for factor in FACTORS:
        images = list(scene.examples(prepared, [{factor: name} for name in classes(factor)]))
        assert len({image.tobytes() for image in images}) == len(classes(factor)), factor
        for name, image in zip(classes(factor), images, strict=True):
            text, side = texts.pop(0), len(image)
            (middle, above), top = text.get_position(), round(text.get_position()[1] + 0.05 * side)
            left = round(middle - side / 2)
            assert text.get_text() == name and above < top
            assert (sheet[top : top + side, left : left + side] == image).all(), (factor, name)
    assert not texts


def test_the_examples_of_a_binding_are_its_nine_combinations(prepared, tmp_path):
    scene = load_scene("digits")
    shown = {
        "-".join(factors): shown_classes("zgo", Binding(factors), 0, SHIPPED)
        for factors in (("shape", "hue"), ("hue", "shape"))
    }
    write_examples(scene, prepared, shown, tmp_path)
    addresses = example_addresses(tmp_path)
    assert list(addresses) == ["hue-shape", "shape-hue"]
    assert all(address.startswith("data:image/webp;base64,") for address in addresses.values())
    assert max(map(len, addresses.values())) < 40_000
    assert Image.open(tmp_path / "shape-hue.webp").size == (3 * 96, 3 * 96)
    write_examples(scene, prepared, {"shape-hue": shown["shape-hue"]}, tmp_path / "again")
    assert (tmp_path / "again/shape-hue.webp").read_bytes() == (
        tmp_path / "shape-hue.webp"
    ).read_bytes()
