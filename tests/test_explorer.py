"""The explorer in a real browser: its counts and the difference of two runs are those of the
predictions, and the address filters."""

import base64
import io
import json
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from browser import in_chromium
from diagvib.cli import app
from diagvib.foundation.files import read_table, write_table
from diagvib.report import explorer
from diagvib.report.explorer import image_data, write_explorer
from diagvib.scenes import load_scene
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.known_studies import SHIPPED
from diagvib.studies.recipes import draw_recipes, write_recipes
from diagvib.studies.study import load_study
from reports import report_data_of
from synthetic_runs import PHOTOS, expected_runs, photo_run, tabulated, write_cells, write_photos

# Of the second dataset sample, there are images of other test images than the runs predicted.
EXPECTED = expected_runs(["one", "two"], ["zgo"], ["shape-hue"], samples=2)


def predict(position: int):
    """Every third image is taken for the next class, or every fourth for the one after that."""
    return lambda cell, image: (
        (cell["target_class"] + (position + 1) * (image % (3 + position) == 0)) % 3
    )


def write_test_images(root, n=4):
    """An image of one colour for each row of the predictions; the colour is its number. Those of
    another dataset are as many, but in another order."""
    predicted = read_table(root / "runs/one/zgo/shape-hue/0/predictions.parquet")
    images = [np.full((n, n, 3), row % 256, np.uint8).tobytes() for row in range(len(predicted))]
    table = predicted.append_column("image", pa.array(images))
    facts = {"image_shape": [n, n, 3]}
    write_table(root / "images/zgo/shape-hue/0/test.parquet", table, facts)
    write_table(
        root / "images/zgo/shape-hue/1/test.parquet", table.take([*range(len(table))][::-1]), facts
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer")
    for position, run in enumerate(EXPECTED):
        write_cells(root / "runs", run, predict(position // 2))
    tabulated(root, EXPECTED, {})
    write_test_images(root)
    report_data = report_data_of(root, {})
    write_explorer(report_data, root / "recipes", root / "explorer")
    return root


def predictions(root, name):
    return read_table(root / f"runs/{name}/zgo/shape-hue/0/predictions.parquet").to_pandas()


def shown(root) -> dict:
    text = (root / "explorer/zgo_shape-hue_0.js").read_text()
    return json.loads(text.removeprefix("loaded(").removesuffix(");\n"))


def test_every_test_image_is_counted_once_in_its_cell(root):
    data = shown(root)
    for name in ("one", "two"):
        subject = predictions(root, name)
        right = subject[subject["prediction"] == subject["shape"]]
        for (row, column), frame in subject.groupby(["shape", "hue"]):
            position = data["columns"].index(f"hue {column}")
            index = data["rows"].index(row) * len(data["columns"]) + position
            counts = data["runs"][name]["counts"][index]
            assert sum(counts) == len(frame)
            assert counts[0] == ((right["shape"] == row) & (right["hue"] == column)).sum()
            assert counts[1] == frame["prediction"].isin(data["points"][index]).sum()


def test_every_thumbnail_is_its_image(root):
    """Every image has one colour, its number; thumbnails are stored with a loss."""
    data = shown(root)
    content = base64.b64decode(data["sprite"].partition(",")[2])
    sprite = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), int)
    side = data["side"]
    for position, number in enumerate(data["numbers"]):
        top, remaining = side * (position // data["across"]), side * (position % data["across"])
        middle = sprite[
            top + side // 4 : top + side // 2, remaining + side // 4 : remaining + side // 2
        ]
        assert abs(middle - number % 256).max() <= 6, number


def test_in_a_published_split_a_cue_points_to_what_was_trained_on(tmp_path):
    """Of 24 landbirds on water, 22 are taken for waterbirds; the rows' weights know no place."""
    run = photo_run("erm")
    right = {("landbird", "land"): 20, ("landbird", "water"): 2, ("waterbird", "water"): 24}
    folder = write_photos(tmp_path / "runs", run, right, images=24)
    tabulated(tmp_path, [run], PHOTOS)
    table = read_table(folder / "predictions.parquet")
    images = table.append_column("image", pa.array([bytes(12)] * len(table)))
    path = tmp_path / "images/waterbirds/bird-place/0/test.parquet"
    write_table(path, images, {"image_shape": [2, 2, 3]})
    write_explorer(report_data_of(tmp_path, PHOTOS), tmp_path / "recipes", tmp_path / "explorer")
    data = json.loads(next((tmp_path / "explorer").glob("*.js")).read_text()[len("loaded(") : -3])
    with_names = [f"{row} {column}" for row in data["rows"] for column in data["columns"]]
    counts = dict(zip(with_names, data["runs"]["erm"]["counts"], strict=True))
    assert counts["landbird place water"] == [2, 22, 0]
    assert counts["landbird place land"] == [20, 0, 4], "wrong, but not as the place says"
    misleading = dict(zip(with_names, data["misleading"], strict=True))
    assert misleading["landbird place water"] == ["place"] and not misleading["landbird place land"]


def test_datasets_whose_names_run_together_have_a_file_each(tmp_path, monkeypatch):
    names = {"a": "b_c-d", "a_b": "c-d"}
    rows = [{"study": study, "binding": binding} for study, binding in names.items()]
    frames = {"runs": pd.DataFrame(rows).assign(sample=0, seed=0, status="ok")}
    report_data = SimpleNamespace(frames=frames, known_studies=SHIPPED, studies=[*names])
    monkeypatch.setattr(
        explorer,
        "dataset_of_runs",
        lambda _, images, runs, maximum: {"runs": {}, "study": runs[0]["study"]},
    )
    write_explorer(report_data, tmp_path, tmp_path / "out")
    written = [path.read_text() for path in (tmp_path / "out").glob("*.js")]
    assert all(any(f'"study":"{name}"' in text for text in written) for name in names)


def test_a_dataset_of_whose_images_there_are_none_is_left_out(root):
    page = (root / "explorer/index.html").read_text()
    assert "1 of 2 datasets with finished runs is here" in page and "zgo_shape-hue_1" not in page


def test_seeds_share_the_images_of_one_dataset(tmp_path):
    by = ["car", "background", "object"]
    cells = [["urban", "urban", "country"], ["country", "urban", "urban"]]
    labels, binding = pd.DataFrame(cells, columns=by), "-".join(by)
    images = [np.full((2, 2, 3), shade, np.uint8).tobytes() for shade in (1, 2)]
    table = pa.Table.from_pandas(labels.assign(image=images))
    write_table(
        tmp_path / "urbancars" / binding / "0/test.parquet", table, {"image_shape": [2, 2, 3]}
    )
    report_data = SimpleNamespace(
        known_studies=SHIPPED, images=tmp_path, prepared=lambda scene: tmp_path
    )
    run = {"study": "urbancars", "binding": binding, "sample": 2}
    assert (image_data(report_data, tmp_path, None, run, np.array([1]), labels)[0] == 2).all()


def test_images_of_other_sources_are_not_shown(tmp_path):
    scene, study, prepared = load_scene("digits"), load_study("zgo"), tmp_path / "prepared"
    scene.make(tmp_path / "raw", prepared, "embedded")
    catalogue, counts = scene.catalogue(prepared), {"train": 9, "val": 9, "id": 9, "ood": 9}
    bound = bind(study, "hue-shape", scene.factors)
    recipes = draw_recipes(study, bound, [dataset_sample(0, scene)], counts, scene, catalogue)
    labels = recipes.to_pandas().query("split == 'test'")[["hue", "shape"]]
    report_data = SimpleNamespace(
        known_studies=SHIPPED,
        images=tmp_path,
        prepared=lambda name: prepared,
        settings={"image_size": 64},
    )
    run = {"study": "zgo", "binding": "hue-shape", "sample": 0}
    facts = {"scene": "digits", "roles": {}, "definition": {}, **run}

    def renderer(name):
        return scene.rendering(prepared, 64, torch.device("cpu"))

    for digest, text in ((catalogue.digest, True), ("of others", False)):
        path = tmp_path / "recipes/zgo/hue-shape.parquet"
        write_recipes(path, recipes, {**facts, "sources_digest": digest})
        result = image_data(report_data, path.parents[1], renderer, run, np.array([0, 3]), labels)
        assert (result is not None) == text


@pytest.mark.integration
@in_chromium
def test_the_address_filters_and_two_runs_differ_where_their_predictions_do(root, chromium):
    single, two = (predictions(root, name)["prediction"] for name in ("one", "two"))
    numbers = shown(root)["numbers"]

    def images(address: str) -> list[int]:
        chromium.run(f"location.hash = '{address}'")
        time.sleep(0.5)
        position = chromium.run(
            "[...document.querySelectorAll('#grid button')].map(b => b.dataset.image)"
        )
        return sorted(numbers[int(i)] for i in position)

    chromium.open(root / "explorer/index.html")
    assert images("a=one") == numbers
    differ = [row for row in numbers if single[row] != two[row]]
    assert images("a=one&b=two&changed=1") == differ and 0 < len(differ) < len(numbers)
    selection = "dispatchEvent(new Event('change', {bubbles: true}))"
    chromium.run(f"var a = document.querySelector('#a'); a.value = 'two'; a.{selection}")
    assert "a=two" in (output := chromium.run("location.hash")) and "b=" not in output
    mistakes = predictions(root, "two").loc[numbers].query("prediction != shape")
    result = images("a=two&show=misled") + images("a=two&show=other")
    assert sorted(result) == [*mistakes.index] and chromium.errors == []
    assert all(url.startswith(("file:", "data:")) for url in chromium.requests)
    left = chromium.run("document.querySelector('#grid button').focus(); location.hash")
    chromium.press("ArrowRight")
    assert chromium.run("location.hash") != left


def test_a_port_in_use_is_named(root, tmp_path):
    (tmp_path / "results").symlink_to(root)
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        result = CliRunner().invoke(app, ["view", str(tmp_path), "--no-browser", "--port", port])
    assert f"--port {port}: Address already in use" in str(result.exception)


def test_view_serves_the_results_on_this_machine_alone(root, tmp_path):
    (tmp_path / "results").symlink_to(root)
    view = [sys.executable, "-m", "diagvib", "view", tmp_path, "--no-browser"]
    with subprocess.Popen(view, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        address = server.stdout.readline().decode().strip()
        with urlopen(address) as answer:
            assert answer.read() == (root / "explorer/index.html").read_bytes()
        server.terminate()
    assert address.startswith("http://127.0.0.1:")
