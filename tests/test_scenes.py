"""The contract of every scene, and the errors for a user's scene that breaks it."""

import hashlib
import importlib
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, definition_path, read_json
from diagvib.foundation.seeding import named_generator
from diagvib.images.files import BATCH, render_batches
from diagvib.scenes import known_scenes, load_scene
from diagvib.scenes.cars import prepare as cars_prepare
from diagvib.scenes.photos.scene import Photos
from diagvib.scenes.scene import Scene
from diagvib.settings.resolve import load_config
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.rows import SPLITS
from diagvib.studies.study import load_studies
from squares import Squares

NAMES = [*known_scenes(), "squares:Squares"]
CPU = torch.device("cpu")
# Of the recipe columns, those that say which source an image is made from.
SOURCE_COLUMNS = {"digits": "digit", "Squares": "shade", "cars": "car_photo"}
# Scenes that use a source once cannot draw more, for any classes, than the smallest split has.
MOST_IMAGES = {"cars": 10}
# The factor that the object itself shows.
OBJECTS = {"digits": "shape", "cars": "car"}


@pytest.fixture(scope="module", params=NAMES)
def scene(request) -> Iterator[Scene]:
    """With few stand-ins."""
    loaded = load_scene(request.param)
    if isinstance(loaded, Photos):
        subset = loaded.definition.stand_ins.model_copy(update={"each": 8})
        loaded = Photos(loaded.path, loaded.definition.model_copy(update={"stand_ins": subset}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cars_prepare, "COUNT", 60)
        yield loaded


@pytest.fixture(scope="module")
def prepared(scene, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    scene.make(folder / "raw", folder, "embedded")
    return folder


def recipes(scene, prepared: Path, split: str, n: int = 40, seed: str = "x", **keys) -> pa.Table:
    generator = named_generator(scene.name, split, seed)
    classes = {
        factor: generator.choice(np.array(names, dtype=object), n)
        for factor, names in scene.factors.items()
    }
    catalogue = keys["catalogue"] if keys else scene.catalogue(prepared)
    realized = scene.realized(classes, split, catalogue, generator)
    schema = pa.schema([*((factor, pa.string()) for factor in scene.factors), *scene.columns])
    return pa.table({**classes, **realized}, schema=schema)


def test_embedded_sources_need_no_files_and_make_the_same(scene, prepared, tmp_path):
    assert scene.raw_files("embedded") == []
    assert set(read_json(prepared / DIGESTS_FILE)) == {
        str(path.relative_to(prepared))
        for path in prepared.rglob("*")
        if path.is_file() and path.name != DIGESTS_FILE
    }
    scene.make(tmp_path / "raw", tmp_path / "again", "embedded")
    for file in read_json(prepared / DIGESTS_FILE):
        assert (tmp_path / "again" / file).read_bytes() == (prepared / file).read_bytes()
    catalogue = scene.catalogue(prepared)
    assert (catalogue.sources, catalogue.comparable) == ("embedded", False)
    assert len(catalogue.digest) == 64


def test_what_is_absent_is_refused(scene, tmp_path):
    with pytest.raises(DiagvibError):
        scene.make(tmp_path / "raw", tmp_path / "prepared", "official")
    if scene.name != "Squares":
        with pytest.raises(DiagvibError):
            scene.fetch(tmp_path / "raw", tmp_path / "no-mirror")
        with refused("diagvib prepare"):
            scene.renderer(tmp_path / "prepared", 64, CPU)
    with refused("diagvib prepare"):
        scene.catalogue(tmp_path / "prepared")
    assert list(tmp_path.rglob("*.*")) == []


def test_a_preparation_that_lacks_a_file_is_refused(scene, prepared, tmp_path):
    for file in read_json(prepared / DIGESTS_FILE):
        folder = Path(shutil.copytree(prepared, tmp_path / file.replace("/", "-")))
        (folder / file).unlink()
        with refused(file.rpartition("/")[2]):
            scene.catalogue(folder)
            scene.renderer(folder, 64, CPU)


def test_realizations_come_from_the_generator(scene, prepared):
    left, again, alternative = (
        recipes(scene, prepared, "train", seed=seed) for seed in ("x", "x", "y")
    )
    assert left.equals(again) and not left.equals(alternative)


def test_splits_share_no_source(scene, prepared):
    if hasattr(scene, "share_out"):
        parts = [
            recipes(scene, prepared, split).to_pandas()[list(scene.factors)].assign(split=split)
            for split in SPLITS
        ]
        rows = pd.concat(parts, ignore_index=True)
        shared = scene.share_out(rows, scene.catalogue(prepared), named_generator("sources"))
        assert set(shared) == set(scene.columns.names) and len(set(shared["photo"])) == 120
        return
    recipe_tables = [
        recipes(scene, prepared, split, MOST_IMAGES.get(scene.name, 2000)) for split in SPLITS
    ]
    used = [set(table[SOURCE_COLUMNS[scene.name]].to_pylist()) for table in recipe_tables]
    assert all(used) and sum(map(len, used)) == len(set.union(*used))


def test_images_depend_on_their_recipe_alone(scene, prepared):
    rows, size = recipes(scene, prepared, "train", 12), 96
    renderer = scene.rendering(prepared, size, CPU)
    images = renderer(rows)
    assert images.dtype == torch.uint8 and images.shape == (len(rows), size, size, 3)
    assert images.flatten(1).float().std(1).min() > 0, "every image shows something"
    assert torch.equal(images, scene.rendering(prepared, size, CPU)(rows))
    assert torch.equal(images[7:8], renderer(rows.slice(7, 1)))
    assert torch.equal(images.flip(0), renderer(rows.take([*range(len(rows))][::-1])))
    assert renderer(rows.slice(0, 0)).shape == (0, size, size, 3)


def test_every_factor_is_seen(scene, prepared):
    for factor, classes in scene.factors.items():
        images = scene.examples(prepared, [{factor: name} for name in classes])
        assert images.dtype == np.uint8 and images.ndim == 4
        assert images.shape[0] == len(classes) and images.shape[3] == 3
        assert len({image.tobytes() for image in images}) == len(classes)


def test_a_factor_is_exchanged_and_nothing_else(scene, prepared):
    if not scene.can("exchange"):
        pytest.skip(f"{scene.name} cannot exchange")
    part, donors = (recipes(scene, prepared, "train", seed=seed) for seed in "ab")
    moved = []
    for factor in scene.factors:
        changed = scene.exchange(part, factor, donors)
        assert changed.schema.equals(part.schema)
        moved.append(
            {column for column in part.column_names if not changed[column].equals(part[column])}
        )
        assert all(changed[column].equals(donors[column]) for column in moved[-1])
        assert factor in moved[-1]
    assert sum(map(len, moved)) == len(set.union(*moved)) == len(part.column_names), (
        "each column belongs to one factor"
    )
    for factor in scene.factors:
        part = scene.exchange(part, factor, donors)
    assert part.equals(donors)


def test_objects_lie_in_their_boxes(scene, prepared):
    """Another object changes an image within the boxes of the two, and nowhere else."""
    if not scene.can("object_boxes"):
        pytest.skip(f"{scene.name} does not say where objects are")
    rows, donors = (recipes(scene, prepared, "train", seed=seed) for seed in "ab")
    thing, size = OBJECTS[scene.name], 96
    exchanged = scene.exchange(rows, thing, donors)
    render = scene.rendering(prepared, size, CPU)
    inside = np.zeros((len(rows), size, size), bool)
    for boxes in (scene.object_boxes(rows, size), scene.object_boxes(exchanged, size)):
        assert boxes.shape == (len(rows), 4) and (boxes >= 0).all() and (boxes <= size).all()
        for image, (top, remaining, bottom, right) in zip(inside, boxes, strict=True):
            image[top:bottom, remaining:right] = True
    differ = (render(rows) != render(exchanged)).any(3).numpy()
    assert not differ[~inside].any()
    another = np.array(rows[thing].to_pylist()) != np.array(donors[thing].to_pylist())
    assert differ[another].any((1, 2)).all()


# A scene of a user's own that does not hold to it.

MINE = """
import squares
from diagvib.scenes.scene import Scene
class Good(squares.Squares): pass
class Bare: pass
def tiny(n_classes): pass
class Empty(Scene): pass
class Clashing(squares.Squares):
    factors = {**squares.Squares.factors, "group": ("a", "b")}
class OneClass(squares.Squares):
    factors = {**squares.Squares.factors, "only": ("a",)}
class Joined(squares.Squares):
    factors = {"colour": ("a", "a-b"), "corner": ("b-c", "c")}
class Grouped(squares.Squares):
    columns = squares.Squares.columns.append(squares.pa.field("group", squares.pa.string()))
class Shared(squares.Squares):
    realized_by = dict.fromkeys(squares.Squares.factors, squares.Squares.columns.names[:1])
class Sized(squares.Squares):
    def __init__(self, size): self.size = size
class Unready(squares.Squares):
    def __init__(self): raise RuntimeError("no plates")
class Listed(squares.Squares):
    columns = ["top", "left"]
class Broken(squares.Squares):
    def __init__(self, changes): self.changes = changes
    def realize(self, *all):
        made = super().realize(*all)
        return {name: self.changes.get(name, lambda own: own)(own) for name, own in made.items()}
    def renderer(self, *all):
        render = super().renderer(*all)
        return lambda recipes: self.changes.get("renderer", lambda own: own)(render(recipes))
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("digit", "unknown scene 'digit'; did you mean digits"),
        ("own_scene:Absent", "own_scene:Absent cannot be imported"),
        ("own_scene:Bare", "own_scene:Bare is not a subclass of diagvib.scenes.scene.Scene"),
        ("own_scene:tiny", "own_scene:tiny is not a subclass of diagvib.scenes.scene.Scene"),
        ("own_scene:Empty", "own_scene:Empty: factors: "),
        ("own_scene:Clashing", "'group' cannot be used; a factor is one word"),
        ("own_scene:OneClass", "factors: only: must have at least 2 items"),
        (
            "own_scene:Joined",
            "Joined: factors: two classes of colour, each with one of corner, are",
        ),
        ("own_scene:Grouped", "columns: group is the name of another column"),
        ("own_scene:Sized", "Sized cannot be made (TypeError: "),
        ("own_scene:Unready", "Unready cannot be made (RuntimeError: no plates); correct "),
        ("own_scene:Listed", "Listed: columns: must be a Schema, not list"),
        ("own_scene:Shared", "realized_by: every factor needs columns of its own"),
    ],
)
def test_a_scene_that_cannot_be_used_is_named(tmp_path, monkeypatch, name, says):
    (tmp_path / "own_scene.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DiagvibError) as error:
        load_scene(name)
    assert says in str(error.value) and "\n" not in str(error.value)
    assert load_scene("own_scene:Good").factors == load_scene("squares:Squares").factors


def test_a_scene_whose_folder_snakemake_cannot_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = definition_path("photos/waterbirds")
    shutil.copy(folder / "scene.yaml", "birds {x}.yaml")
    text = (folder / "studies.yaml").read_text()
    Path("studies.yaml").write_text(re.sub(r"scene: .*", 'scene: "birds {x}.yaml"', text))
    (study, *_) = load_studies(["studies.yaml"]).keys() - load_studies().keys()
    with refused(f"study {study}: scene: birds {{x}}.yaml: rename the file; Snakemake cannot"):
        load_config(None, ["studies_from=[studies.yaml]", f"studies=[{study}]"])


def test_two_scenes_of_one_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_ = Path(__file__).parent
    text = (folder_ / "square_studies.yaml").read_text()
    for name in ("one", "two"):
        shutil.copy2(folder_ / "squares.py", f"{name}.py")
        subject = text.replace("squares:Squares", f"{name}:Squares").replace("two-", f"{name}-")
        Path(f"{name}.yaml").write_text(subject)
    selection = ["studies=[one-cues, two-cues]", "studies_from=[one.yaml, two.yaml]"]
    counts = "counts={train: 300, val: 120, common: 30, neither: 24}"
    message = "their scenes one:Squares and two:Squares would share the folder Squares; rename one"
    with refused(message):
        load_config(None, [*selection, counts, "bindings=all", "baselines=[small_cnn]"])


@pytest.mark.parametrize("third", ["pink", "red"])
def test_a_published_sample_is_of_the_scenes_classes(third, monkeypatch):
    squares = load_scene("squares:Squares")
    entry = {"colour": ("red", "blue", "white")} | {
        factor: squares.factors[factor][:3] for factor in ("corner", "extent")
    }
    monkeypatch.setattr(squares, "published_samples", [entry])
    assert dataset_sample(0, squares).added_cue == (1, 2, 0)
    entry["colour"] = ("red", "blue", third)
    with refused("published sample 0: colour must name each class once"):
        dataset_sample(0, squares)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *(
            (
                {"side": lambda side, value=value: side * value},
                "gives side with infinite or missing",
            )
            for value in (np.inf, -np.inf, np.nan)
        ),
        ({"renderer": lambda images: images.permute(0, 3, 1, 2)}, "and shape [9, 3, 64, 64]"),
    ],
)
def test_a_scene_that_makes_something_else_is_named(tmp_path, monkeypatch, changes, says):
    """Images of another type or number would be read as other images, without any other sign."""
    (tmp_path / "own_scene.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_scene", raising=False)
    scene = importlib.import_module("own_scene").Broken(changes)
    classes = {factor: np.array(names[:3] * 3) for factor, names in scene.factors.items()}

    with pytest.raises(DiagvibError) as error:
        output = scene.realized(classes, "train", None, np.random.default_rng(0))
        scene.rendering(tmp_path, 64, CPU)(pa.table({**classes, **output}))
    assert str(error.value).startswith("scene Broken: ") and says in str(error.value)


class Chance:
    """Stands for what a user's scene may hold from call to call."""

    def __init__(self):
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


DRAWS = {
    "random": lambda chance: random.randint(0, 200),
    "numpy": lambda chance: np.random.randint(200),
    "torch": lambda chance: int(torch.randint(200, ())),
    "fresh": lambda chance: np.random.default_rng().integers(200),
    "counter": lambda chance: chance.count(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_renderer_whose_images_depend_on_more_than_their_recipes_is_refused(tmp_path, draw):
    chance = Chance()

    class Noisy(Squares):
        def renderer(self, prepared, size, device):
            render = super().renderer(prepared, size, device)
            return lambda rows: (render(rows) + columns()) % 251

    def columns():
        """A number for each; two draws of a single one are equal in one of 200 cases."""
        return torch.tensor([[draw(chance) % 199] for _ in range(64)], dtype=torch.uint8)

    rows = recipes(Noisy(), tmp_path, "train", 12, catalogue=None)
    with refused("scene Noisy: gives other images in each call"):
        Noisy().rendering(tmp_path, 64, CPU)(rows)


def test_a_renderer_that_is_random_when_made_or_mixes_its_images_is_refused(tmp_path):

    class Made(Squares):
        def renderer(self, prepared, size, device):
            shade, render = np.random.randint(200), super().renderer(prepared, size, device)
            return lambda rows: (render(rows) + shade) % 251

    class Mixing(Squares):
        def renderer(self, prepared, size, device):
            render = super().renderer(prepared, size, device)
            return lambda rows: render(rows).roll(len(rows) // 2, 0)

    for kind, says in ((Made, "when it is made again"), (Mixing, "in another order")):
        rows, state = recipes(kind(), tmp_path, "train", 40, catalogue=None), random.getstate()
        with refused(f"scene {kind.__name__}: .*{says}"):
            kind().rendering(tmp_path, 64, CPU)(rows)
        assert random.getstate() == state


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_values_that_come_from_another_generator_are_refused(tmp_path, draw):
    chance = Chance()

    class Drawing(Squares):
        def realize(self, classes, split, catalogue, generator):
            output = super().realize(classes, split, catalogue, generator)
            return {**output, "side": [draw(chance) / 1000 for _ in output["side"]]}

    with refused("scene Drawing: realize gives another side"):
        recipes(Drawing(), tmp_path, "train", catalogue=None)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("realise", lambda self, *draws: {}, "realise is not a hook .* did you mean realize"),
        ("render", lambda self, recipes: None, "render is not a hook .* did you mean renderer"),
        ("realised_by", {}, "realised_by is not an attribute; did you mean realized_by"),
        ("renderer", lambda self, size: None, r"renderer\(self, size\) cannot be called as "),
    ],
)
def test_a_scene_that_nearly_names_a_hook_is_refused(name, value, says):
    with refused(f"^scene: .*:Mine: {says}"):
        type("Mine", (Scene,), {name: value})


def test_a_renderer_may_draw_all_batches_into_the_same_memory(tmp_path):

    class Reusing(Squares):
        def renderer(self, prepared, size, device):
            render = super().renderer(prepared, size, device)
            room = torch.empty(0, dtype=torch.uint8)
            return lambda rows: room.resize_(len(rows), size, size, 3).copy_(render(rows))

    squares = Squares()
    squares.make(tmp_path, tmp_path, "embedded")
    rows = recipes(squares, tmp_path, "train", 3 * BATCH)
    expected, result = (
        torch.cat(list(render_batches(rows, item.rendering(tmp_path, 16, CPU))))
        for item in (squares, Reusing())
    )
    assert torch.equal(result, expected)


def test_a_scene_cannot_change_the_classes_of_images(tmp_path):
    """Otherwise all images could be red, and recorded as green."""

    class Painting(Squares):
        def realize(self, classes, *arguments):
            classes["colour"][:] = "red"
            return super().realize(classes, *arguments)

    scene = Painting()
    scene.make(tmp_path, tmp_path, "embedded")
    study = load_studies([Path(__file__).with_name("square_studies.yaml")])["two-places"]
    with pytest.raises(ValueError, match="read-only"):
        draw_recipes(
            study,
            bind(study, "corner-colour", scene.factors),
            [dataset_sample(0, scene)],
            {"train": 90, "val": 90, "new": 90},
            scene,
            scene.catalogue(tmp_path),
        )


# Scene -> study, binding, counts, and the sha256 of the recipes and of their images of 64 pixels.
FORMER = {
    "digits": (
        "o2o-easy",
        "shape-position",
        {"train": 90, "val": 18, "id": 18, "ood": 18},
        "603b25bbd0e31f7be1f707131c7990ccf7662913495f35ee4ca753ab56f78c12",
        "b216738c3f6bd00ebc30e614b7947b704698dd060a1486d35c622ba8bf1db76f",
    ),
    "cars": (
        "urbancars",
        "car-background-object",
        {"train": 40, "val": 4, "test": 4},
        "466e998d97be4a15f80b71a5f83bb3c2e6584e8d93f7ce77a3b5d1973f1754dc",
        "09f3d4b8bf3d3b368d6b7f153c3844a8510c04ca61e7ce792d146bcdd40160d2",
    ),
    "dogs": (
        "dogs-o2o-easy",
        "breed-background",
        {"train": 40, "val": 6, "id": 6, "ood": 8},
        "30cbfc7cf904a1901bcf24d4b648387fd1a34fd4694b7fca2d67bc669538031d",
        "1300ae906b47976db9b301a5d6b883c5f8886c124c8c93623258fdbc7d84d852",
    ),
}


def test_datasets_of_stand_ins_stay_as_they_were(scene, prepared):
    if scene.name not in FORMER:
        pytest.skip(f"{scene.name} is no scene of a paper")
    name, binding, counts, *expected = FORMER[scene.name]
    study = load_studies()[name]
    numbers = (0, 1, 7) if scene.replicates == "samples" else (0,)
    samples = [dataset_sample(number, scene) for number in numbers]
    bound, catalogue = bind(study, binding, scene.factors), scene.catalogue(prepared)
    table = draw_recipes(study, bound, samples, counts, scene, catalogue)
    table = table.replace_schema_metadata(None)
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        rows = [sink.getvalue(), scene.rendering(prepared, 64, CPU)(table).numpy().tobytes()]
    assert [hashlib.sha256(values).hexdigest() for values in rows] == expected


OWN_SOURCES = """
import squares

class Own(squares.Squares):
    def prepare(self, raw, prepared, sources):
        (prepared / "a").write_bytes(raw.read_bytes())
"""


def test_a_users_scene_of_other_code_or_files_is_other_sources(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for number, (code, content) in enumerate((("", "a"), ("", "b"), ("MORE = 1", "a"))):
        text = f"{OWN_SOURCES}{code}\n"
        (tmp_path / f"own{number}.py").write_text(text)
        (tmp_path / "raw").write_text(content)
        (tmp_path / str(number)).mkdir()
        scene = load_scene(f"own{number}:Own")
        scene.make(tmp_path / "raw", tmp_path / str(number), "embedded")
        digests.append(scene.catalogue(tmp_path / str(number)).digest)
    assert len(set(digests)) == 3


def test_works_of_one_licence_are_all_named():
    works = [SimpleNamespace(licence="CC0-1.0", citation=name) for name in ("A", "A", "B")]
    subject = type("Own", (Scene,), {"sources": works})
    assert subject().licences("official") == [("CC0-1.0", "A"), ("CC0-1.0", "B")]
    assert subject().licences("embedded") == []
