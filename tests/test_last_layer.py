"""Last layers on stored features: what views do to photos, resuming, methods on cases worked by
hand."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_table
from diagvib.imagenet_w import evaluation, last_layer, views
from diagvib.imagenet_w.classifiers import Classifier, own_preprocessing
from diagvib.imagenet_w.last_layer import Stored, store_features, train_last_layer
from diagvib.imagenet_w.photo_sets import photo_sets
from diagvib.imagenet_w.photos import list_photos
from diagvib.imagenet_w.settings import LastLayer
from diagvib.imagenet_w.views import METHODS
from diagvib.methods.registry import make_baseline
from diagvib.models.network import Network
from diagvib.training import encode
from diagvib.training.batches import Annotations, Batches
from imagenet_w_photos import CARTON, CLASSES, cjk_font

CPU = torch.device("cpu")
SIZE, TOGETHER = 16, 4
VIEWS = ["mixup", "cutmix", "cutout", "watermark", "augmix.1", "augmix.2"]


@pytest.fixture(scope="module")
def font():
    return cjk_font()


@pytest.fixture
def batches_of_four(monkeypatch):
    for module in (evaluation, views):
        monkeypatch.setattr(module, "TOGETHER", TOGETHER)
    views._method.cache_clear()
    yield
    views._method.cache_clear()


def pixels_themselves() -> Classifier:
    """A network whose features are its inputs, so that they show what was done to the photos."""
    torch.manual_seed(0)
    network = Network(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, len(CLASSES))).eval()
    return Classifier("pixels", "", network, own_preprocessing(SIZE), "digest")


def write_noise(root, each: int):
    """Photos of noise around a class's own grey."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for number in range(each):
            noise = rng.integers(0, 60, (20, 20, 3)) + 45 * label
            Image.fromarray(noise.astype(np.uint8)).save(root / name / f"{number}.png")
    return root


def store(top, photos, wanted, font, sets=()) -> Stored:
    return store_features(pixels_themselves(), photos, sets, wanted, font, 0, top, 1)


def values_of(stored: Stored, view: str) -> np.ndarray:
    return stored.view(f"train/{view}").numpy().astype(np.float32)


def test_features_show_what_a_view_left_of_each_photo(tmp_path, font, batches_of_four):
    photos = list_photos(write_noise(tmp_path / "train", 3))
    stored = store(tmp_path / "stored", photos, VIEWS, font)
    clean, n = values_of(stored, "clean"), len(photos)
    labels = read_table(tmp_path / "stored/train/clean.parquet")["label"].to_numpy()
    shown = own_preprocessing(SIZE)
    images = [Image.open(photos.root / file) for file in photos.files]
    pixels = torch.stack([shown.pixels(image) for image in images])
    of_row = shown.inputs(pixels).flatten(1).half().float().numpy()
    rows = [int(np.abs(of_row - one).sum(1).argmin()) for one in clean]
    assert sorted(rows) == list(range(n)) and rows != list(range(n))
    assert (of_row[rows] == clean).all() and photos.labels[rows].tolist() == labels.tolist()
    before = [index - 1 if index % TOGETHER else index + TOGETHER - 1 for index in range(n)]
    others = clean[before]
    for view in ("mixup", "cutmix"):
        assert values_of(stored, view)[:, -1].tolist() == labels[before].tolist()
    mixed, share = values_of(stored, "mixup")[:, :-2], values_of(stored, "mixup")[:, -2:-1]
    assert np.abs(mixed - (share * clean + (1 - share) * others)).max() < 5e-3
    pasted, share = values_of(stored, "cutmix")[:, :-2], values_of(stored, "cutmix")[:, -2]
    own, other = ((pasted == of).reshape(n, 3, -1).all(1) for of in (clean, others))
    assert (own | other).all() and share == pytest.approx(own.mean(1), abs=0.02)
    erased = (values_of(stored, "cutout") == 0).reshape(n, 3, -1).all(1).mean(1)
    assert (erased > 0.01).all() and (erased < 0.4).all()
    marked = values_of(stored, "watermark") - clean
    assert (marked > -1e-3).all() and (marked.max(1) > 0.05).sum() > n / 2
    assert not np.array_equal(values_of(stored, "augmix.1"), values_of(stored, "augmix.2"))


def test_interrupted_features_go_on_and_are_the_same(tmp_path, font, batches_of_four, monkeypatch):
    """With a broken photo among them, and an interruption after a note of the progress."""
    root = write_noise(tmp_path / "train", 6)
    (root / CARTON / "broken.png").write_text("no photo")
    photos, wanted = list_photos(root), ["mixup", "watermark"]
    stored = store(tmp_path / "whole", photos, wanted, font)
    monkeypatch.setattr(encode, "_NOTED", 8)
    read, taken = evaluation.read_photos, []

    def interrupted(*arguments):
        for number, batch in enumerate(read(*arguments)):
            if number == 3:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(evaluation, "read_photos", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path / "killed", photos, wanted, font)
    assert not list((tmp_path / "killed").rglob("*.npy"))
    monkeypatch.setattr(
        evaluation,
        "read_photos",
        lambda *arguments: (taken.append(batch) or batch for batch in read(*arguments)),
    )
    store(tmp_path / "killed", photos, wanted, font)
    assert len(taken) == 5  # of seven batches, two were there
    whole, killed = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*.*")}
        for top in (tmp_path / "whole", tmp_path / "killed")
    )
    assert whole == killed and len(values_of(stored, "clean")) == 24


def test_only_views_that_are_missing_are_made(tmp_path, font, monkeypatch):
    photos = list_photos(write_noise(tmp_path / "train", 2))
    store(tmp_path / "stored", photos, [], font)
    made, view_inputs = [], last_layer.view_inputs
    monkeypatch.setattr(
        last_layer, "view_inputs", lambda view, *rest: made.append(view) or view_inputs(view, *rest)
    )
    store(tmp_path / "stored", photos, ["cutout"], font)
    assert made == ["cutout"]


def method_of(name: str, features: int, n_classes: int):
    settings = {"name": "linear", "options": {"features": features}}
    return make_baseline({"model": settings, "method": METHODS[name][0]}, n_classes, 0, 0)


def batches_of(inputs: torch.Tensor, labels: torch.Tensor, classes: int) -> Batches:
    known = Annotations(classes=tuple(map(str, range(classes))))
    return Batches(inputs, labels, CPU, annotations=known)


def test_mixed_labels_are_those_of_both_photos():
    batch = batches_of(torch.zeros(3, 2).half(), torch.tensor([0, 1, 2]), 3).batch(torch.arange(3))
    method = method_of("mixup", 2, 3)
    method.seen = {"mixup": torch.tensor([[1, 1, 0.75, 2], [1, 1, 0.5, 0], [1, 1, 1, 1]]).half()}
    mixed = method.augment(batch)
    assert torch.equal(mixed.inputs, torch.ones(3, 2))
    assert mixed.labels.tolist() == [[0.75, 0, 0.25], [0.5, 0.5, 0], [0, 0, 1]]


def test_a_share_of_photos_is_seen_as_augmented():
    batches = batches_of(torch.zeros(4000, 1), torch.zeros(4000, dtype=torch.long), 2)
    batch = batches.batch(torch.arange(4000))
    for name, share in (("watermark_augmentation", 0.5), ("cutout", 0.1)):
        method = method_of(name, 1, 2)
        method.seen = {METHODS[name][1][0]: torch.ones(4000, 1)}
        assert method.augment(batch).inputs.mean().item() == pytest.approx(share, abs=0.03)


def test_the_ensemble_learns_a_head_for_each_shift_and_tells_them_apart():
    """The view adds 4 to a second feature, which alone identifies the shifted version."""
    inputs = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).repeat(200, 1)
    labels = torch.tensor([0, 1]).repeat(200)
    batches = batches_of(inputs, labels, 2)
    method = method_of("lle", 2, 2)
    method.setup(batches.training_data())
    # The shift changes the sign of the first feature: one head could not be right on both.
    shifted = inputs * torch.tensor([-1.0, 1.0]) + torch.tensor([0.0, 4.0])
    method.seen = {"watermark": shifted}
    optimiser = torch.optim.SGD([*method.heads.parameters(), *method.shift.parameters()], 0.3)
    for _ in range(60):
        losses = []
        update = lambda name, loss: losses.append(loss)  # noqa: B023, E731
        method.training_step("classify", batches.batch(torch.arange(400)), update)
        optimiser.zero_grad()
        losses[0].backward()
        optimiser.step()
    with torch.no_grad():
        for given in (inputs, shifted):
            batch = batches_of(given, labels, 2).batch(torch.arange(400))
            assert torch.equal(method.predict(batch).argmax(1), labels)
    assert len(method.heads) == 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory, font) -> Stored:
    """Features of 160 photos of noise in every view, and of grey ones to measure on."""
    top = tmp_path_factory.mktemp("stored")
    sets = list(photo_sets({"val": write_noise(top / "val", 4)}))
    return store(top / "features", list_photos(write_noise(top / "train", 40)), VIEWS, font, sets)


def recipe(epochs, batch_size, *rates, seed=0) -> LastLayer:
    chosen = {"epochs": epochs, "batch_size": batch_size, "learning_rates": [*rates], "seed": seed}
    return LastLayer(model="resnet50", methods=["erm"], **chosen)


RECIPE = recipe(6, 32, 1e-1, 1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_a_last_layer_on_stored_features(stored, tmp_path, method):
    found = train_last_layer(method, RECIPE, stored, tmp_path)
    accuracies = found["accuracies"]
    assert list(accuracies) == ["0.1", "0.001"]
    assert found["learning_rate"] == 0.1 and found["in1k_accuracy"] == max(accuracies.values()) > 60
    assert found["photos"] == {"in_1k": 16, "in_w": 16} and found["carton_gap"] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.001.json", "0.1.json"]


def test_training_starts_from_the_networks_own_last_layer(stored, tmp_path):
    """At a learning rate of almost zero, the measures are those of the network itself."""
    found = train_last_layer("erm", recipe(1, 32, 1e-12), stored, tmp_path)
    with torch.no_grad():
        predicted = pixels_themselves().network.head(stored.view("sets/in_1k").float()).argmax(1)
    right = (predicted == stored.batches("sets/in_1k").labels).double().mean().item()
    assert found["in1k_accuracy"] == pytest.approx(100 * right, abs=1e-4)


def test_what_a_learning_rate_gave_is_not_trained_again(stored, tmp_path, monkeypatch):
    whole = train_last_layer("erm", RECIPE, stored, tmp_path / "whole")
    train_last_layer("erm", recipe(6, 32, 1e-1), stored, tmp_path / "kept")
    fitted, fit = [], last_layer._fit
    monkeypatch.setattr(
        last_layer,
        "_fit",
        lambda settings, *rest: fitted.append(settings["optimiser"]["lr"]) or fit(settings, *rest),
    )
    assert train_last_layer("erm", RECIPE, stored, tmp_path / "kept") == whole
    assert fitted == [1e-3 * 32 / 256]
    names = ("0.1.json", "0.001.json")
    assert [(tmp_path / "kept" / name).read_bytes() for name in names] == [
        (tmp_path / "whole" / name).read_bytes() for name in names
    ]
    train_last_layer("erm", recipe(6, 32, 1e-1, seed=1), stored, tmp_path / "kept")
    assert len(fitted) == 2, "another seed"


@pytest.mark.parametrize(("method", "before"), [("erm", []), ("eiil", [1e-2] * 2)])
def test_the_learning_rate_falls_along_a_cosine(stored, tmp_path, monkeypatch, method, before):
    """That of eiil's reference model is not scaled with the batch."""
    seen, step = [], last_layer.CosineDecay.on_step

    def on_step(self, images):
        seen.append(self._trainer.optimisers["model"].param_groups[0]["lr"])
        step(self, images)

    monkeypatch.setattr(last_layer.CosineDecay, "on_step", on_step)
    train_last_layer(method, recipe(4, 90, 1e-2), stored, tmp_path)
    base = 1e-2 * 90 / 256
    # 160 photos are two steps: the last batch is smaller.
    falling = [base * 0.5 * (1 + np.cos(np.pi * epoch / 4)) for epoch in range(4) for _ in range(2)]
    assert seen == pytest.approx(before + falling)


def test_a_batch_larger_than_the_photos_is_refused(stored, tmp_path):
    with pytest.raises(DiagvibError, match="batch_size: 1024 is more than the 160 training photos"):
        train_last_layer("erm", recipe(1, 1024, 1e-2), stored, tmp_path)
