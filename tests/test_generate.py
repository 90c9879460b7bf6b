"""`diagvib generate`: the paper's prompts, the filter, and a command that is killed and continued."""

import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from filelock import FileLock
from PIL import Image
from typer.testing import CliRunner

from conftest import refused
from diagvib.cli import app
from diagvib.commands.new_photos import look, write
from diagvib.commands.photo_columns import Columns
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path
from diagvib.foundation.validation import read_valid, validated
from diagvib.scenes import load_scene
from diagvib.scenes.photos.generation import (
    FLAGGED,
    NO_KEYWORD,
    OF_BATCH,
    Drawing,
    Generation,
    Models,
    generate,
    has_keyword,
)
from diagvib.settings.resolve import load_config
from tiny_models import WORDS, save_captioner, save_pipeline
from toy import contents

PAPER = read_valid(Generation, definition_path("photos/spawrious/generation.yaml"))
SMALL = {
    "folder": "photos/pets",
    "classes": {"cat": "cat", "dog": "dog"},
    "backgrounds": {"beach": "on a beach", "snow": "in snow", "wood": "in a wood"},
    "template": "a {coat} {class} {background}, {time}",
    "details": {"coat": ["black", "white"], "time": ["at noon"]},
    "photos": 5,
    "keywords": {"cat": ["cat", "a"], "dog": ["dog", "grass"]},
    "batch": 2,
    "size": 16,
    "text_to_image": {"model": "pets:draw"},
    "captioner": {"model": "pets:caption"},
}
# The user's own functions: an image's colour depends on prompt and seed, its caption on the colour.
PETS = """
import hashlib
from PIL import Image

def draw(prompts, seeds):
    digests = [hashlib.sha256(f"{p}{s}".encode()).digest() for p, s in zip(prompts, seeds)]
    return [Image.new("RGB", (20, 20), tuple(digest[:3])) for digest in digests]

def caption(images):
    red = [image.getpixel((0, 0))[0] for image in images]
    return ["A dog, or a\\n  cat." if value > 99 else "two dogs" for value in red]
"""
# `diagvib generate` in a process that is killed when it has written so many photos.
KILLED = """
import os, signal, sys
from diagvib.scenes.photos import generation
from diagvib.cli import main
write, limit = generation._write_photo, int(sys.argv.pop())
def killing(*arguments):
    global limit
    write(*arguments)
    limit -= 1
    if not limit:
        os.kill(os.getpid(), signal.SIGKILL)
generation._write_photo = killing
main()
"""


def test_prompts_are_those_of_the_paper():
    prompts = PAPER.prompts("corgi", "beach")
    assert len(prompts) == 72 and len(set(prompts)) == 60 and PAPER.photos == 72 * 44
    assert len(PAPER.cells) * PAPER.photos == 152_064
    assert prompts[0].startswith(
        "(((one black welsh corgi dog sitting))) playing fetch on a beach with a pier and ocean in "
        "the background, pale sunrise. highly detailed"
    )
    assert (
        prompts[-1].startswith("(((one  welsh corgi dog running))) playing") and "  " in prompts[-1]
    )
    # The folders are those that the scene of the study reads.
    scene = load_scene("dogs").definition
    assert {*PAPER.backgrounds} == {*scene.classes["background"]}
    assert {*PAPER.classes} == {*scene.classes["breed"]}
    paths = {cell.path for cell in PAPER.cells}
    assert {"0/desert/bulldog", "1/beach/labrador"} < paths
    assert [scene.published] == [PAPER.photos] and PAPER.folder == "photos/dogs"


@pytest.mark.parametrize(
    ("caption", "suits"),
    [
        ("a dog sitting on top of a sandy beach", True),
        ("A Dog.", True),
        ("two dogs in the snow", False),
        ("a brown and white cow in a field", False),
        ("", False),
    ],
)
def test_a_caption_needs_the_word(caption, suits):
    assert has_keyword(caption, PAPER.keywords_of("corgi")) == suits


def of_letters(flags: str, captions: str):
    """Models whose next images are flagged and captioned as these letters say, again and again."""
    count = {"image": 0, "caption": 0}

    def following(kind: str, letters: str) -> bool:
        count[kind] += 1
        return letters[(count[kind] - 1) % len(letters)] == "x"

    def draw(prompts, seeds):
        images = [Image.new("RGB", (16, 16), (seed % 256, 0, 0)) for seed in seeds]
        return [Drawing(image, following("image", flags)) for image in images]

    return Models(
        draw, lambda images: ["dog" if following("caption", captions) else "?" for _ in images]
    )


@pytest.mark.parametrize(
    ("reject", "reasons"),
    [
        # Of a prompt's two photos, batches of as many as are missing.
        ("photo", ["", NO_KEYWORD, FLAGGED, "", "", ""]),
        ("batch", [OF_BATCH, NO_KEYWORD, FLAGGED, OF_BATCH, "", "", "", ""]),
    ],
)
def test_the_table_says_why_an_image_is_rejected(tmp_path, reject, reasons):
    settings = SMALL | {"folder": str(tmp_path / "dogs"), "keywords": ["dog"], "reject": reject}
    cell = {"classes": {"dog": "dog"}, "backgrounds": {"snow": "in snow"}, "photos": 4}
    generation = validated(Generation, settings | cell, "toy")
    table = generate(generation, of_letters("..x.....", "x.xxxxxx"))
    assert table["reason"].tolist() == reasons and not table["seed"].duplicated().any()
    assert table["accepted"].tolist() == [not reason for reason in reasons]
    assert pd.read_csv(tmp_path / "dogs.csv")["seed"].tolist() == table["seed"].tolist()
    photos = {str(path.relative_to(tmp_path / "dogs")) for path in tmp_path.rglob("*.png")}
    assert photos == {*table["photo"]} - {""} and len(photos) == 4
    assert generate(generation, Models(None, None)).equals(table)  # no model is asked again


def test_hopeless_prompts_end_with_a_message(tmp_path):
    settings = SMALL | {"folder": str(tmp_path / "dogs"), "keywords": ["dog"], "attempts": 6}
    generation = validated(Generation, settings, "toy")
    with pytest.raises(
        DiagvibError, match="beach/cat: of 6 images of the prompt 'a black cat on a b"
    ):
        generate(generation, of_letters(".", "."))


def run(folder: Path, limit: int = 0) -> subprocess.CompletedProcess:
    arguments = ["-c", KILLED, "generate", "pets.yaml", "--device", "cpu", str(limit)]
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == (-signal.SIGKILL if limit else 0), process.stderr
    return process


def check_killed_twice(top: Path, settings: dict, files: dict[str, str]) -> pd.DataFrame:
    """A folder that is made at once, and one whose process is killed twice, are equal; the table."""
    for name in ("whole", "killed"):
        (top / name).mkdir()
        for path, text in {**files, "pets.yaml": yaml.safe_dump(settings)}.items():
            (top / name / path).write_text(text)
    run(top / "whole")
    run(top / "killed", 7)
    assert not (top / "killed/photos/pets.csv").exists()
    run(top / "killed", 15)
    count = len(list((top / "killed").rglob("*.png")))
    assert 15 < count < 30 and "30 of 30 photos" in run(top / "killed").stdout
    photos, again = (
        contents(top / name / "photos", ".png", ".csv") for name in ("whole", "killed")
    )
    assert len(photos) == 31 and again == photos
    assert len({data for name, data in photos.items() if name.endswith("png")}) == 30
    table = pd.read_csv(top / "killed/photos/pets.csv", keep_default_na=False)
    assert table["accepted"].sum() == 30 < len(table)
    assert (table.groupby(["background", "class_name"])["accepted"].sum() == 5).all()
    return table


def test_a_killed_command_goes_on_to_the_same_photos(tmp_path, monkeypatch):
    table = check_killed_twice(tmp_path, SMALL, {"pets.py": PETS})
    assert {*table["caption"]} == {"A dog, or a cat.", "two dogs"}
    monkeypatch.chdir(tmp_path / "killed")
    # Another definition, or a folder of other files, is refused.
    for change, message in (
        ({"seed": 1}, "with another value of `seed`"),
        ({"folder": "."}, "has files that were not generated"),
    ):
        Path("other.yaml").write_text(yaml.safe_dump(SMALL | change))
        result = CliRunner().invoke(app, ["generate", "other.yaml"])
        assert isinstance(result.exception, DiagvibError) and message in str(result.exception)


def test_a_function_that_was_edited_meanwhile_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pets.yaml").write_text(yaml.safe_dump(SMALL | {"photos": 1}))
    outputs = []
    for pets in (PETS, f"# A comment.\n{PETS}", PETS.replace("> 99", "> 98")):
        Path("pets.py").write_text(pets)
        outputs.append(CliRunner().invoke(app, ["generate", "pets.yaml"]).output)
    said = [output.count("images may differ") for output in outputs]
    assert said == [0, 0, 2] and "photos/pets: begun with pets:draw" in outputs[2]


def test_photos_become_a_benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pets.py").write_text(PETS)
    Path("pets.yaml").write_text(yaml.safe_dump(SMALL | {"folder": "many", "photos": 40}))
    assert CliRunner().invoke(app, ["generate", "pets.yaml"]).exit_code == 0
    columns = Columns(None, "animal", ["ground"], None, None, ["ground", "animal"])
    paths = write(look(Path("many"), None, columns, None), Path())
    scene = load_scene(str(paths["scene"]))
    assert scene.factors == {"animal": ("cat", "dog"), "ground": ("beach", "snow", "wood")}
    assert load_config(paths["configuration"]).bindings == ["animal-ground"]


@pytest.mark.integration
@pytest.mark.skipif(
    not importlib.util.find_spec("diffusers"),
    reason="needs the package diffusers (diagvib[generate])",
)
def test_models_of_diffusers_and_transformers(tmp_path):
    models = {
        "text_to_image": {
            "model": str(save_pipeline(tmp_path / "pipeline")),
            "steps": 2,
            "size": 32,
        },
        "captioner": {"model": str(save_captioner(tmp_path / "captioner")), "tokens": 6},
    }
    models["text_to_image"]["negative"] = "a cow"
    table = check_killed_twice(tmp_path, SMALL | models, {})
    assert {word for caption in table["caption"] for word in caption.split()} <= {*WORDS}
    assert table["caption"].nunique() > 2


def test_a_captioner_of_transformers_judges_images(tmp_path, monkeypatch):
    from diagvib.models.text_to_image import load_models

    captioner = {"model": str(save_captioner(tmp_path / "captioner")), "tokens": 6}
    monkeypatch.chdir(tmp_path)
    Path("pets.py").write_text(PETS)
    generation = validated(Generation, SMALL | {"captioner": captioner}, "toy")
    models = load_models(generation.text_to_image, generation.captioner, torch.device("cpu"))
    table = generate(generation, models)
    assert table["caption"].nunique() > 2 and table["accepted"].sum() == 30 < len(table)
    for row in table.itertuples():
        words = generation.keywords_of(row.class_name)
        assert row.accepted == (not words.isdisjoint(row.caption.split()))


def test_a_folder_that_another_process_fills_has_a_table_of_no_images(tmp_path):
    generation = validated(Generation, SMALL | {"folder": str(tmp_path / "pets")}, "toy")
    with ExitStack() as locks:
        for cell in generation.cells:
            (tmp_path / "pets" / cell.path).mkdir(parents=True)
            locks.enter_context(FileLock(tmp_path / "pets" / cell.path / ".generation.lock"))
        table = generate(generation, None)
    assert table["accepted"].sum() == 0 and table.loc[~table["accepted"], "reason"].empty
    assert [*pd.read_csv(tmp_path / "pets.csv")] == [*table]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"template": "a {class}"}, "template: lacks {background}"),
        ({"template": "{class} {background} {coat} {time} {x}"}, "template: has {x}"),
        ({"template": "{class} {background} {coat} {time} {"}, "template: .* write {{ for a brace"),
        ({"keywords": {"cat": ["cat"]}}, "keywords: must name each class once"),
        ({"keywords": ["dog", "polar bear"]}, "keywords: 'polar bear' is not one word of letters"),
        ({"keywords": {"cat": ["cat"], "dog": ["t-shirt"]}}, "keywords: 't-shirt' is not one word"),
        ({"template": "{class:{zz}} {background}"}, "template: write {class} without a format"),
        ({"template": "{class!r} {background}"}, "template: write {class} without a format"),
        ({"photos": 0}, "photos: must be greater than or equal to 1"),
        ({"captioner": {"model": "nowhere"}}, "nowhere cannot be loaded"),
        ({"captioner": {"model": "pets:paint"}}, "captioner.model: pets:paint cannot be imported"),
    ],
)
def test_bad_definitions(tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("pets.py").write_text(PETS)
    Path("pets.yaml").write_text(yaml.safe_dump(SMALL | change))
    result = CliRunner().invoke(app, ["generate", "pets.yaml"])
    assert isinstance(result.exception, DiagvibError), result.exception
    with refused(message):
        raise result.exception
    assert not Path("photos").exists(), "a record would refuse the corrected definition"
