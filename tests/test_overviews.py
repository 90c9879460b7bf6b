"""Figures over many cells, and example images: what they show is what the tables and sources
say."""

import base64
import io
from itertools import product

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagvib.report.epochs import training_curves
from diagvib.report.scatter import paper_scatter
from diagvib.report.sheets import combinations, factor_sheet, shown_classes
from diagvib.results.known_studies import SHIPPED
from diagvib.results.read_runs import NOTED
from diagvib.scenes import load_scene
from diagvib.scenes.digits.factors import FACTORS, classes


def test_the_scatter_shows_compared_cells_only():
    row = {"baseline": "m", "metric": "faavg", "paper": 0.5, "ours": 0.4, "uncertainty": 0.05}
    cells = pd.DataFrame([row | {"verdict": name} for name in ("agrees", "differs", "not run")])
    title = paper_scatter(cells, ["m"]).axes[0].get_title(loc="left")
    assert "1 agrees, 1 differs, 0 cannot tell" in title
    assert paper_scatter(cells[cells["verdict"] == "not run"], ["m"]) is None


def test_training_curves_draw_every_run():
    names = {"baseline": "m", "study": "zgo", **dict.fromkeys(NOTED, 0.5), "ood_accuracy": 0.1}

    def figure(samples: int):
        runs = product(("hue-shape", "shape-hue"), range(samples), range(1, 5))
        rows = pd.DataFrame(runs, columns=["binding", "sample", "epoch"])
        return training_curves(pd.DataFrame(names | dict(rows)), "m", SHIPPED)

    few, many = figure(2), figure(6)
    assert "ZGO, 4 runs" in few.axes[0].get_title(loc="left")
    assert all(len(lines.get_segments()) == 4 for lines in few.axes[0].collections)
    assert not few.axes[0].lines, "of a few runs no median"
    assert "test, ood" in {text.get_text() for text in few.legends[0].texts}
    assert [line.get_label() for line in many.axes[0].lines] == ["training", "validation"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The embedded sources, prepared."""
    folder = tmp_path_factory.mktemp("prepared")
    load_scene("digits").prepare(folder, folder, "embedded")
    return folder


def test_every_class_of_every_factor_looks_different_and_is_shown_under_its_name(prepared):
    scene = load_scene("digits")
    (axes,) = factor_sheet("digits", prepared).axes
    sheet = axes.images[0].get_array()
    texts = [text for text in axes.texts if not text.get_rotation()]
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


def test_the_examples_of_a_binding_are_its_nine_combinations(prepared):
    shown = [
        shown_classes("zgo", factors, SHIPPED) for factors in (["shape", "hue"], ["hue", "shape"])
    ]
    found = combinations("digits", prepared, shown)
    assert list(found) == ["digits-shape-hue-3x3", "digits-hue-shape-3x3"]
    (shape, digits), (hue, colours) = shown[0]
    address, _, content = found["digits-shape-hue-3x3"].partition(",")
    assert address == "data:image/webp;base64" and len(content) < 40_000
    picture = Image.open(io.BytesIO(base64.b64decode(content)))
    assert picture.size == (3 * 96, 3 * 96)
    (image,) = load_scene("digits").examples(prepared, [{shape: digits[2], hue: colours[0]}])
    last = np.asarray(picture.crop((0, 192, 96, 288)), float)
    like = np.asarray(Image.fromarray(image).resize((96, 96)), float)
    assert np.abs(last - like).mean() < 3
