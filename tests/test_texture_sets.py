"""Photos of surfaces of one's own as classes of texture: in every stage, and named where they cannot
be."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image

import diagvib
from conftest import REPOSITORY, refused
from diagvib.commands.export import export
from diagvib.foundation.files import definition_path, file_sha256, read_json, read_metadata
from diagvib.foundation.validation import validated
from diagvib.library.loading import TexturePaths
from diagvib.scenes import has_textures, load_scene
from diagvib.scenes.digits.embedded import embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.prepare import load_pixels
from diagvib.scenes.digits.textures import read_texture
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from synthetic_sources import surface
from toy import run_here

NAMES = ("moss", "Slate 2", "sand", "felt")
CONFIG = """
root: out
sources: embedded
textures: [published, surfaces]
studies: [zso, zgo]
bindings: [texture-hue]
samples: 2
counts: {train: 64, val: 18, id: 18, ood: 18}
image_size: 64
baselines: [small_cnn]
training: {max_epochs: 1}
"""
SMALL = {"train": 36, "val": 18, "id": 18, "ood": 18}


def photos(folder: Path, names=NAMES) -> Path:
    """A photo of each kind: 8 and 16 bits, grey and colour."""
    folder.mkdir()
    for seed, name in enumerate(names):
        grey = surface(seed)
        if seed % 3 == 0:
            Image.fromarray(np.stack([grey] * 3, 2)).save(folder / f"{name}.jpg", quality=95)
        elif seed % 3 == 1:
            Image.fromarray(grey.astype(np.uint16) * 257).save(folder / f"{name}.png")
        else:
            Image.fromarray(grey).save(folder / f"{name}.PNG")
    return folder


@pytest.fixture
def texture_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "surfaces")
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Every stage with the published textures and four more; and an export."""
    folder = tmp_path_factory.mktemp("textures")
    photos(folder / "surfaces")
    (folder / "surfaces/notes.txt").write_text("from the garden")
    (folder / "mine.yaml").write_text(CONFIG)
    layout = run_here(folder / "mine.yaml", root=folder / "out", report=True)
    config = load_config(folder / "mine.yaml", [f"root={folder / 'out'}"])
    export(config, folder / "card")
    return folder, config, layout


def test_every_stage_has_the_textures(finished):
    folder, config, layout = finished
    (name,) = config.scenes
    every_class = (*classes("texture"), "Slate 2", "felt", "moss", "sand")
    assert load_scene(name).factors["texture"] == every_class
    prepared, description = layout.prepared(name), read_json(layout.prepared(name) / "sources.json")
    assert prepared.name == "digits+published+surfaces"
    assert description["sources"] == "embedded (textures: Slate 2, felt, moss, sand)"
    pixels = dict(zip(every_class, load_pixels(prepared, every_class)[1], strict=True))
    assert (pixels["lava"] == embedded_texture("lava")).all()
    for photo in (path for path in (folder / "surfaces").iterdir() if path.suffix != ".txt"):
        assert (pixels[photo.stem] == read_texture(photo)).all()
    recorded = read_metadata(layout.recipes("zgo", "texture-hue"))
    texture_sets = [set(sample["classes"]["texture"]) for sample in recorded["dataset_samples"]]
    for sample, names in enumerate(texture_sets):
        images = pd.read_parquet(layout.images("zgo", "texture-hue") / f"{sample}/train.parquet")
        assert set(images["texture"]) == names and len(names) == 3
    runs = pd.read_csv(layout.tables / "runs.csv")
    assert set(runs["status"]) == {"ok"} and not runs["comparable"].any()
    assert "not comparable to the paper" in layout.report.read_text()
    explorer = "".join(path.read_text() for path in layout.explorer.glob("*.js"))
    assert all(f'"{name}"' in explorer for name in set.union(*texture_sets))


def test_the_data_card_names_them_and_their_licence(finished):
    card = (finished[0] / "card/README.md").read_text()
    assert "tiles, wood, carpet, bricks, lava, Slate 2, felt, moss, sand" in card
    assert "- unknown: textures Slate 2, felt, moss, sand: photos of whoever made" in card
    assert "with textures of whoever made this dataset, which are not those of the" in card


def test_they_replace_the_published_ones(texture_folder):
    options = {"sources": "embedded", "image_size": 64, "counts": SMALL}
    datasets = [
        diagvib.load("zgo", "texture-hue", "train", sample, textures=["surfaces"], **options)
        for sample in (0, 1, 7)
    ]
    names = [set(dataset.table["texture"].to_pylist()) for dataset in datasets]
    assert all(len(used) == 3 and used < set(NAMES) for used in names)
    paper = diagvib.load("zgo", "texture-hue", "train", 0, **options)
    factors = "hue", "lightness", "scale", "shape", "position"
    for factor in factors:  # these stay those of the published sample
        assert set(datasets[0].table[factor].to_pylist()) == set(paper.table[factor].to_pylist())
    assert not datasets[0].comparable


def test_a_folder_is_the_same_however_it_is_written(texture_folder):
    (texture_folder / "mine.yaml").write_text(CONFIG)
    for text in ("surfaces", "./surfaces", "surfaces/", "lab/../surfaces"):
        config = load_config("mine.yaml", [f"textures=[published, {text}]"])
        assert config.scenes == ["digits+published+surfaces"], text
    assert validated(TexturePaths, Path("surfaces"), "") == ["surfaces"]
    assert validated(TexturePaths, ["./surfaces/"], "") == ["surfaces"]
    with refused("textures: surfaces is listed twice"):
        load_config("mine.yaml", ["textures=[surfaces, ./surfaces/]"])


def test_the_default_is_as_it_was():
    config = load_config()
    assert config.scenes == ["digits"] and not has_textures("digits")
    for stage in ("tabulate", "plot"):
        assert "textures" not in stage_settings(config, stage).plain()
    assert "textures" not in config.model_dump(mode="json")
    again = load_config(None, ["textures=[published]"])
    assert again == config


def test_a_changed_photo_is_fetched_again_and_a_note_is_not(texture_folder):
    scene = load_scene("digits+surfaces")
    before = scene.state(None)
    (texture_folder / "surfaces/.hidden.png").write_bytes(b"")
    assert load_scene("digits+surfaces").state(None) == before
    Image.fromarray(surface(99)).save(texture_folder / "surfaces/sand.PNG")
    assert load_scene("digits+surfaces").state(None) != before
    (texture_folder / "surfaces/felt.jpg").rename(texture_folder / "surfaces/wool.jpg")
    assert "wool" in load_scene("digits+surfaces").factors["texture"]


def test_a_texture_that_is_gone_leaves_no_file(texture_folder):
    for _ in range(2):
        scene = load_scene("digits+surfaces")
        scene.fetched(texture_folder / "raw", "embedded", None)
        scene.make(texture_folder / "raw", texture_folder / "prepared", "embedded")
        expected = {f"{name}.png" for name in scene.factors["texture"]}
        assert {path.name for path in (texture_folder / "prepared/textures").iterdir()} == expected
        (texture_folder / "surfaces/moss.jpg").unlink(missing_ok=True)


def test_a_texture_of_few_levels_is_read_as_it_was_prepared(texture_folder):
    photo = texture_folder / "surfaces/oak.png"
    Image.fromarray(surface(9, (256, 256)) // 16 * 16).save(photo)
    scene, prepared = load_scene("digits+surfaces"), texture_folder / "prepared"
    scene.fetched(texture_folder / "raw", "embedded", None)
    scene.make(texture_folder / "raw", prepared, "embedded")
    names = scene.factors["texture"]
    oak = load_pixels(prepared, names)[1][names.index("oak")]
    assert (oak == read_texture(photo)).all()


def _listed(path: Path) -> str:
    """The name of a file as in lists, which are for downloads."""
    return path.name.lower().replace(" ", "-")


def test_a_list_names_hashes_and_licences(texture_folder):
    entries = [
        {
            "path": f"stones/{_listed(path)}",
            "urls": ["http://127.0.0.1:9/closed"],
            "licence": "CC-BY-4.0",
            "sha256": file_sha256(path),
            "citation": "A. Mason",
        }
        for path in sorted((texture_folder / "surfaces").iterdir())
    ]
    (texture_folder / "stones.yaml").write_text(yaml.safe_dump({"files": entries}))
    mirror = texture_folder / "mirror/stones"
    shutil.copytree(texture_folder / "surfaces", mirror)
    for path in mirror.iterdir():
        path.rename(mirror / _listed(path))
    options = {
        "sources": "embedded",
        "mirror": texture_folder / "mirror",
        "counts": SMALL,
        "image_size": 64,
    }
    dataset = diagvib.load("zgo", "texture-hue", "train", textures=["stones.yaml"], **options)
    assert set(dataset.table["texture"].to_pylist()) < {"felt", "moss", "sand", "slate-2"}
    licences = load_scene("digits+stones.yaml").licences("embedded")
    assert [licence for licence, _ in licences] == ["CC-BY-4.0", "CC-BY-4.0"]  # and of the digits
    assert ("CC-BY-4.0", "A. Mason") in licences
    mirror.joinpath("felt.jpg").write_bytes(b"another")
    with refused(r"felt\.jpg: has sha256 .*, expected"):
        load_scene("digits+stones.yaml").fetched(
            texture_folder / "raw", "embedded", texture_folder / "mirror"
        )


def test_of_the_official_sources_only_the_used_textures_are_fetched(texture_folder):
    paths = {name: [] for name in ("digits", "digits+published+surfaces", "digits+surfaces")}
    for name, listed in paths.items():
        listed += load_scene(name).raw_files("official")
    mnist = [path for path in paths["digits"] if path.startswith("mnist/")]
    folder_paths = [
        f"textures/{path.name}" for path in sorted((texture_folder / "surfaces").iterdir())
    ]
    assert paths["digits+surfaces"] == [*mnist, *folder_paths] and len(mnist) == 4
    assert paths["digits+published+surfaces"] == [*paths["digits"], *folder_paths]


def _write(name: str, array: np.ndarray):
    return lambda folder: Image.fromarray(array).save(folder / name)


WRONG_NAMES = {
    "_x.png: '_x' cannot be the name of a class; rename": _write("_x.png", surface(9)),
    "7.png: '7' cannot be the name of a class": _write("7.png", surface(9)),
    "oak .png: 'oak ' cannot be the name of a class": _write("oak .png", surface(9)),
    "nan.png: 'nan' cannot be the name of a class.*not na, nan": _write("nan.png", surface(9)),
    "\u017ftone.png: '\u017ftone' cannot be the name of a class": _write(
        "\u017ftone.png", surface(9)
    ),
    "oak.png: is a link to no file": lambda folder: (folder / "oak.png").symlink_to("nothing"),
    "moss.png: a texture moss is there already": _write("moss.png", surface(9)),
    "SAND.jpg: a texture SAND is there already|sand.PNG: a texture sand": _write(
        "SAND.jpg", surface(9)
    ),
    "oak.WEBP: photos end in .jpg, .* save it as one of these": _write("oak.WEBP", surface(9)),
    "oak.gif: photos end in .jpg": _write("oak.gif", surface(9)),
    "oak.heic: photos end in .jpg": lambda folder: (folder / "oak.heic").touch(),
    "surfaces/more: is a folder, in which": lambda folder: (folder / "more").mkdir(),
    "surfaces: No such file or directory; name a folder": lambda folder: shutil.rmtree(folder),
    "surfaces: 1 texture, but 2 to 50 are needed": lambda folder: [
        path.unlink() for path in folder.iterdir() if path.stem != "sand"
    ],
    "surfaces: 51 textures, but 2 to 50 are needed": lambda folder: [
        shutil.copy(folder / "moss.jpg", folder / f"moss{number}.jpg") for number in range(47)
    ],
}


@pytest.mark.parametrize("problem", WRONG_NAMES)
def test_a_folder_that_cannot_be_used_is_named(texture_folder, problem):
    WRONG_NAMES[problem](texture_folder / "surfaces")
    (texture_folder / "mine.yaml").write_text(CONFIG.replace("published, ", ""))
    with refused(problem) as error:
        load_config("mine.yaml")
    assert "\n" not in str(error.value)


WRONG_PHOTOS = {
    "surfaces/oak.png: 200 x 300 pixels": _write("oak.png", surface(9, (300, 200))),
    "surfaces/oak.png: has a single grey level": _write(
        "oak.png", np.full((300, 300), 9, np.uint8)
    ),
    "surfaces/oak.png: is the same texture as surfaces/moss.jpg": _write("oak.png", surface(0)),
    "surfaces/oak.jpg: not readable": lambda folder: (folder / "oak.jpg").write_bytes(b"\xff\xd8"),
}


@pytest.mark.parametrize("problem", WRONG_PHOTOS)
def test_a_photo_that_cannot_be_used_is_named_when_it_is_fetched(texture_folder, problem):
    WRONG_PHOTOS[problem](texture_folder / "surfaces")
    with refused(problem):
        load_scene("digits+surfaces").fetched(texture_folder / "raw", "embedded", None)
    assert not (texture_folder / "raw").exists()


def test_a_published_texture_under_another_name_is_named(texture_folder):
    Image.fromarray(embedded_texture("wood")).save(texture_folder / "surfaces/oak.png")
    scene = load_scene("digits+published+surfaces")
    scene.fetched(texture_folder / "raw", "embedded", None)
    with refused("oak: is the same texture as wood"):
        scene.make(texture_folder / "raw", texture_folder / "prepared", "embedded")


def test_two_textures_are_bound_where_two_classes_are_needed(texture_folder):
    for name in ("moss.jpg", "sand.PNG"):
        (texture_folder / "surfaces" / name).unlink()
    (texture_folder / "mine.yaml").write_text(CONFIG.replace("published, ", ""))
    changes = ["bindings=all", "tuning.factors=[hue]"]
    config = load_config("mine.yaml", changes)
    assert not any("texture" in binding for _, binding in config.datasets) and config.datasets
    with refused("3 classes, but texture has only 2; bind another"):
        load_config("mine.yaml", changes[1:])
    options = {"sources": "embedded", "counts": SMALL, "image_size": 64}
    dataset = diagvib.load("zgo", "shape-hue", "train", textures=["surfaces"], **options)
    assert set(dataset.table["texture"].to_pylist()) == {"Slate 2", "felt"}


def test_textures_need_a_study_that_has_some(texture_folder):
    config = str(REPOSITORY / "config/urbancars_demo.yaml")
    with refused("textures: the images of cars have none; leave this"):
        load_config(config, ["textures=[surfaces]", "tuning.samples=[0]"])


@pytest.mark.parametrize(
    ("study", "textures", "says"),
    [
        ("urbancars", "surfaces", "textures: the images of cars have none; leave this"),
        (
            "zgo",
            ["my+surfaces"],
            r"diagvib.load: textures.0: 'my\+surfaces' cannot be used; name a",
        ),
        ("zgo", [Path("my+surfaces")], "diagvib.load: textures.0: "),
        ("zgo", ["my {x}"], r"textures.0: 'my {x}' cannot be used; .* without '\+', ':', '{', '}'"),
    ],
)
def test_the_library_refuses_textures_as_a_configuration_does(study, textures, says):
    binding = "car-background-object" if study == "urbancars" else "shape-hue"
    with refused(says):
        diagvib.load(study, binding, "test", sources="embedded", textures=textures)


def test_a_path_that_leads_upwards_does_not_leave_the_cache(tmp_path, monkeypatch):
    """Two projects, whose textures are each below a path like `../../../../../surfaces`."""
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "cache"))
    options = {"sources": "embedded", "counts": SMALL, "image_size": 64}
    deep = "/".join("abcde")

    def pixels(project, textures):
        monkeypatch.chdir(tmp_path / project / deep)
        return diagvib.load("zgo", "shape-hue", "val", textures=textures, **options).pixels

    names = {"one": NAMES, "two": NAMES[::-1]}  # other photos by the same names
    for project in names:
        (tmp_path / project / deep).mkdir(parents=True)
        photos(tmp_path / project / "surfaces", names[project])
    for project in names:
        expected = pixels(project, str(tmp_path / project / "surfaces"))
        assert torch.equal(pixels(project, "../../../../../surfaces"), expected)
    assert not torch.equal(pixels("one", "../../../../../surfaces"), expected)
    assert len({*(tmp_path / "cache/embedded").iterdir()}) == 4


def test_the_example_lists_files_that_scikit_image_has(tmp_path):
    import skimage

    data = Path(skimage.__file__).parent / "data"
    config = load_config(definition_path("surfaces.yaml"))
    (name,) = config.scenes
    scene = load_scene(name)
    assert scene.factors["texture"] == ("brick", "grass", "gravel")
    if not (data / "gravel.png").is_file():
        pytest.skip("this version of scikit-image comes without its photos")
    scene.fetched(tmp_path / "raw", "embedded", data)
    scene.make(tmp_path / "raw", tmp_path / "prepared", "embedded")
    assert scene.examples(tmp_path / "prepared", [{"texture": "grass"}]).shape == (1, 128, 128, 3)
    assert Layout(config.root).prepared(name).name == "digits+surfaces"
