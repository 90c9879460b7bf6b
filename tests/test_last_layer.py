"""Last layers on kept features: what augmentations do to photos, resuming, methods on cases worked
by hand."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.imagenet_w import augmentations, cached_methods, features
from diagvib.imagenet_w.cached_methods import View, before
from diagvib.imagenet_w.classifiers import Classifier, own_preprocessing
from diagvib.imagenet_w.features import read_features, set_features, training_features
from diagvib.imagenet_w.last_layer import HEAD, Kept, Recipe, save_head, train_last_layer
from diagvib.imagenet_w.last_layer_methods import METHODS, variants
from diagvib.imagenet_w.photo_sets import Folders, photo_sets
from diagvib.imagenet_w.photos import list_photos
from diagvib.methods.registry import make_baseline
from diagvib.models.network import Network
from imagenet_w_photos import CARTON, CLASSES, cjk_font

CPU = torch.device("cpu")
SIZE, TOGETHER = 16, 4


@pytest.fixture(scope="module")
def font():
    return cjk_font()


@pytest.fixture
def batches_of_four(monkeypatch):
    for module in (augmentations, features, cached_methods):
        monkeypatch.setattr(module, "TOGETHER", TOGETHER)


def pixels_themselves(n_classes: int = len(CLASSES)) -> Classifier:
    """A network whose features are its inputs, so that they show what was done to the photos."""
    torch.manual_seed(0)
    network = Network(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, n_classes)).eval()
    return Classifier("pixels", "", network, own_preprocessing(SIZE), n_classes, "digest")


def write_noise(root, each: int):
    """Photos of noise around a class's own grey."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for number in range(each):
            noise = rng.integers(0, 60, (20, 20, 3)) + 45 * label
            Image.fromarray(noise.astype(np.uint8)).save(root / name / f"{number}.png")
    return root


def test_features_show_what_an_augmentation_left_of_each_photo(tmp_path, font, batches_of_four):
    photos = list_photos(write_noise(tmp_path / "train", 3))
    training_features(
        pixels_themselves(), photos, list(augmentations.VARIANTS), font, 0, tmp_path / "kept", 1
    )
    found = {name: read_features(tmp_path / "kept" / name) for name in augmentations.VARIANTS}
    clean = found["clean"]
    values, n = clean.values.astype(np.float32), len(photos)
    assert sorted(clean.rows) == list(range(n)) and clean.rows.tolist() != list(range(n))
    shown = own_preprocessing(SIZE)
    of_row = [
        shown.inputs(shown.pixels(Image.open(photos.root / photos.files[row]))[None])
        .flatten()
        .half()
        .numpy()
        for row in clean.rows
    ]
    assert (clean.values == np.stack(of_row)).all()
    others = values[before(torch.arange(n), n).numpy()]
    share = found["mixup"].share[:, None]
    assert np.abs(found["mixup"].values - (share * values + (1 - share) * others)).max() < 5e-3
    own = (found["cutmix"].values == clean.values).reshape(n, 3, -1).all(1)
    of_other = (found["cutmix"].values == others.astype(np.float16)).reshape(n, 3, -1).all(1)
    assert (own | of_other).all()
    assert found["cutmix"].share == pytest.approx(own.mean(1), abs=0.02)
    erased = (found["cutout"].values == 0).reshape(n, 3, -1).all(1).mean(1)
    assert (erased > 0.01).all() and (erased < 0.4).all()
    marked = found["watermark"].values.astype(np.float32) - values
    assert (marked > -1e-3).all() and (marked.max(1) > 0.1).sum() > n / 2
    assert not np.array_equal(found["augmix.1"].values, found["augmix.2"].values)
    for name in ("clean", "watermark", "cutout", "augmix.1", "augmix.2"):
        assert (found[name].share == 1).all()


def test_the_photo_before_is_that_of_the_same_batch():
    together = augmentations.TOGETHER
    index = torch.tensor([0, 1, together - 1, together, together + 1, together + 4])
    assert before(index, together + 5).tolist() == [
        together - 1,
        0,
        together - 2,
        together + 4,
        together,
        together + 3,
    ]


def test_interrupted_features_go_on_and_are_the_same(tmp_path, font, batches_of_four, monkeypatch):
    """With a broken photo among them, and an interruption after a record of the progress."""
    root = write_noise(tmp_path / "train", 6)
    (root / CARTON / "broken.png").write_text("no photo")
    photos, wanted = list_photos(root), ["clean", "mixup", "watermark"]
    training_features(pixels_themselves(), photos, wanted, font, 0, tmp_path / "whole", 1)
    monkeypatch.setattr(features, "_NOTED", 8)
    read, taken = features.read_batches, []

    def interrupted(*arguments):
        for number, batch in enumerate(read(*arguments)):
            if number == 3:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(features, "read_batches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training_features(pixels_themselves(), photos, wanted, font, 0, tmp_path / "kept", 1)
    with pytest.raises(DiagvibError, match="clean: holds no features"):
        read_features(tmp_path / "kept" / "clean")
    monkeypatch.setattr(
        features,
        "read_batches",
        lambda *arguments: (taken.append(batch) or batch for batch in read(*arguments)),
    )
    training_features(pixels_themselves(), photos, wanted, font, 0, tmp_path / "kept", 1)
    assert len(taken) == 4  # of six batches, two existed already
    files = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.*")}
    assert files == {
        path.relative_to(tmp_path / "kept") for path in (tmp_path / "kept").rglob("*.*")
    }
    assert all(
        (tmp_path / "whole" / file).read_bytes() == (tmp_path / "kept" / file).read_bytes()
        for file in files
    )
    assert len(read_features(tmp_path / "kept" / "clean").values) == 24


def test_only_views_that_are_missing_are_made(tmp_path, font, batches_of_four, monkeypatch):
    photos = list_photos(write_noise(tmp_path / "train", 2))
    training_features(pixels_themselves(), photos, ["clean"], font, 0, tmp_path / "kept", 1)
    made, augmented = [], features.augmented
    monkeypatch.setattr(
        features, "augmented", lambda name, *rest: made.append(name) or augmented(name, *rest)
    )
    training_features(
        pixels_themselves(), photos, ["clean", "cutout"], font, 0, tmp_path / "kept", 1
    )
    assert set(made) == {"cutout"}
    both = [read_features(tmp_path / "kept" / name).rows for name in ("clean", "cutout")]
    assert np.array_equal(*both)


class Recorder:
    """Replaces the trainer's update: keeps the losses."""

    def __init__(self):
        self.losses = []

    def __call__(self, name, loss, forget=None):
        self.losses.append(loss)


def made(name: str, features: int, n_classes: int, **options):
    torch.manual_seed(0)
    return make_baseline(
        {
            "model": {"name": "linear", "options": {"features": features}},
            "method": {**METHODS[name].settings, **options},
        },
        n_classes,
        0,
        0,
    )


def batch_of(inputs: torch.Tensor, labels: torch.Tensor, classes: int):
    from diagvib.imagenet_w.last_layer import FeatureBatches
    from diagvib.training.batches import Annotations, Scaling

    batches = FeatureBatches(
        inputs,
        labels,
        CPU,
        Scaling((0.0,), (1.0,)),
        Annotations(classes=tuple(map(str, range(classes)))),
    )
    return batches, batches.batch(torch.arange(len(labels)))


def test_mixed_labels_are_those_of_the_photo_before():
    batches, batch = batch_of(torch.zeros(3, 2).half(), torch.tensor([0, 1, 2]), 3)
    method = made("mixup", 2, 3)
    method.setup(batches.training_data())
    method.seen = {"mixup": View(torch.ones(3, 2).half(), torch.tensor([0.75, 0.5, 1.0]), CPU)}
    mixed = method.augment(batch)
    assert torch.equal(mixed.inputs, torch.ones(3, 2))
    assert mixed.labels.tolist() == [[0.75, 0, 0.25], [0.5, 0.5, 0], [0, 0, 1]]


def test_a_share_of_photos_is_seen_as_augmented():
    _, batch = batch_of(torch.zeros(4000, 1), torch.zeros(4000, dtype=torch.long), 2)
    for name, share in (("watermark_augmentation", 0.5), ("cutout", 0.1)):
        method = made(name, 1, 2)
        method.seen = {METHODS[name].variants[0]: View(torch.ones(4000, 1), torch.ones(4000), CPU)}
        assert method.augment(batch).inputs.mean().item() == pytest.approx(share, abs=0.03)


def test_the_ensemble_learns_a_head_for_each_shift_and_tells_them_apart():
    """The view adds 4 to a second feature, which alone identifies the shifted version."""
    inputs, labels = (
        torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).repeat(200, 1),
        torch.tensor([0, 1]).repeat(200),
    )
    batches, batch = batch_of(inputs, labels, 2)
    method = made("lle", 2, 2)
    method.setup(batches.training_data())
    method.seen = {
        "watermark": View(
            inputs * torch.tensor([-1.0, 1.0]) + torch.tensor([0.0, 4.0]), torch.ones(400), CPU
        )
    }
    optimiser = torch.optim.SGD([*method.heads.parameters(), *method.shift.parameters()], 0.3)
    for _ in range(60):
        recorder = Recorder()
        method.training_step("classify", batch, recorder)
        optimiser.zero_grad()
        recorder.losses[0].backward()
        optimiser.step()
    with torch.no_grad():
        clean = method.predict(batch).argmax(1)
        shifted = method.predict(batch_of(method.seen["watermark"].values, labels, 2)[1]).argmax(1)
    # The shift changes the sign of the first feature: one head could not be right on both.
    assert torch.equal(clean, labels) and torch.equal(shifted, labels)
    assert len(method.heads) == 2


def test_linear_networks_are_for_features_alone():
    with pytest.raises(DiagvibError, match="linear reads features, not images"):
        make_baseline(
            {"model": {"name": "linear", "options": {}}, "method": {"name": "erm"}}, 3, 64, 0
        )


def test_every_method_reads_views_that_are_made():
    assert set(variants(list(METHODS))) == set(augmentations.VARIANTS)
    assert variants(["erm", "sd"]) == ["clean"] and variants(["lle"]) == ["clean", "watermark"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory, font) -> Kept:
    """Features of 160 photos of noise in every variant, and of grey ones to measure on."""
    top = tmp_path_factory.mktemp("kept")
    photos, classifier = list_photos(write_noise(top / "train", 40)), pixels_themselves()
    sets = list(photo_sets(Folders(write_noise(top / "val", 4))))
    training_features(
        classifier, photos, list(augmentations.VARIANTS), font, 0, top / "features" / "train", 1
    )
    set_features(classifier, sets[0], font, top / "features" / "sets", 1)
    save_head(classifier.network.head, top / "features" / HEAD)
    return Kept(top / "features", photos.labels, sets)


RECIPE = Recipe(epochs=6, batch_size=32, learning_rates=(1e-1, 1e-3), seed=0, threads=1)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_a_last_layer_on_kept_features(kept, tmp_path, method):
    found = train_last_layer(method, RECIPE, kept, tmp_path, CPU)
    accuracies = found["accuracies"]
    assert list(accuracies) == ["0.1", "0.001"]
    assert found["learning_rate"] == 0.1 and found["in1k_accuracy"] == max(accuracies.values()) > 60
    assert found["photos"] == {"in_1k": 16, "in_w": 16} and found["carton_gap"] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.001.json", "0.1.json"]


def test_training_starts_from_the_networks_own_last_layer(kept, tmp_path):
    """At a learning rate of almost zero, the measures are those of the network itself."""
    recipe = Recipe(1, 32, (1e-12,), 0, 1)
    found = train_last_layer("erm", recipe, kept, tmp_path, CPU)
    values, rows = (
        getattr(read_features(kept.folder / "sets" / "in_1k"), name) for name in ("values", "rows")
    )
    head = pixels_themselves().network.head
    with torch.no_grad():
        said = head(torch.from_numpy(values).float()).argmax(1).numpy()
    assert found["in1k_accuracy"] == pytest.approx(
        100 * (said == kept.sets[0].photos.labels[rows]).mean(), abs=1e-4
    )


def test_what_a_learning_rate_gave_is_not_trained_again(kept, tmp_path, monkeypatch):
    whole = train_last_layer("erm", RECIPE, kept, tmp_path / "whole", CPU)
    train_last_layer("erm", Recipe(6, 32, (1e-1,), 0, 1), kept, tmp_path / "kept", CPU)
    kept_bytes = (tmp_path / "kept" / "0.1.json").read_bytes()
    from diagvib.imagenet_w import last_layer

    fitted, fit = [], last_layer._fit
    monkeypatch.setattr(
        last_layer,
        "_fit",
        lambda name, settings, *rest: (
            fitted.append(settings["optimiser"]["lr"]) or fit(name, settings, *rest)
        ),
    )
    assert train_last_layer("erm", RECIPE, kept, tmp_path / "kept", CPU) == whole
    assert fitted == [1e-3 * 32 / 256]
    assert (
        (tmp_path / "kept" / "0.1.json").read_bytes()
        == kept_bytes
        == (tmp_path / "whole" / "0.1.json").read_bytes()
    )
    other = Recipe(6, 32, (1e-1,), 1, 1)
    train_last_layer("erm", other, kept, tmp_path / "kept", CPU)
    assert (
        len(fitted) == 2
        and json.loads((tmp_path / "kept" / "0.1.json").read_text())["learning_rate"] == 1e-1
    )


@pytest.mark.parametrize(("method", "before"), [("erm", []), ("eiil", [1e-2] * 2)])
def test_the_learning_rate_falls_along_a_cosine(kept, tmp_path, monkeypatch, method, before):
    """That of eiil's reference model is not scaled with the batch."""
    from diagvib.imagenet_w import last_layer

    seen, step = [], last_layer.CosineDecay.on_step

    def on_step(self, images):
        seen.append(self._trainer.optimisers["model"].param_groups[0]["lr"])
        step(self, images)

    monkeypatch.setattr(last_layer.CosineDecay, "on_step", on_step)
    train_last_layer(method, Recipe(4, 90, (1e-2,), 0, 1), kept, tmp_path, CPU)
    base = 1e-2 * 90 / 256
    # 160 photos are two steps: the last batch is smaller.
    falling = [base * 0.5 * (1 + np.cos(np.pi * epoch / 4)) for epoch in range(4) for _ in range(2)]
    assert seen == pytest.approx(before + falling)


def test_a_batch_larger_than_the_photos_is_refused(kept, tmp_path):
    with pytest.raises(DiagvibError, match="batch_size: 1024 is more than the 160 training photos"):
        train_last_layer("erm", Recipe(1, 1024, (1e-2,), 0, 1), kept, tmp_path, CPU)
