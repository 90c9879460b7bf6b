"""The code of a job: whole modules, found without running them; what decides nothing is left out,
and nothing made by other code passes for this code's."""

import ast
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from conftest import refused
from diagvib.foundation.files import definition_path, read_json, write_json
from diagvib.foundation.imports import code_of, program_digest
from diagvib.foundation.program import program_of
from diagvib.provenance.code import code_digest, git_state, of_encoder, package_versions, stage_code
from diagvib.scenes import load_scene
from diagvib.settings.baselines import load_settings
from diagvib.settings.jobs import stage_settings
from diagvib.settings.resolve import load_config
from toy import git, write

PROGRAM = '''"""What it does."""

import os  # for the folder


class Net:
    """Of two layers."""

    def forward(self, x):
        """x: images."""
        # Twice is enough.
        text = f"""{x}

        # no comment"""
        return (x +
                1), "#", text
'''


def digest(folder: Path, text: str, name: str = "net.py") -> str:
    (folder / name).write_text(text)
    return program_digest(folder / name)


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ('"""What it does."""\n', "", False),
        ("  # for the folder", "", False),
        ("        # Twice is enough.\n", "", False),
        ("\n\n\n", "\n", False),
        ('    """Of two layers."""\n\n', "", False),
        ("1)", "2)", True),
        ("{x}\n\n", "{x}\n", True),
        ("# no comment", "# a comment", True),
        ('    """Of two layers."""\n', '    """Of two layers."""; side = 1\n', True),
    ],
)
def test_what_only_readers_see_does_not_count(tmp_path, old, new, counts):
    assert old in PROGRAM
    changed = digest(tmp_path, PROGRAM.replace(old, new)) != digest(tmp_path, PROGRAM)
    assert changed == counts


def test_what_is_read_of_a_file_is_kept_as_long_as_its_content_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "cache"))
    original = digest(tmp_path, PROGRAM)
    (record,) = (tmp_path / "cache/programs").iterdir()
    write_json(record, read_json(record) | {"digest": "kept"})
    assert digest(tmp_path, PROGRAM, "moved.py") == "kept"
    assert digest(tmp_path, PROGRAM.replace("1)", "2)")) not in ("kept", original)
    record.write_text("{")
    assert digest(tmp_path, PROGRAM, "again.py") == original
    record.write_text('{"digest": "of another version"}')
    assert digest(tmp_path, PROGRAM, "later.py") == original
    (tmp_path / "file").touch()
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "file"))  # where nothing can be kept
    assert digest(tmp_path, PROGRAM, "last.py") == original


# A function of this package, in which only `hidden` is seen nowhere else.
OF_OURS = """
import warnings
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.methods.vae import Vae


class Net(Vae):
    options = {"beta": {"default": 1.0, "description": "How much."}}

    def losses(self, x: int, hidden: str, weight: float = 0.5) -> "Tensor":
        width: int = 3
        parts = [part + hidden for part in x if part > width]

        def scaled(value):
            nonlocal width
            width += value
            return width * parts[0]

        try:
            say(f"{width} parts of {x}")
            warnings.warn("few parts")
            print("part", len(parts))
        except ValueError as error:
            raise DiagvibError(f"no part of {x}") from error
        assert parts, "no parts"
        return scaled(parts[-1], key="width", weight=weight)
"""
EQUAL = {
    "a local variable": [("parts", "pieces"), ("width", "size", 'key="width"'), ("error", "why")],
    "a variable of a comprehension": [
        ("part + hidden for part in x if part", "one + hidden for one in x if one"),
    ],
    "a parameter that nothing else names": [("hidden", "shift"), ("value", "step")],
    "a module": [("methods.vae", "learning.auto"), ("foundation.errors", "base.faults")],
    "messages": [
        ("{width} parts of {x}", "{x} has parts"),
        ("few parts", "too few"),
        ('"part"', '"There are"'),
        ("no part of {x}", "{width}: none of {len(x)}"),
        ("no parts", "empty"),
        ("How much.", "Weight of KL."),
    ],
    "annotations": [(": int = 3", " = 3"), (' -> "Tensor"', ""), ("x: int", "x: float")],
}
ALTERNATIVE = {
    "a number": ("= 3", "= 4"),
    "a default": ("0.5", "0.6"),
    "a default of an option": ("1.0", "2.0"),
    "an operator": ("part + hidden", "part - hidden"),
    "a comparison": ("part > width", "part >= width"),
    "a key": ('key="width"', 'key="size"'),
    "a key of options": ('"beta"', '"gamma"'),
    "a keyword": ("weight=weight", "share=weight"),
    "a parameter with a default": ("weight: float", "share: float"),
    "the order of parameters": ("hidden: str, weight: float = 0.5", "weight: float, hidden=0.5"),
    "which variable": ("width += value", "width += width"),
    "whose variable": ("            nonlocal width\n", ""),
    "what a message calls": ("len(parts)", "parts.pop()"),
    "what a message calls, inside": ("{width} parts", "{parts.pop()} parts"),
    "what is imported": ("import Vae", "import FactorVae as Vae"),
    "what is caught": ("except ValueError", "except KeyError"),
    "a base class": ("Net(Vae)", "Net(Net)"),
}


def of_ours(text: str) -> tuple:
    """What counts of a module of this package, beside the modules that it imports."""
    program = program_of(ast.parse(text), of_ours=True)
    exposed = [name for name in program.parameters if name in program.words]
    return program.text, exposed


@pytest.mark.parametrize("changes", EQUAL.values(), ids=EQUAL)
def test_what_cannot_change_a_number_does_not_count(changes):
    text = OF_OURS
    for old, new, *stays in changes:
        assert old in text
        for retained in stays:
            text = text.replace(retained, retained.upper())
        text = text.replace(old, new)
        for retained in stays:
            text = text.replace(retained.upper(), retained)
    assert text != OF_OURS and of_ours(text) == of_ours(OF_OURS)


@pytest.mark.parametrize(("old", "new"), ALTERNATIVE.values(), ids=ALTERNATIVE)
def test_what_may_change_a_number_counts(old, new):
    assert old in OF_OURS
    assert of_ours(OF_OURS.replace(old, new)) != of_ours(OF_OURS)


def test_the_order_of_statements_counts():
    lines = OF_OURS.splitlines()
    left = lines.index('            say(f"{width} parts of {x}")')
    lines[left : left + 2] = lines[left + 1], lines[left]
    assert of_ours("\n".join(lines)) != of_ours(OF_OURS)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("def f(hidden): return hidden", "hidden", "shift"),  # a setting may name it
        ("def f():\n  a = 1\n  return locals()", "a", "b"),
        ("def f(x):\n  a = 1\n  return x.query('y > @a')", " a", " b"),
        ("def f(x):\n  return Loss('mean')", "mean", "sum"),
        ("def f(x):\n  say('mean')", "mean", "sum"),  # not ours
        ("def f(x):\n  print('mean', file=x)", "mean", "sum"),
        ("def f(x: int): pass", "int", "float"),  # torch.jit reads it
        ("class A:\n  x: int = 1", "int", "float"),
        ("def f():\n  class A:\n    x = 1", "x", "y"),
        ("def f():\n  global a\n  a = 1", "a", "b"),
    ],
)
def test_names_and_texts_that_other_code_may_read_count(tmp_path, text, old, new):
    assert digest(tmp_path, text) != digest(tmp_path, text.replace(old, new))


def test_a_name_of_another_scope_is_no_local_variable(tmp_path):
    """In a function in a class, the names of the class are not seen, but those around it are."""
    text = "def f(k):\n  {0} = k\n  class A:\n    def g(self): return {1}\n  return A"
    local, outside = (digest(tmp_path, text.format("a", name)) for name in ("a", "x"))
    assert local == digest(tmp_path, text.format("b", "b")) != outside


def test_two_modules_in_each_others_place_count(tmp_path, monkeypatch):
    """Digests are of contents; but not if these are exchanged."""
    results = {}
    names = {"a": "left", "b": "right"}
    for kind, files in {"before": names, "swapped": {"a": "right", "b": "left"}}.items():
        modules = {
            f"{name}.py": f"from shared_{source} import number" for name, source in files.items()
        }
        write(tmp_path / kind, {"main.py": "import a, b\n", **modules})
        write(tmp_path / kind, {"shared_left.py": "number = 1", "shared_right.py": "number = 2"})
        monkeypatch.chdir(tmp_path / kind)
        results[kind] = code_of(["main"]).digest
    assert results["before"] != results["swapped"]


@pytest.mark.parametrize("name", ["net.py", "sources.yaml"])
def test_every_byte_counts_of_what_is_no_python(tmp_path, name):
    assert digest(tmp_path, "def (  # one\n", name) != digest(tmp_path, "def (  # two\n", name)


def test_keys_on_which_no_image_depends_count_only_outside_definitions_of_photo_sets(tmp_path):
    path, before = (
        tmp_path / "birds.yaml",
        "table: t.csv\nfactors: {bird: {classes: [gull, wren]}}\n",
    )

    def digests(text: str) -> tuple[str, str, str]:
        path.write_text(text)
        scene = load_scene(str(path)).entries
        return tuple(code_of(entries).digest for entries in (scene, [path], [*scene, path]))

    as_scene, as_file, as_both = digests(before)
    keys = f"folder: elsewhere # moved\n{before}licence: CC0-1.0\ncitation: me\n# a comment\n"
    assert digests(keys)[0] == as_scene
    assert digests(keys)[1] != as_file and digests(keys)[2] != as_both
    assert digests(f"{before}# a comment\n") == (as_scene, as_file, as_both)
    for change in ("watermark: {points_to: gull}\n", "unit: person\n"):
        assert digests(before + change)[0] != as_scene
    assert digests(before.replace("gull, wren", "wren, gull"))[0] != as_scene


FILES = {
    "atelier/__init__.py": "raise SystemExit('must not run')\n",
    "atelier/models.py": (
        "import os\nfrom .layers import Block\nfrom typing import TYPE_CHECKING\nimport yaml, sys\n"
        "if TYPE_CHECKING:\n    import single\nelse:\n    import late\nfrom ...above import x\n"
        "import atelier.open.deep\n"
    ),
    "atelier/layers.py": "def later():\n    import shapes.round as r\n    from . import constants\n",
    "atelier/constants.py": "from atelier import models\nfrom diagvib.methods import vae\n",
    "atelier/unused.py": "",
    "atelier/open/deep.py": "",  # in a folder without __init__.py
    "shapes/round.py": "this is no Python",
    "late.py": "",
    "single.py": "",
}


def test_all_that_is_imported_is_found_without_being_run(tmp_path, monkeypatch):
    monkeypatch.chdir(write(tmp_path, FILES))
    code = code_of(["atelier.models", "absent.module"])
    assert sorted(name for name in code.files if not name.startswith("diagvib.")) == [
        "atelier",
        "atelier.constants",
        "atelier.layers",
        "atelier.models",
        "atelier.open.deep",
        "late",
        "shapes.round",
        "single",
    ]
    assert {"diagvib.methods.vae", "diagvib.methods.method"} < code.files.keys()
    assert {"yaml", "torch"} <= code.packages, "installed packages are only named"


def test_what_pip_put_into_a_folder_of_its_own_is_only_named(tmp_path, monkeypatch):
    """`pip install --target`."""
    write(tmp_path / "libs", {"easel/__init__.py": "", "easel-1.dist-info/RECORD": ""})
    monkeypatch.syspath_prepend(tmp_path / "libs")
    options = {"mine.py": "import easel\nimport easel.legs\nimport paint", "paint.py": ""}
    monkeypatch.chdir(write(tmp_path, {**options, "brush-1.dist-info/RECORD": ""}))
    code = code_of(["mine"])
    assert code.packages == {"easel"} and sorted(code.files) == ["mine", "paint"]


def test_the_place_of_the_code_does_not_count(tmp_path, monkeypatch):
    results = []
    for name in ("one", "two"):
        monkeypatch.chdir(write(tmp_path / name, FILES))
        results.append(
            code_of(["atelier.models", Path("late.py"), Path.cwd() / "single.py"]).digest
        )
    assert results[0] == results[1]
    places = [code_of(load_scene("dogs").entries).digest]
    monkeypatch.chdir(definition_path("").parent)
    assert places == [code_of(load_scene("dogs").entries).digest]


BASELINE = """
tiny: {model: 'nets:make', method: erm, batch_size: 4, origin: test, optimiser: {name: adam, lr: 0.1},
       depends: [table.csv]}
"""


def test_a_file_that_a_baseline_depends_on_counts_and_must_be_there(tmp_path, monkeypatch):
    files = {"nets.py": "import yaml\nmake = 1\n", "table.csv": "1\n", "mine.yaml": BASELINE}
    monkeypatch.chdir(write(tmp_path, files))
    overrides = ["baselines_from=[mine.yaml]", "baselines=[tiny]"]
    results = []
    for content in ("1\n", "2\n"):
        Path("table.csv").write_text(content)
        (subject,) = load_config(overrides=overrides).baselines
        results.append(code_digest(subject.settings, "diagvib.training.run", "digits", "render"))
    assert results[0] != results[1]
    assert package_versions(subject.settings)["yaml"] == yaml.__version__
    job = stage_settings(load_config(overrides=overrides), "train", "zgo", "tiny")
    assert job.baseline.depends == subject.settings["depends"]
    Path("table.csv").unlink()
    Path("mine.yaml").write_text(BASELINE + "# read again\n")
    with refused("mine.yaml: tiny.depends: table.csv: no such file$"):
        load_config(overrides=overrides)


def test_features_of_a_network_count_the_files_that_it_depends_on(tmp_path, monkeypatch):
    frozen = BASELINE.replace("'nets:make'", "{name: 'nets:make', frozen: true}")
    files = {"nets.py": "make = 1\n", "table.csv": "1\n", "mine.yaml": frozen}
    monkeypatch.chdir(write(tmp_path, files))
    config = load_config(overrides=["baselines_from=[mine.yaml]", "baselines=[tiny]"])
    job = stage_settings(config, "encode", "zgo", "tiny")
    assert job.network == config.baselines[0].network
    assert "table.csv" in stage_code(config, "encode", None, "zgo", "tiny").files
    results = []
    for content in ("1\n", "2\n"):
        Path("table.csv").write_text(content)
        encoder = of_encoder(job.plain()["encoder"])
        results.append(code_digest(encoder, "diagvib.training.encode", "digits", "render"))
    assert results[0] != results[1]


def test_a_published_head_counts_the_code_of_its_network(tmp_path, monkeypatch):
    monkeypatch.chdir(write(tmp_path, {"nets.py": "make = 1\n"}))
    result = {"linear": set(), "published": set()}
    for content in ("make = 1\n", "make = 2\n"):
        Path("nets.py").write_text(content)
        for head, digests in result.items():
            model = {"name": "nets:make", "frozen": True, "head": head}
            settings = {"model": model, "method": {"name": "erm"}}
            digests.add(code_digest(settings, "diagvib.training.run", "digits", "parquet"))
    assert {head: len(digests) for head, digests in result.items()} == {"linear": 1, "published": 2}


def test_training_depends_on_the_scene_only_if_it_renders():
    config, renderer = load_config(), "diagvib.scenes.digits.renderer"
    rendering = config.model_copy(update={"images": "render"})
    for stage in ("train", "tune"):
        names = stage, None, "zgo", "resnet18"
        assert renderer not in stage_code(config, *names).files
        assert renderer in stage_code(rendering, *names).files


def test_only_a_run_that_renders_is_made_again_if_the_renderer_changes():
    settings, stage = load_settings("small_cnn"), "diagvib.training.run"
    assert len({code_digest(settings, stage, "digits", way) for way in ("render", "parquet")}) == 2
    assert len({code_digest(settings, stage, scene, "render") for scene in ("digits", "dogs")}) == 2


def test_features_count_the_code_of_their_views_and_of_what_renders_their_images():
    def code(images="parquet", **model):
        encoder = {"model": {"name": "small_cnn", **model}, "normalise": None}
        return code_digest(of_encoder(encoder), "diagvib.training.encode", "digits", images)

    rendered, mixed = code("render"), code(views=["augmix.1"])
    assert len({code(), code(views=["cue.1"]), rendered, mixed}) == 3
    assert rendered == code(views=["watermark"]) == code(input={"resize": 64})


def test_a_definition_that_code_reads_counts():
    files = code_of(load_scene("digits").entries).files
    assert definition_path("dataset_samples.yaml") in files.values()


def test_the_version_of_a_networks_runtime_is_noted():
    model = {"name": "small_cnn", "frozen": True, "runtime": "onnxruntime"}
    versions = package_versions({"model": model, "method": {"name": "erm"}})
    assert versions["onnxruntime"] == version("onnxruntime")
    del model["runtime"]
    assert "onnxruntime" not in package_versions({"model": model, "method": {"name": "erm"}})


def test_a_new_set_of_metrics_leaves_runs_as_they_are():
    files = stage_code(load_config(), "train", None, "zgo", "resnet18").files
    assert "diagvib.studies.study" in files and "diagvib.studies.metric_needs" not in files


def test_git_state_tells_a_change(tmp_path, monkeypatch):
    monkeypatch.setattr("diagvib.provenance.code.checkout_path", lambda name: tmp_path / name)
    write(tmp_path, {"src/a.py": "", "config/a.yaml": ""})
    assert git_state() is None, "a copy is no checkout"
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "One")
    write(tmp_path, {"results/new.json": "{}"})
    assert len(git_state()["commit"]) == 40 and not git_state()["changed"], "results are no code"
    write(tmp_path, {"src/a.py": "changed = 1"})
    assert git_state()["changed"]
