"""Bad input of every kind is refused in one line that names the file, key or row; nothing ends in a
traceback, and nothing is silently accepted."""

import copy
import functools
import json
import operator
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import strategies

from conftest import refused
from diagvib.commands.rates import read_rates
from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import definition_path, parse_yaml
from diagvib.foundation.plug_ins import imported
from diagvib.images.files import read_images
from diagvib.methods.registry import declaration, make_baseline
from diagvib.scenes.digits.scene import read_published_samples
from diagvib.scenes.fetch import read_sources
from diagvib.settings.baselines import complete, load_settings
from diagvib.settings.jobs import read_settings, stage_settings
from diagvib.settings.resolve import load_config
from diagvib.studies.recipes import read_recipes
from diagvib.studies.study import read_study_file
from synthetic_images import write_dataset


def is_refused(call, *arguments, says, file="") -> None:
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
    ("samples", "key=value"),
    ("bindings=shape-hue", ("bindings", "[shape-hue]")),
    ("tuning.study=zgo", ("tuning.study", "binds cues")),
]


@pytest.mark.parametrize(("override", "says"), OVERRIDES)
def test_overrides(override, says):
    is_refused(load_config, None, [override], says=says)


GOOD = {
    "model": "small_cnn",
    "method": "erm",
    "optimiser": {"name": "adam", "lr": 1e-3},
    "batch_size": 4,
    "origin": "a test",
}


def model(name: str, **options) -> dict:
    return {"model": {"name": name, **options}}


def method(name: str, **options) -> dict:
    return {"method": {"name": name, **options}}


def entry(**changes) -> dict:
    """A file of baselines with one, sound but for these changes."""
    return {"x": {**GOOD, **changes}}


TRAIN = {"splits": ["train", "val", "test"], "group": "id", "cells": [[0, 0], [1, 1], [2, 2]]}
OOD = {"splits": ["test"], "group": "ood", "cells": "others"}
ROLES = {"title": "t", "meaning": "m", "roles": {"target": 3, "cue": 3}}


def of_rows(*rows: dict, **options) -> dict:
    return {**ROLES, "rows": list(rows), **options}


def study(*rows: dict, name: str = "x", **options) -> dict:
    """A file of studies with one."""
    return {"title": "t", "studies": {name: of_rows(*rows, **options)}}


PUBLISHED = yaml.safe_load(definition_path("dataset_samples.yaml").read_text())[0]
SOURCE = yaml.safe_load(definition_path("sources.yaml").read_text())["files"][0]
ROW = {"what": "x", "device": "cpu", "images_per_second": 3.0}
TRAINING = stage_settings(load_config(None, ["samples=1"]), "train", "zgo", "resnet18")
# A file that the program reads -> the function that reads it, and a sound content.
DOCUMENTS = {
    "config.yaml": (load_config, yaml.safe_load(definition_path("config.yaml").read_text())),
    "baselines.yaml": (
        lambda path: load_settings("x", [path]),
        entry(**model("m:f", options={"a": 1}), max_epochs=3),
    ),
    "studies.yaml": (
        read_study_file,
        study({**TRAIN, "weight": 0.5}, OOD, bound=["target"]),
    ),
    "dataset_samples.yaml": (read_published_samples, [PUBLISHED]),
    "sources.yaml": (read_sources, {"files": [SOURCE]}),
    "rates.json": (
        lambda path: read_rates("cpu", [path]),
        {
            "kind": "train",
            "device": "cpu",
            "machine": {"cpu": "a", "cores": 4},
            "rows": [ROW],
        },
    ),
    "settings.json": (lambda path: read_settings(path, "train"), TRAINING.plain()),
}
MISTAKES = [
    ("config.yaml", b"\xff\xfe\x00binary", "UTF-8"),
    ("config.yaml", b"samples: 1\nsamples: 2\n", "line 2"),
    ("config.yaml", b"training:\n  max_epochs: 1:30", "line 2: 1:30 has several meanings"),
    (
        "config.yaml",
        b"baselines: [small_cnn, {name: Small_cnn}]",
        "'small_cnn' and 'Small_cnn' differ only in case",
    ),
    ("config.yaml", b"# a comment\n", "is empty"),
    ("config.yaml", b"[" * 5000, "not valid YAML"),
    ("config.yaml", b"studies: &a [*a]", "studies.0"),
    ("baselines.yaml", {"../../../escaped": GOOD}, "escaped"),
    ("baselines.yaml", {"resnet18": GOOD}, ("resnet18", "already taken")),
    ("baselines.yaml", entry(**model("m:f", options={"when": date(2020, 1, 1)})), "2020-01-01"),
    (
        "baselines.yaml",
        entry(**model("small_cnn", weights="IMAGENET1K_V1")),
        ("x.model.weights", "no published weights"),
    ),
    ("baselines.yaml", entry(method="vae"), ("x.model", "builds its own network")),
    ("studies.yaml", study(TRAIN, OOD, name="a/b"), "a/b"),
    ("studies.yaml", study(TRAIN), ("studies.x", "ood")),
    ("studies.yaml", study({**TRAIN, "splits": ["val", "test"]}, OOD), ("studies.x", "train")),
    (
        "studies.yaml",
        study({**TRAIN, "cells": [[0, 0], [1, 1], [2, 3]]}, OOD),
        "studies.x.rows.0.cells.2.1",
    ),
    (
        "studies.yaml",
        study({**TRAIN, "cells": {"cue": 3}}, OOD),
        ("studies.x.rows.0.cells.cue", "only 3 classes"),
    ),
    (
        "studies.yaml",
        study({**TRAIN, "cells": [[0, 0], [1, 1]]}, OOD),
        ("rows.1", "target class 2"),
    ),
    ("studies.yaml", study(TRAIN, {**OOD, "cells": [[0, 0]]}), ("rows.1", "[0, 0]")),
    (
        "studies.yaml",
        study({**TRAIN, "cells": {"queue": "same"}}, OOD),
        ("rows.0.cells", "queue", "cue"),
    ),
    (
        "studies.yaml",
        study({**TRAIN, "cells": [["north", 0]]}, OOD),
        ("rows.0.cells.0.0", "'north'", "an integer is possible"),
    ),
    (
        "studies.yaml",
        study({**TRAIN, "cells": 5}, OOD),
        "rows.0.cells: must be 'others', or must be a mapping of keys to values, or must be a valid list, not 5",
    ),
    (
        "studies.yaml",
        study({**TRAIN, "cells": []}, OOD),
        "cells: must have at least 1 item, not []",
    ),
    (
        "studies.yaml",
        study(TRAIN, OOD, roles={"target": 300, "cue": 300}),
        ("x.roles", "50,000 cells"),
    ),
    (
        "studies.yaml",
        study(TRAIN, OOD) | {"routes": {"r": ["x", "y"]}},
        ("routes.r", "y is not one of the file's studies"),
    ),
    (
        "studies.yaml",
        study(TRAIN, OOD) | {"headline": {"without": "x", "shortcut": "y"}},
        ("headline", "y"),
    ),
    (
        "dataset_samples.yaml",
        [{**PUBLISHED, "hue": ["red", "blue", "pink"]}],
        ("0.hue", "pink"),
    ),
    ("dataset_samples.yaml", [{**PUBLISHED, "added_cue": [0, 2, 1]}], "0.added_cue.0"),
    ("sources.yaml", {"files": [{**SOURCE, "path": "../x"}]}, "files.0.path"),
    ("sources.yaml", {"files": [{**SOURCE, "urls": ["file:///etc/passwd"]}]}, "files.0.urls"),
    ("settings.json", {**TRAINING.plain(), "more": 1}, "unknown key 'more'"),
]


def write(path: Path, content: object) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".json":
        path.write_text(json.dumps(content))
    else:
        path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.parametrize(("name", "content", "says"), MISTAKES)
def test_a_mistake_is_named_with_its_file_and_key(tmp_path, name, content, says):
    path = write(tmp_path / name, content)
    is_refused(DOCUMENTS[name][0], path, says=says, file=path.stem)


MINE = """
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
"""
MODELS = [
    (model("own_model:other_shape"), "logits of shape (2, 5)"),
    (model("small_cnn", options={"widht": 2}), ("small_cnn", "widht")),
    (model("own_model:good", options={"widht": 2}), ("own_model:good", "widht")),
]
OWN_METHOD = """
import diagvib.methods.method
from diagvib.methods.method import Method
class ByCall(type(Method)("Made", (Method,), {})):
    pass
class Logged:
    pass
class Mixed(Logged, Method):
    options = {"rate": {"default": 1.0}}
class Computed(Method):
    supervision = tuple(["cue"])
class Unknown(Method):
    supervision = ("queue",)
class Bare(Method):
    options = {"rate": 1.0}
class Typed(Method):
    options = {"rate": {"type": "numbr", "default": 1.0}}
class Nullable(Method):
    options = {"rate": {"type": ["numbr", "null"], "default": None}}
class Defaulted(Method):
    options = {"rate": {"minimum": 0, "default": -1.0}}
class Bounded(Method):
    options = {"rate": {"minimun": 0, "default": 1.0}}
"""
METHODS = [
    ("broken_model:C", "broken_model.py is not valid Python"),
    ("own_method:ByCall", "own_method:ByCall is no subclass of diagvib.methods.method.Method"),
    ("own_method:Computed", "must be literals"),
    ("own_method:Unknown", "Unknown: supervision.0"),
    ("own_method:Bare", "Bare: options.rate"),
    ("own_method:Typed", "Typed: options.rate.type: unknown value 'numbr'; did you mean number?"),
    ("own_method:Nullable", ("options.rate.type.0", "'numbr'")),
    ("own_method:Defaulted", "Defaulted: options.rate.default: -1.0 is less than the minimum"),
    ("own_method:Bounded", "'options.rate.minimun'; did you mean options.rate.minimum"),
]


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_model.py").write_text(MINE)
    (folder / "own_method.py").write_text(OWN_METHOD)
    (folder / "broken_model.py").write_text("def f(:")
    return folder


def test_a_mixin_may_come_before_method(own_folder, monkeypatch):
    monkeypatch.syspath_prepend(own_folder)
    assert declaration("own_method:Mixed").defaults == {"supervision": "none", "rate": 1.0}


INHERITED = """
import diagvib.methods.method
import diagvib.methods.jtt as twice
from diagvib.methods import group_dro
from . import sibling
from .sibling import Renamed as Base
Alias = twice.Jtt
class Dotted(diagvib.methods.method.Method):
    options = {"rate": {"default": 1.0}}
class ByModule(group_dro.GroupDro): pass
class ByAlias(Alias): pass
class Relative(sibling.Renamed): pass
class RelativeName(Base): pass
class Both(group_dro.GroupDro, twice.Jtt):
    options = {"copies": {"default": 2}}
class Diamond(Dotted, group_dro.GroupDro): pass
"""
GROUPS = {"supervision": "cues", "step_size": 0.01, "balanced": True}
TWICE = {"identify_epochs": 1, "copies": 100, "restart": True}


@pytest.mark.parametrize(
    ("name", "defaults"),
    {
        "own_package.base:Dotted": {"supervision": "none", "rate": 1.0},
        "own_package.base:ByModule": GROUPS,
        "own_package.base:ByAlias": {"supervision": "none", **TWICE},
        "own_package.base:Relative": GROUPS,
        "own_package.base:RelativeName": GROUPS,
        "own_package.base:Both": {**TWICE, **GROUPS, "copies": 2},
        "own_package.base:Diamond": {**GROUPS, "rate": 1.0},
        "own_package:ByModule": GROUPS,
    }.items(),
)
def test_a_method_has_the_options_of_all_its_bases_however_they_are_named(
    tmp_path, monkeypatch, name, defaults
):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package/base.py").write_text(INHERITED)
    (tmp_path / "own_package/__init__.py").write_text("from .base import ByModule")
    (tmp_path / "own_package/sibling.py").write_text(
        "from diagvib.methods.group_dro import GroupDro as Renamed"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert declaration(name).defaults == defaults
    kind = imported(name, "method")
    assert declaration(name).supervision == list(kind.supervision)


RAISING = {
    "raise RuntimeError('no net')": ("(RuntimeError: no net); correct ", "/ending.py, line 1"),
    "import absent_package": ("No module named 'absent_package'); correct ", "/ending.py, line 1"),
    "x = {}\nx['y']": ("(KeyError: no key 'y'); correct ", "/ending.py, line 2"),
    "open('absent.pt')": ("No such file or directory: 'absent.pt'); correct ", "line 1"),
    "def f(:": ("(SyntaxError: ", "; correct ", "/ending.py, line 1"),
    "": ("module 'ending' has no attribute 'f'); correct ", "/beginning.py, line 2"),
}


@pytest.mark.parametrize("text", RAISING)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(tmp_path, monkeypatch, text):
    (tmp_path / "ending.py").write_text(text)
    (tmp_path / "beginning.py").write_text("import ending\nf = ending.f")
    monkeypatch.syspath_prepend(tmp_path)
    says = ("model: beginning:f cannot be imported (", *RAISING[text])
    is_refused(imported, "beginning:f", "model", says=says)


@pytest.mark.parametrize(("changed", "says"), MODELS, ids=lambda value: str(value)[:60])
def test_models(own_folder, monkeypatch, changed, says):
    monkeypatch.syspath_prepend(own_folder)
    is_refused(lambda: make_baseline(complete({**GOOD, **changed}), 5, 64, 0), says=says)


@pytest.mark.parametrize(("name", "says"), METHODS)
def test_methods_of_ones_own(own_folder, tmp_path, monkeypatch, name, says):
    monkeypatch.syspath_prepend(own_folder)
    path = write(tmp_path / "baselines.yaml", entry(method=name))
    is_refused(load_settings, "x", [path], says=says, file="baselines.yaml: x.method")


@pytest.mark.parametrize(
    ("optimiser", "says"),
    [
        (
            {"name": "sdg", "lr": 0.1},
            ("x.optimiser.name", "unknown value 'sdg'; did you mean sgd?"),
        ),
        ({"lr": 0.1}, ("the key x.optimiser.name is missing",)),
    ],
)
def test_optimisers_without_a_known_name(tmp_path, optimiser, says):
    path = write(tmp_path / "baselines.yaml", entry(optimiser=optimiser))
    is_refused(load_settings, "x", [path], says=says, file="baselines.yaml")


def test_a_device_that_looks_like_another_is_not_taken_for_it():
    is_refused(
        load_config, None, ["device=gpu"], says=("device: unknown value 'gpu'", "auto, cpu, cuda")
    )


def test_an_unknown_scene_of_a_users_study_is_named(tmp_path):
    path = write(tmp_path / "own.yaml", study(TRAIN, OOD, scene="digitz"))
    says = ("study x", "unknown scene 'digitz'; did you mean digits")
    is_refused(load_config, None, [f"studies_from=[{path}]", "studies=[x]"], says=says)


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


@pytest.mark.parametrize("name", DOCUMENTS)
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(data=strategies.data())
def test_any_value_is_taken_or_refused_in_one_line(tmp_path_factory, name, data):
    """A value of a sound file becomes anything, or is gone: no traceback, and a refusal names the
    file and the key, or one above or below it."""
    read, sound = DOCUMENTS[name]
    document, junk = copy.deepcopy(sound), data.draw(JUNK)
    *above, last = data.draw(strategies.sampled_from([*places(sound)]))
    place = functools.reduce(operator.getitem, above, document)
    if not above or data.draw(strategies.booleans()):
        place[last] = junk
    else:
        del place[last]
    path = write(tmp_path_factory.mktemp("any") / name, document)
    try:
        read(path)
    except DiagvibError as error:
        text = str(error)
        assert "\n" not in text and len(text) < 1500 and path.stem in text
        assert any(str(key) in text for key in (*above, last)), text


@pytest.fixture
def images(tmp_path) -> Path:
    write_dataset(tmp_path, "zgo", "hue-shape", 0)
    return tmp_path / "0/test.parquet"


@pytest.mark.parametrize("metadata", [None, b"[" * 100000])
def test_metadata_of_another_make(images, metadata):
    table = pq.read_table(images).replace_schema_metadata(metadata and {b"diagvib": metadata})
    pq.write_table(table, images)
    for read in (read_recipes, read_images):
        is_refused(read, images, says="test.parquet")


def test_an_image_that_is_too_short_is_refused(images):
    table = pq.read_table(images)
    column = [b"x", *table["image"].to_pylist()[1:]]
    pq.write_table(table.drop("image").append_column("image", pa.array(column)), images)
    is_refused(read_images, images, says="bytes long", file="test.parquet")


def test_long_messages_and_lists_are_shortened_and_say_so():
    text = one_line("a" * 250 + "\n" + "b" * 250)
    assert len(text) == 300 and text.startswith("aa") and " ... b" in text and text.endswith("bb")
    message = str(unknown_name("study", "none", [f"{n:03d}" for n in range(25)]))
    assert message.endswith("018, 019 and 5 more") and "020" not in message


@pytest.mark.parametrize("value", ["010", "1_000", "12:30:00", "yes", "2001-01-01"])
def test_values_that_yaml_reads_otherwise_are_refused(value):
    with refused(f"line 1: {value} has several meanings"):
        parse_yaml(f"samples: {value}", "a.yaml")
