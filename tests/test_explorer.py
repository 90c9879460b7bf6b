"""The explorer in a real browser: its counts and the difference of two runs are those of the
predictions, and the address filters."""

import base64
import io
import json
import os
import subprocess
import sys
import time
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from browser import Browser, find_browser
from diagvib.foundation.files import read_metadata, read_table, write_table
from diagvib.report.explorer import write_explorer
from diagvib.report.sheets import shown_classes
from diagvib.reproduction.tabulate import tabulate
from diagvib.results.known_studies import SHIPPED
from reports import material_of
from synthetic_runs import expected_runs, write_run

EXPECTED = expected_runs(["one", "two"], ["zgo"], ["shape-hue"], samples=1)


def rewrite(path, shift):
    """Real classes instead of made-up ones; every third prediction is another class by `shift`."""
    table, noted = read_table(path).to_pandas(), read_metadata(path)
    for name, classes in shown_classes("zgo", ["shape", "hue"], SHIPPED):
        numbers = [("first", "second", "third").index(its) for its in table[name]]
        table[name] = [classes[at] for at in numbers]
        if name == "shape":
            names = [("first", "second", "third").index(its) for its in table["prediction"]]
            moved = [(at + shift * (row % 3 == 0)) % 3 for row, at in enumerate(names)]
            table["prediction"] = [classes[at] for at in moved]
    write_table(path, pa.Table.from_pandas(table, preserve_index=False), noted)


def write_test_images(root, n=4):
    """An image of one colour for each row of the predictions; the colour is its number."""
    predicted = read_table(root / "runs/one/zgo/shape-hue/0/predictions.parquet")
    images = [np.full((n, n, 3), row % 256, np.uint8).tobytes() for row in range(len(predicted))]
    table = predicted.append_column("image", pa.array(images))
    facts = {"image_shape": [n, n, 3]}
    write_table(root / "images/zgo/shape-hue/0/test.parquet", table, facts)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer")
    for run in EXPECTED:
        write_run(root / "runs", run)
    tabulate(root / "runs", root / "tables", EXPECTED, {})
    for at, name in enumerate(("one", "two")):
        rewrite(root / f"runs/{name}/zgo/shape-hue/0/predictions.parquet", at)
    write_test_images(root)
    material = material_of(root, {})
    write_explorer(material, root / "recipes", root / "explorer")
    return root


def predictions(root, name):
    return read_table(root / f"runs/{name}/zgo/shape-hue/0/predictions.parquet").to_pandas()


def shown(root) -> dict:
    text = (root / "explorer/zgo_shape-hue_0.js").read_text()
    return json.loads(text.removeprefix("loaded(").removesuffix(");\n"))


def test_every_test_image_is_counted_once_in_its_cell(root):
    data = shown(root)
    for name in ("one", "two"):
        own = predictions(root, name)
        right = own[own["prediction"] == own["shape"]]
        for (row, column), frame in own.groupby(["shape", "hue"]):
            at = data["rows"].index(row) * len(data["columns"]) + data["columns"].index(column)
            counts = data["runs"][name]["counts"][at]
            assert sum(counts) == len(frame)
            assert counts[0] == ((right["shape"] == row) & (right["hue"] == column)).sum()
            assert counts[1] == frame["prediction"].isin(data["points"][at]).sum()


def test_the_counts_are_those_of_the_long_table(root):
    data, cells = shown(root), pd.read_parquet(root / "tables/cells.parquet")
    for name, run in data["runs"].items():
        own = cells[cells["baseline"] == name]
        assert sum(map(sum, run["counts"])) == own["n"].sum()


def test_every_thumbnail_is_its_image(root):
    """Every image has one colour, its number; thumbnails are stored with a loss."""
    data = shown(root)
    content = base64.b64decode(data["sprite"].partition(",")[2])
    sprite = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), int)
    side = data["side"]
    for at, number in enumerate(data["numbers"]):
        top, left = side * (at // data["across"]), side * (at % data["across"])
        middle = sprite[top + side // 4 : top + side // 2, left + side // 4 : left + side // 2]
        assert abs(middle - number % 256).max() <= 6, number


def test_a_second_run_writes_the_same_bytes(root, tmp_path):
    write_explorer(material_of(root, {}), root / "recipes", tmp_path / "explorer")
    for path in (root / "explorer").glob("*.js"):
        assert path.read_bytes() == (tmp_path / "explorer" / path.name).read_bytes()


@pytest.mark.skipif(find_browser() is None or os.name != "posix", reason="no Chromium here")
def test_the_address_filters_and_two_runs_differ_where_their_predictions_do(root, tmp_path):
    one, two = (predictions(root, name)["prediction"] for name in ("one", "two"))
    numbers = shown(root)["numbers"]
    with Browser(find_browser(), tmp_path) as browser:

        def images(address: str) -> list[int]:
            browser.run(f"location.hash = '{address}'")
            time.sleep(0.5)
            at = browser.run(
                "[...document.querySelectorAll('#grid button')].map(b => b.dataset.image)"
            )
            return sorted(numbers[int(i)] for i in at)

        browser.open(root / "explorer/index.html")
        assert images("a=one") == numbers
        differ = [row for row in numbers if one[row] != two[row]]
        assert images("a=one&b=two&changed=1") == differ and 0 < len(differ) < len(numbers)
        wrong = predictions(root, "two").loc[numbers].query("prediction != shape")
        found = images("a=two&show=misled") + images("a=two&show=other")
        assert sorted(found) == [*wrong.index] and browser.errors == []
        assert all(url.startswith(("file:", "data:")) for url in browser.requests)
        first = browser.run("document.querySelector('#grid button').focus(); location.hash")
        browser.press("ArrowRight")
        assert browser.run("location.hash") != first


def test_view_serves_the_results_on_this_machine_alone(root, tmp_path):
    (tmp_path / "results").symlink_to(root)
    view = [sys.executable, "-m", "diagvib", "view", tmp_path, "--no-browser"]
    with subprocess.Popen(view, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        address = server.stdout.readline().decode().strip()
        with urlopen(address) as answer:
            assert answer.read() == (root / "explorer/index.html").read_bytes()
        server.terminate()
    assert address.startswith("http://127.0.0.1:")
