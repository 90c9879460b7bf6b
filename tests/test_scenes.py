"""The contract of every scene, and the errors for a user's scene that breaks it."""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import squares
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.own_scenes import CheckedScene
from diagvib.foundation.seeding import named_generator
from diagvib.images.files import BATCH, render_batches
from diagvib.scenes import SCENES, load_scene
from diagvib.scenes.scene import RESERVED
from diagvib.settings.grid import Layout
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.recipes import check_recipes, draw_recipes
from diagvib.studies.rows import SPLITS
from diagvib.studies.study import load_studies

NAMES = [*SCENES, "squares:Squares"]
# Of the recipe columns, those that say which source an image is made from.
SOURCE_COLUMNS = {
    "digits": "digit",
    "squares:Squares": "shade",
    "cars": "car_photo",
    "dogs": "photo",
}
# Scenes that use a source once cannot draw more, for any classes, than the smallest split has.
MOST = {"cars": 40}
# The factor that the object itself shows.
OBJECTS = {"digits": "shape", "cars": "car"}


@pytest.fixture(scope="module", autouse=True)
def few_stand_ins():
    """Photos take long to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diagvib.scenes.dogs.prepare.PHOTOS", 8)
        yield


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def scene(name):
    return load_scene(name)


@pytest.fixture(scope="module")
def prepared(scene, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    scene.prepare(folder / "raw", folder, "embedded")
    return folder


def recipes(scene, prepared: Path, split: str, n: int = 40, seed: str = "x") -> pa.Table:
    generator = named_generator(scene.name, split, seed)
    classes = {
        factor: generator.choice(np.array(known, dtype=object), n)
        for factor, known in scene.factors.items()
    }
    realized = scene.realize(classes, split, scene.catalogue(prepared), generator)
    assert set(realized) == set(scene.columns.names), (
        "realize gives every column of the scene and no other"
    )
    schema = pa.schema([*((factor, pa.string()) for factor in scene.factors), *scene.columns])
    return pa.table({**classes, **realized}, schema=schema)


def test_factors_and_columns_are_names_apart(scene):
    assert len(scene.factors) >= 2
    for factor, classes in scene.factors.items():
        assert factor.isidentifier() and len(set(classes)) == len(classes) >= 2
        assert all(isinstance(name, str) and name for name in classes)
    assert not {*scene.factors} & {*scene.columns.names, *RESERVED}
    assert not {*scene.columns.names} & {*RESERVED}
    assert scene.name.isidentifier()


def test_folders_are_named_after_the_scene(name, scene):
    layout = Layout(Path("x"))
    assert (
        layout.prepared(name) == layout.prepared(scene.name) == Path("x/data/prepared") / scene.name
    )
    assert layout.raw(name) == layout.raw(scene.name)


def test_published_samples_are_of_its_classes(scene):
    for number in range(len(scene.published_samples) + 3):
        sample = dataset_sample(number, scene.factors, scene.published_samples)
        for factor, known in scene.factors.items():
            chosen = sample.classes[factor]
            assert len(set(chosen)) == len(chosen) and set(chosen) <= set(known)
            assert len(chosen) == min(3, len(known)) or chosen == known, (
                "all are in the order of their indices"
            )


def test_embedded_sources_need_no_files(scene, prepared, tmp_path):
    assert scene.raw_files("embedded") == []
    written = {str(path.relative_to(prepared)) for path in prepared.rglob("*") if path.is_file()}
    assert written == set(scene.prepared_files())
    scene.prepare(tmp_path / "raw", tmp_path / "again", "embedded")
    for file in scene.prepared_files():
        assert (tmp_path / "again" / file).read_bytes() == (prepared / file).read_bytes()


def test_the_catalogue_says_where_images_come_from(scene, prepared):
    catalogue = scene.catalogue(prepared)
    assert (catalogue.sources, catalogue.comparable) == ("embedded", False) and len(
        catalogue.digest
    ) == 64


def test_what_is_absent_or_unknown_is_refused(scene, tmp_path):
    with pytest.raises(DiagvibError, match="offical"):
        scene.prepare(tmp_path, tmp_path / "prepared", "offical")
    with pytest.raises(DiagvibError):
        scene.prepare(tmp_path / "raw", tmp_path / "prepared", "official")
    with pytest.raises(DiagvibError):
        scene.fetch(tmp_path / "raw", tmp_path / "no-mirror")
    for read in (scene.catalogue, lambda folder: scene.renderer(folder, 64, torch.device("cpu"))):
        with pytest.raises(DiagvibError, match="diagvib prepare"):
            read(tmp_path / "prepared")
    assert list(tmp_path.rglob("*.*")) == []


def test_a_preparation_that_lacks_a_file_is_refused(scene, prepared, tmp_path):
    for file in scene.prepared_files():
        folder = Path(shutil.copytree(prepared, tmp_path / file.replace("/", "-")))
        (folder / file).unlink()
        with pytest.raises(DiagvibError, match=file.rpartition("/")[2]):
            scene.renderer(folder, 64, torch.device("cpu"))


def test_values_lie_within_their_limits(scene, prepared):
    for split in SPLITS:
        check_recipes(
            recipes(scene, prepared, split),
            "x",
            scene.factors,
            scene.largest(scene.catalogue(prepared)),
        )


def test_realizations_come_from_the_generator(scene, prepared):
    first, again, other = (recipes(scene, prepared, "train", seed=seed) for seed in ("x", "x", "y"))
    assert first.equals(again) and not first.equals(other)


def test_splits_share_no_source(name, scene, prepared):
    if hasattr(scene, "share_out"):
        parts = [
            recipes(scene, prepared, split).to_pandas()[list(scene.factors)].assign(split=split)
            for split in SPLITS
        ]
        shared = scene.share_out(
            pd.concat(parts), scene.catalogue(prepared), named_generator("sources")
        )
        assert (
            set(shared) == set(scene.columns.names)
            and len(set(shared[SOURCE_COLUMNS[name]])) == 120
        )
        return
    drawn = [recipes(scene, prepared, split, MOST.get(name, 2000)) for split in SPLITS]
    used = [set(table[SOURCE_COLUMNS[name]].to_pylist()) for table in drawn]
    assert all(used) and sum(map(len, used)) == len(set.union(*used))


@pytest.mark.parametrize("size", [64, 96])
def test_images_depend_on_their_recipe_alone(scene, prepared, size):
    rows = recipes(scene, prepared, "train")
    renderer = scene.renderer(prepared, size, torch.device("cpu"))
    assert (renderer.size, renderer.device) == (size, torch.device("cpu"))
    images = renderer(rows)
    assert images.dtype == torch.uint8 and images.shape == (len(rows), size, size, 3)
    assert images.flatten(1).float().std(1).min() > 0, "every image shows something"
    assert torch.equal(images, scene.renderer(prepared, size, torch.device("cpu"))(rows))
    assert torch.equal(images[7:8], renderer(rows.slice(7, 1)))
    assert torch.equal(images.flip(0), renderer(rows.take(list(range(len(rows)))[::-1])))
    assert renderer(rows.slice(0, 0)).shape == (0, size, size, 3)


def test_every_factor_is_seen(scene, prepared):
    for factor, classes in scene.factors.items():
        images = scene.examples(prepared, [{factor: name} for name in classes])
        assert images.dtype == np.uint8 and images.ndim == 4
        assert images.shape[0] == len(classes) and images.shape[3] == 3
        assert len({image.tobytes() for image in images}) == len(classes)


OWN = """
import squares
class Good(squares.Squares): pass
class Bare: pass
class Clashing(squares.Squares):
    factors = {**squares.Squares.factors, "group": ("a", "b")}
class Dashed(squares.Squares):
    factors = {**squares.Squares.factors, "two-words": ("a", "b")}
class OneClass(squares.Squares):
    factors = {**squares.Squares.factors, "only": ("a",)}
class Raising(squares.Squares):
    def __init__(self): 1 / 0
class Listed(squares.Squares):
    factors = ["colour", "corner"]
class Spelt(squares.Squares):
    factors = {**squares.Squares.factors, "letter": "abc"}
class Grouped(squares.Squares):
    columns = squares.Squares.columns.append(squares.pa.field("group", squares.pa.string()))
class Constant(squares.Squares):
    largest = 3
WHOLE = {"colour": ("red", "blue", "white"), "corner": ("north-west", "north-east", "south-west"),
         "extent": ("large", "small", "middle"), "added_cue": (1, 2, 0)}
class Published(squares.Squares):
    published_samples = (WHOLE,)
class Five(squares.Squares):
    published_samples = (WHOLE, 5)
class Pink(squares.Squares):
    published_samples = ({**WHOLE, "colour": ("red", "blue", "pink")},)
class Twice(squares.Squares):
    published_samples = ({**WHOLE, "colour": ("red", "blue", "red")},)
class Without(squares.Squares):
    published_samples = ({key: WHOLE[key] for key in ("colour", "corner", "added_cue")},)
class Diagonal(squares.Squares):
    published_samples = ({**WHOLE, "added_cue": (1, 1, 0)},)
class Broken(squares.Squares):
    def __init__(self, changes): self.changes = changes
    def catalogue(self, prepared):
        return squares.Catalogue("embedded", "no" if "catalogue" in self.changes else False, "0")
    def realize(self, classes, *more):
        made = super().realize(classes, *more)
        return {**made, **{key: change(made[key]) for key, change in self.changes.items() if key in made}}
    def renderer(self, prepared, size, device):
        if "renderer" not in self.changes:
            return super().renderer(prepared, size, device)
        class Renderer(squares.Renderer):
            def __call__(own, recipes): return self.changes["renderer"](super().__call__(recipes))
        return Renderer(size, device)
number = 3
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("digit", "unknown scene 'digit'; did you mean digits"),
        ("own_scene:Absent", "own_scene:Absent cannot be imported"),
        ("absent_module:Scene", "No module named 'absent_module'"),
        ("own_scene:Raising", "ZeroDivisionError"),
        ("own_scene:number", "own_scene:number is not a function or class"),
        ("own_scene:Bare", "own_scene:Bare lacks catalogue, columns"),
        ("own_scene:Clashing", "a factor cannot be named 'group'"),
        ("own_scene:Dashed", "'two-words'"),
        ("own_scene:OneClass", "only needs at least two classes"),
        ("own_scene:Listed", "factors must be a Mapping"),
        ("own_scene:Spelt", "the classes of letter must be a tuple of names, not 'abc'"),
        ("own_scene:Grouped", "a column cannot be named 'group'"),
        ("own_scene:Constant", "largest is not a method"),
        (
            "own_scene:Five",
            "published_samples[1] must be a mapping of each factor to its classes, and of added_cue, not 5",
        ),
        (
            "own_scene:Pink",
            "published_samples[0]: colour must be three of its classes, or all of them, not ('red',",
        ),
        (
            "own_scene:Twice",
            "colour must be three of its classes, or all of them, not ('red', 'blue', 'red')",
        ),
        (
            "own_scene:Without",
            "published_samples[0]: extent must be three of its classes, or all of them, not None",
        ),
        (
            "own_scene:Diagonal",
            "added_cue must be a cue class from 0 to 2 for each of three target classes, and another",
        ),
    ],
)
def test_a_scene_that_does_not_hold_to_it_is_named(tmp_path, monkeypatch, name, says):
    (tmp_path / "own_scene.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DiagvibError) as error:
        load_scene(name)
    assert says in str(error.value) and "\n" not in str(error.value)
    assert load_scene("own_scene:Good").factors == load_scene("squares:Squares").factors
    assert isinstance(load_scene("own_scene:Good"), CheckedScene)
    published = load_scene("own_scene:Published")
    assert dataset_sample(0, published.factors, published.published_samples).added_cue == (1, 2, 0)


def test_a_factor_is_exchanged_and_nothing_else(scene, prepared):
    if not hasattr(scene, "exchange"):
        pytest.skip(f"{scene.name} cannot exchange")
    own, donors = (recipes(scene, prepared, "train", seed=seed) for seed in "ab")
    moved = []
    for factor in scene.factors:
        changed = scene.exchange(own, factor, donors)
        assert changed.schema.equals(own.schema)
        moved.append(
            {column for column in own.column_names if not changed[column].equals(own[column])}
        )
        assert all(changed[column].equals(donors[column]) for column in moved[-1])
        assert factor in moved[-1]
    assert sum(map(len, moved)) == len(set.union(*moved)) == len(own.column_names), (
        "each column belongs to one factor"
    )
    for factor in scene.factors:
        own = scene.exchange(own, factor, donors)
    assert own.equals(donors)


def test_objects_lie_in_their_boxes(name, scene, prepared):
    """Another object changes an image within the boxes of the two, and nowhere else."""
    if not hasattr(scene, "object_boxes"):
        pytest.skip(f"{scene.name} does not say where objects are")
    rows, donors = (recipes(scene, prepared, "train", 200, seed) for seed in "ab")
    exchanged, size = scene.exchange(rows, OBJECTS[name], donors), 96
    render, inside = (
        scene.renderer(prepared, size, torch.device("cpu")),
        np.zeros((200, size, size), bool),
    )
    for boxes in (scene.object_boxes(rows, size), scene.object_boxes(exchanged, size)):
        assert boxes.shape == (200, 4) and (boxes >= 0).all() and (boxes <= size).all()
        for image, (top, left, bottom, right) in zip(inside, boxes, strict=True):
            image[top:bottom, left:right] = True
    differ = (render(rows) != render(exchanged)).any(3).numpy()
    assert not differ[~inside].any()
    another = np.array(
        [
            one != other
            for one, other in zip(
                rows[OBJECTS[name]].to_pylist(), donors[OBJECTS[name]].to_pylist(), strict=True
            )
        ]
    )
    assert differ[another].any((1, 2)).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"catalogue": None},
            "catalogue gives a Catalogue whose comparable is 'no'; bool is needed",
        ),
        ({"side": lambda side: side[1:]}, "realize gives side of shape (8,)"),
        ({"side": lambda side: side * np.nan}, "realize gives nan for side of image 0"),
        ({"shade": lambda shade: ["dark"] * len(shade)}, "realize gives shade that is not int16"),
        ({"side": lambda side: side.absent}, "realize failed ({}/own_scene.py, line "),
        (
            {"renderer": lambda images: images.float()},
            "gives images of torch.float32 and shape [9, 64, 64, 3]",
        ),
        (
            {"renderer": lambda images: images[1:]},
            "and shape [8, 64, 64, 3]; torch.uint8[9, 64, 64, 3] is needed",
        ),
        ({"renderer": lambda images: images.permute(0, 3, 1, 2)}, "and shape [9, 3, 64, 64]"),
        ({"renderer": lambda images: 1 / 0}, "line "),
        (
            {"renderer": lambda images: torch.randint_like(images, 256)},
            "renderer gives other images when the same recipes are rendered again",
        ),
        ({}, None),
    ],
)
def test_a_scene_of_ones_own_that_makes_something_else_is_named(
    tmp_path, monkeypatch, changes, says
):
    """Images of another type or number would be read as other images, without any other sign."""
    (tmp_path / "own_scene.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_scene", raising=False)
    scene = CheckedScene(
        importlib.import_module("own_scene").Broken(changes), "scene: own_scene:Broken"
    )
    classes = {factor: np.array(names[:3] * 3) for factor, names in scene.factors.items()}

    def use():
        catalogue = scene.catalogue(tmp_path)
        made = scene.realize(classes, "train", catalogue, np.random.default_rng(0))
        return scene.renderer(tmp_path, 64, torch.device("cpu"))(pa.table({**classes, **made}))

    if says is None:
        assert use().shape == (9, 64, 64, 3)
        return
    with pytest.raises(DiagvibError) as error:
        use()
    assert str(error.value).startswith("scene: own_scene:Broken: ")
    assert says.format(tmp_path) in str(error.value)


def test_a_renderer_may_draw_all_batches_into_the_same_memory(tmp_path):
    class Reusing(squares.Squares):
        def renderer(self, prepared, size, device):
            render = super().renderer(prepared, size, device)
            room = torch.empty(0, dtype=torch.uint8)

            class Renderer(squares.Renderer):
                def __call__(self, rows):
                    room.resize_(len(rows), size, size, 3)
                    return room.copy_(render(rows))

            return Renderer(size, device)

    plain, scene = squares.Squares(), CheckedScene(Reusing(), "scene: Reusing")
    plain.prepare(tmp_path, tmp_path, "embedded")
    rows = recipes(plain, tmp_path, "train", 3 * BATCH)
    render = [one.renderer(tmp_path, 16, torch.device("cpu")) for one in (plain, scene)]
    wanted, found = (torch.cat(list(render_batches(rows, one))) for one in render)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", ["a column", "the mapping", "environment", "recipes"])
def test_a_scene_cannot_change_the_classes_of_images(tmp_path, kind):
    """Otherwise all images could be red, and recorded as green."""

    class Painting(squares.Squares):
        def realize(self, classes, split, catalogue, generator, environment=None):
            if kind == "a column":
                classes["colour"][:] = "red"
            elif kind == "the mapping":
                classes["colour"] = np.full(len(classes["extent"]), "red")
            else:
                environment[:] = "north"
            return super().realize(classes, split, catalogue, generator)

    if kind == "recipes":
        Painting.share_out = lambda self, rows, *_: rows.update({"colour": ["red"] * len(rows)})
    scene = CheckedScene(Painting(), "scene: Painting")
    scene.prepare(tmp_path, tmp_path, "embedded")
    study = load_studies([Path(__file__).with_name("square_studies.yaml")])["two-places"]
    says = r"realize failed \(.*test_scenes.py, line|Squares: share_out must not change"
    with pytest.raises(DiagvibError, match=says):
        draw_recipes(
            study,
            bind(study, "corner-colour", scene.factors),
            [dataset_sample(0, scene.factors)],
            {"train": 90, "val": 90, "new": 90},
            scene,
            scene.catalogue(tmp_path),
        )
