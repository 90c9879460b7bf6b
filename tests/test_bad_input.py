"""Bad input of every kind is refused in one line that names the file, key or row; nothing ends in a
traceback, and nothing is silently accepted."""

import copy
import functools
import json
import operator
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import strategies

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import read_images
from diagvib.methods.registry import make_baseline
from diagvib.operations.rates import read_rates
from diagvib.reproduction.tabulate import tabulate
from diagvib.results.compare import compare_results, compare_sentence
from diagvib.results.read_runs import read_runs
from diagvib.results.tables import read_tables
from diagvib.scenes.digits.prepare import load_pixels
from diagvib.scenes.digits.scene import read_published_samples
from diagvib.scenes.sources import read_sources
from diagvib.settings.baselines import complete, load_settings, shortened
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout
from diagvib.settings.jobs import Prepare, read_settings, stage_settings
from diagvib.stages import draw
from diagvib.stages import prepare as prepare_stage
from diagvib.studies.recipes import read_recipes
from diagvib.studies.study import read_study_file
from synthetic_images import write_dataset
from synthetic_runs import expected_runs, write_run


def refused(call, *arguments, says, file="") -> None:
    """A call raises a DiagvibError of one line, not too long, with `file` and each text of
    `says`."""
    with pytest.raises(DiagvibError) as error:
        call(*arguments)
    text = str(error.value)
    assert "\n" not in text and len(text) < 1500
    assert file in text
    for part in [says] if isinstance(says, str) else says:
        assert part in text


OVERRIDES = [
    ("studies=[zso", "--set studies=[zso"),
    ("root=a\x00b", "--set"),
    ("samples", "key=value"),
    ("bindings=shape-hue", ("bindings", "[shape-hue]")),
    ("tuning.study=zgo", ("tuning.study", "binds cues")),
    ("root='{study}'", "root"),
    ("tuning.learning_rates=[2e-4]", "with a dot"),
]


@pytest.mark.parametrize(("override", "says"), OVERRIDES)
def test_overrides(override, says):
    refused(load_config, None, [override], says=says)


FILES = [
    (b"\xff\xfe\x00binary", "UTF-8"),
    (b"samples: 1\nsamples: 2\n", "line 2"),
    (b"- samples", "mapping"),
    (b"training:\n  max_epochs: 1:30", "line 2: 1:30 has several meanings"),
    (b"baselines: [small_cnn, {name: Small_cnn}]", "small_cnn and Small_cnn differ only in case"),
    (b"# a comment\n", "is empty"),
    (b"[" * 5000, "not valid YAML"),
    (b"studies: &a [*a]", "studies.0"),
]


@pytest.mark.parametrize(("content", "says"), FILES)
def test_configuration_files(tmp_path, content, says):
    (tmp_path / "own.yaml").write_bytes(content)
    refused(load_config, tmp_path / "own.yaml", says=says, file="own.yaml")


GOOD = {
    "model": "small_cnn",
    "method": "erm",
    "optimiser": {"name": "adam", "lr": 1e-3},
    "batch_size": 4,
    "origin": "a test",
}


def adam(**changes) -> dict:
    return {"optimiser": {"name": "adam", "lr": 1e-3, **changes}}


def model(name: str, **more) -> dict:
    return {"model": {"name": name, **more}}


def method(name: str, **more) -> dict:
    return {"method": {"name": name, **more}}


ENDLESS = []
ENDLESS.append(ENDLESS)
BASELINES = [
    ("../../../escaped", {}, "escaped"),
    ("resnet18", {}, ("resnet18", "already taken")),
    ("x", adam(name="adan"), ("x.optimiser", "adan", "sgd")),
    ("x", {"depends": ["none.csv"]}, ("x.depends", "none.csv: no such file")),
    ("x", model("m:f", options={"when": pd.Timestamp("2020-01-01").date()}), "2020-01-01"),
    ("x", model("m:f", options={"a": ENDLESS}), "x.model.options.a"),
    ("x", model("small_cnn", weights="IMAGENET1K_V1"), ("x.model.weights", "no published weights")),
    ("x", {"method": "vae"}, ("x.model", "builds its own network")),
    ("x", method("group_dro", supervision="cue-0"), ("x.method.supervision", "cue-1")),
]


@pytest.mark.parametrize(("name", "changed", "says"), BASELINES)
def test_baselines(tmp_path, name, changed, says):
    path = tmp_path / "baselines.yaml"
    path.write_text(yaml.safe_dump({name: {**GOOD, **changed}}))
    refused(
        load_settings,
        name,
        [path],
        says=says,
        file="baselines.yaml",
    )


@pytest.mark.parametrize("name", ["Net_2.1-a", "3d", "a" * 64])
def test_usual_names_of_baselines_are_taken(tmp_path, name):
    (tmp_path / "baselines.yaml").write_text(yaml.safe_dump({name: GOOD}))
    settings = load_settings(name, [tmp_path / "baselines.yaml"])
    assert settings == complete(GOOD) and shortened(settings) == GOOD


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"baseline": {}}, "the key baseline.method is missing"),
        ({"more": 1}, "unknown key 'more'"),
        ({"baseline": GOOD | {"origin": "x"}}, "unknown key 'baseline.origin'"),
    ],
)
def test_settings_of_a_training_job(changed, says):
    config = load_config(None, ["samples=1"])
    settings = stage_settings(config, "train", study="zgo", baseline="resnet18")
    assert read_settings(settings.text(), "train") == settings
    text = json.dumps(settings.plain() | changed)
    refused(read_settings, text, "train", says=("--settings", says))


OWN = """
import torch
from torch import nn
class Linear(nn.Module):
    def __init__(self, outputs, size):
        super().__init__()
        self.layer = nn.Linear(3 * size * size, outputs)
    def forward(self, images):
        return self.layer(images.flatten(1))
good = lambda n_classes, image_size, width=1: Linear(n_classes, image_size)
other_shape = lambda n_classes, image_size: Linear(n_classes + 1, image_size)
whole = lambda n_classes, image_size: nn.Sequential(nn.Conv2d(3, n_classes, image_size), nn.Flatten())
"""
MODELS = [
    (model("own_model:other_shape"), "logits of shape (2, 5)"),
    (model("small_cnn", options={"widht": 2}), ("small_cnn", "widht")),
    (model("resnet18") | method("asr", levels=7), "asr"),
    (model("own_model:whole") | {"method": "coral"}, "needs features"),
]
OWN_METHOD = """
import diagvib.methods.method
from diagvib.methods.method import Method
class Good(Method):
    supervision = ("cue", "none")
    options = {"rate": {"type": "number", "default": 1.0}}
class ByModule(diagvib.methods.method.Method):
    pass
class Computed(Method):
    supervision = tuple(["cue"])
class Unknown(Method):
    supervision = ("queue",)
class Bare(Method):
    options = {"rate": 1.0}
"""
METHODS = [
    ("broken_model:C", {}, "broken_model.py is not valid Python"),
    ("own_method:ByModule", {}, "from diagvib.methods.method import Method"),
    ("own_method:Computed", {}, "must be literals"),
    ("own_method:Unknown", {}, "Unknown: supervision.0"),
    ("own_method:Bare", {}, "Bare: options.rate"),
    ("own_method:Good", {"rate": "fast"}, "x.method.rate"),
]


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_model.py").write_text(OWN)
    (folder / "own_method.py").write_text(OWN_METHOD)
    (folder / "broken_model.py").write_text("def f(:")
    return folder


@pytest.mark.parametrize(("changed", "says"), MODELS, ids=lambda value: str(value)[:60])
def test_models(own_folder, monkeypatch, changed, says):
    monkeypatch.syspath_prepend(own_folder)
    refused(lambda: make_baseline(complete({**GOOD, **changed}), 5, 64, 0), says=says)


@pytest.mark.parametrize(("name", "options", "says"), METHODS)
def test_methods_of_ones_own(own_folder, tmp_path, monkeypatch, name, options, says):
    monkeypatch.syspath_prepend(own_folder)
    path = tmp_path / "baselines.yaml"
    path.write_text(yaml.safe_dump({"x": {**GOOD, **method(name, **options)}}))
    refused(
        load_settings,
        "x",
        [path],
        says=says,
        file="baselines.yaml: x.method",
    )


TRAIN = {"splits": ["train", "val", "test"], "group": "id", "cells": [[0, 0], [1, 1], [2, 2]]}
OOD = {"splits": ["test"], "group": "ood", "cells": "others"}
ROLES = {"title": "t", "meaning": "m", "roles": {"target": 3, "cue": 3}}


def of_rows(*rows: dict, **more) -> dict:
    return {**ROLES, "rows": list(rows), **more}


STUDIES = [
    ("a/b", of_rows(TRAIN, OOD), "a/b"),
    ("x", of_rows(TRAIN), ("studies.x", "ood")),
    ("x", of_rows({**TRAIN, "splits": ["val", "test"]}, OOD), ("studies.x", "train")),
    ("x", of_rows({**TRAIN, "cells": [[0, 0], [1, 1], [2, 3]]}, OOD), "studies.x.rows.0.cells.2.1"),
    ("x", of_rows({**TRAIN, "cells": [[0, 0], [1, 1]]}, OOD), ("rows.1", "target class 2")),
    ("x", of_rows(TRAIN, {**OOD, "cells": [[0, 0]]}), ("rows.1", "[0, 0]")),
    ("x", of_rows({**TRAIN, "cells": {"queue": "same"}}, OOD), ("rows.0.cells", "queue", "cue")),
    ("x", of_rows(TRAIN, OOD, roles={"target": 300, "cue": 300}), ("x.roles", "50,000 cells")),
    ("x", of_rows(TRAIN, OOD, metrics="shortcuts"), ("studies.x.metrics", "did you mean shortcut")),
]


def write_studies(path: Path, name: str, definition: object, **more) -> Path:
    path.write_text(
        yaml.safe_dump({"title": "t", "studies": {name: definition}, **more}, sort_keys=False)
    )
    return path


@pytest.mark.parametrize(("name", "definition", "says"), STUDIES)
def test_studies(tmp_path, name, definition, says):
    path = write_studies(tmp_path / "studies.yaml", name, definition)
    refused(read_study_file, path, says=says, file="studies.yaml")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"routes": {"r": ["x", "y"]}}, ("routes.r", "y is not one of the file's studies")),
        ({"headline": {"without": "x", "shortcut": "y"}}, ("headline", "y")),
    ],
)
def test_files_of_studies(tmp_path, more, says):
    path = write_studies(tmp_path / "studies.yaml", "x", of_rows(TRAIN, OOD), **more)
    refused(read_study_file, path, says=says, file="studies.yaml")


@pytest.mark.parametrize(
    ("name", "changed", "overrides", "says"),
    [
        ("zgo", {}, [], ("own.yaml", "studies.zgo", "another study has this name")),
        ("x", {"scene": "digitz"}, [], ("study x", "unknown scene 'digitz'; did you mean digits")),
        (
            "x",
            {"roles": {"target": 3, "cue": 7}},
            ["bindings=[shape-hue]"],
            ("study x", "7 classes, but hue has only 6"),
        ),
        (
            "x",
            {
                "roles": {"target": 11, "cue": 11},
                "rows": [{**TRAIN, "cells": {"cue": "same"}}, OOD],
            },
            [],
            ("none of them fits study x", "target, cue"),
        ),
        (
            "x",
            {"metrics": "accuracy", "rows": [{**TRAIN, "group": "seen"}, {**OOD, "group": "new"}]},
            [],
            ("counts", "the group seen of study x", "counts.seen"),
        ),
    ],
)
def test_studies_of_ones_own_in_a_configuration(tmp_path, name, changed, overrides, says):
    path = write_studies(tmp_path / "own.yaml", name, of_rows(TRAIN, OOD) | changed)
    refused(
        load_config, None, [f"studies_from=[{path}]", f"studies=[{name}]", *overrides], says=says
    )


PUBLISHED = yaml.safe_load(definition_path("dataset_samples.yaml").read_text())[0]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"hue": ["red", "blue", "pink"]}, ("0.hue", "pink")),
        ({"added_cue": [0, 2, 1]}, "0.added_cue.0"),
    ],
)
def test_dataset_samples(tmp_path, changed, says):
    path = tmp_path / "dataset_samples.yaml"
    path.write_text(yaml.safe_dump([{**PUBLISHED, **changed}]))
    refused(read_published_samples, path, says=says, file="dataset_samples.yaml")


@pytest.mark.parametrize(
    ("key", "value"),
    [("path", "../x"), ("urls", ["file:///etc/passwd"])],
)
def test_sources(tmp_path, key, value):
    path = tmp_path / "sources.yaml"
    entry = yaml.safe_load(definition_path("sources.yaml").read_text())["files"][0]
    path.write_text(yaml.safe_dump({"files": [{**entry, key: value}]}))
    refused(read_sources, path, says=("sources.yaml", f"files.0.{key}"))


# Values of wrong types and of any size, as YAML has them.
JUNK = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(10**25), 10**25)
    | strategies.floats()
    | strategies.text(max_size=9),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(strategies.text(max_size=5) | strategies.integers(), inner)
    ),
    max_leaves=4,
)


def places(document: object, path: tuple = ()) -> Iterator[tuple]:
    """The path of every value of a document, such as ("roles", "cue")."""
    inside = document.items() if isinstance(document, dict) else ()
    inside = enumerate(document) if isinstance(document, list) else inside
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


DOCUMENTS = {
    "config.yaml": (load_config, yaml.safe_load(definition_path("config.yaml").read_text())),
    "baselines.yaml": (
        lambda path: load_settings("x", [path]),
        {"x": {**GOOD, **model("m:f", options={"a": 1}), "max_epochs": 3}},
    ),
    "studies.yaml": (
        read_study_file,
        {"title": "t", "studies": {"x": of_rows({**TRAIN, "weight": 0.5}, OOD, bound=["target"])}},
    ),
    "dataset_samples.yaml": (read_published_samples, [PUBLISHED]),
    "sources.yaml": (
        read_sources,
        {"files": yaml.safe_load(definition_path("sources.yaml").read_text())["files"][:1]},
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(data=strategies.data())
def test_any_value_is_taken_or_refused_in_one_line(tmp_path_factory, name, data):
    """A value of a sound file becomes anything: no traceback, and a refusal names the file and the
    key, or one above or below it."""
    read, sound = DOCUMENTS[name]
    document, junk = copy.deepcopy(sound), data.draw(JUNK)
    *above, last = data.draw(strategies.sampled_from([*places(sound)]))
    functools.reduce(operator.getitem, above, document)[last] = junk
    path = tmp_path_factory.mktemp("any") / name
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    try:
        read(path)
    except DiagvibError as error:
        text = str(error)
        assert "\n" not in text and len(text) < 1500 and name in text
        assert any(str(key) in text for key in (*above, last)), text


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Layout:
    """A root with embedded sources, and recipes of one dataset sample."""
    layout = Layout(tmp_path_factory.mktemp("root"))
    prepare_stage(layout, Prepare(sources="embedded"), "digits")
    config = load_config(None, ["samples=1", "counts={train: 9, val: 9, id: 9, ood: 9}"])
    draw(layout, stage_settings(config, "draw", study="zgo"), "zgo", "shape-hue")
    return layout


def rewritten(path: Path, to: Path, **columns) -> Path:
    """A Parquet file with columns replaced by functions of them, its metadata kept."""
    table = pq.read_table(path)
    for name, change in columns.items():
        at = table.column_names.index(name)
        table = (
            table.remove_column(at)
            if change is None
            else table.set_column(at, name, pa.array(change(table[name].to_pylist())))
        )
    pq.write_table(table, to)
    return to


def first(value):
    """Column values with a different one in row 5."""
    return lambda values: [*values[:5], value, *values[6:]]


@pytest.mark.parametrize(
    ("column", "change"), [("hue", None), ("digit", lambda values: [float(v) for v in values])]
)
def test_recipes(prepared, tmp_path, column, change):
    path = rewritten(
        prepared.recipes("zgo", "shape-hue"), tmp_path / "recipes.parquet", **{column: change}
    )
    refused(read_recipes, path, says=("recipes.parquet", "not a recipe file"))


@pytest.mark.parametrize("metadata", [None, b"[]", b"[" * 100000])
def test_metadata_of_another_make(prepared, tmp_path, metadata):
    table = pq.read_table(prepared.recipes("zgo", "shape-hue"))
    pq.write_table(
        table.replace_schema_metadata(metadata and {b"diagvib": metadata}), tmp_path / "x.parquet"
    )
    refused(read_recipes, tmp_path / "x.parquet", says="x.parquet")
    refused(read_images, tmp_path / "x.parquet", says="x.parquet")


@pytest.mark.parametrize("shape", ["x", [10**9, 10**9, 3], [64.0, 64.0, 3]])
def test_images_of_another_shape(tmp_path, shape):
    write_dataset(tmp_path, "zgo", "hue-shape", 0, {"image_shape": shape})
    refused(read_images, tmp_path / "0/test.parquet", says=("test.parquet", "shape"))


@pytest.mark.parametrize(
    ("column", "change", "says"),
    [
        ("image", None, "not an image file"),
        ("image", first(b"x"), "bytes long"),
    ],
)
def test_image_files(tmp_path, column, change, says):
    write_dataset(tmp_path, "zgo", "hue-shape", 0)
    rewritten(tmp_path / "0/test.parquet", tmp_path / "0/test.parquet", **{column: change})
    refused(ImageFiles(tmp_path).load, 0, "test", says=says, file="test.parquet")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sources.json", b"{}"),
        ("digits.parquet", None),
        ("textures/wood.png", b"x"),
    ],
)
def test_prepared_files(prepared, tmp_path, name, content):
    folder = shutil.copytree(prepared.prepared("digits"), tmp_path / "prepared")
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    refused(load_pixels, folder, says=str(folder))


@pytest.mark.parametrize(
    "content",
    [
        '{"kind": "train"}',
        '{"kind": "train", "device": "cpu", "rows": [{"what": "x", "device": "cpu", "images_per_second": 0}]}',
        '{"kind": "train", "device": "cpu", "rows": [{"device": "cpu", "images_per_second": 3}]}',
    ],
)
def test_rates(tmp_path, content):
    (tmp_path / "rates.json").write_text(content)
    refused(read_rates, "cpu", [tmp_path / "rates.json"], says="rates.json")


EXPECTED = expected_runs(["net"], ["zso", "zgo"], ["shape-hue"], 2)


def changed_json(**changes):
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def remade(**columns):
    return lambda path: rewritten(path, path, **columns)


RUNS = [
    ("metrics.json", changed_json(groups={"id": {"accuracy": "x", "n": 60}, "ood": {}})),
    ("run.json", changed_json(seconds={"train": "x"})),
    ("run.json", lambda path: path.write_bytes(b"[" * 100000)),
    ("predictions.parquet", remade(prediction=None)),
    ("predictions.parquet", remade(shape=lambda values: [None] * len(values))),
    ("exhibits.parquet", lambda path: pq.write_table(pa.table({"a": [1]}), path)),
]


@pytest.fixture(scope="module")
def good_runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "runs"
    for run in EXPECTED:
        write_run(folder, run)
    return folder


def test_each_malformed_run_is_a_row_that_names_its_file(good_runs, tmp_path):
    for number, (name, spoil) in enumerate(RUNS):
        runs = shutil.copytree(good_runs, tmp_path / str(number))
        spoil(runs / "net/zgo/shape-hue/1" / name)
        found = read_runs(runs, EXPECTED).frame
        assert list(found["status"]) == ["ok", "ok", "ok", "damaged"], (number, name)
        reason = found["reason"].iloc[-1]
        assert name in reason and "\n" not in reason and len(reason) < 400, (number, reason)


def test_a_damaged_table_is_named(good_runs, tmp_path):
    overrides = ["samples=2", "studies=[zso, zgo]", "bindings=[shape-hue]"]
    settings = stage_settings(load_config(None, overrides), "tabulate").plain()
    tabulate(good_runs, tmp_path, EXPECTED, settings)
    path = tmp_path / "metrics.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    refused(read_tables, tmp_path, says="metrics.parquet")


def test_comparing_folders_of_another_make(good_runs, tmp_path):
    runs = shutil.copytree(good_runs, tmp_path / "runs")
    shutil.move(runs / "net/zgo/shape-hue", runs / "net/zgo/shape-hu")
    assert "B: net, zgo: all 2 runs: damaged" in compare_sentence(compare_results(good_runs, runs))
