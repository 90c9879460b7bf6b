"""Pretrained weights: trusted only by their hash, and not changed by training."""

import re
import urllib.error

import pytest
import torch
import torchvision

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.methods.registry import make_baseline
from diagvib.settings.grid import Run
from diagvib.training.batches import Batches
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable
from synthetic_methods import settings_of

CPU = torch.device("cpu")
# The smallest of torchvision's with ImageNet weights and batch norm.
NAME = "shufflenet_v2_x0_5"


def frozen(name=NAME, **options):
    return settings_of(
        {"name": name, "weights": "IMAGENET1K_V1", "frozen": True, **options}, batch_size=8
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "weights.pth"
    torch.manual_seed(7)
    torch.save(torchvision.models.get_model(NAME, weights=None).state_dict(), path)
    return path


def made(path, seed=0, **options):
    options = {"weights_file": str(path), "weights_sha256": file_sha256(path), **options}
    return make_baseline(frozen(**options), 6, SIZE, seed)


def test_frozen_statistics_stay_while_everything_else_learns(weights):
    model = made(weights, frozen=False, frozen_statistics=True)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train = Batches(*separable(32), CPU)
    run = Run("resnet50_in", "zso", "hue", "hue", (), 0)
    Trainer(model, train, train, run, Protocol(2, None, 0)).fit()
    kept = {key for key, value in model.state_dict().items() if torch.equal(value, before[key])}
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert kept == {key for key in before if key.rsplit(".")[-1] in statistics}


def test_weights_come_from_the_file_and_the_head_from_the_seed(weights):
    one, other, saved = (
        made(weights, 0).model,
        made(weights, 1).model,
        torch.load(weights, weights_only=True),
    )
    for net in (one, other):
        assert all(torch.equal(value, saved[key]) for key, value in net.body.state_dict().items())
    assert one.head.weight.shape == (6, 1024) and not torch.equal(
        one.head.weight, other.head.weight
    )


@pytest.mark.parametrize("model", ["alexnet", "densenet121", "mobilenet_v3_small"])
def test_last_layer_of_any_model(model, tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(torchvision.models.get_model(model, weights=None).state_dict(), path)
    settings = frozen(model, weights_file=str(path), weights_sha256=file_sha256(path))
    batch = Batches(*separable(2), CPU).batch(torch.arange(2))
    assert make_baseline(settings, 4, SIZE, 0).eval().predict(batch).shape == (2, 4)


def test_model_without_a_linear_layer(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(torchvision.models.squeezenet1_1(weights=None).state_dict(), path)
    options = {"weights_file": str(path), "weights_sha256": file_sha256(path)}
    with pytest.raises(DiagvibError, match="squeezenet1_1 has no linear layer"):
        make_baseline(frozen("squeezenet1_1", **options), 4, SIZE, 0)


def test_names_of_an_older_torchvision(tmp_path):
    """As in the published files of the densenets."""
    path = tmp_path / "weights.pth"
    saved = torchvision.models.densenet121(weights=None).state_dict()
    torch.save(
        {
            re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", key): value
            for key, value in saved.items()
        },
        path,
    )
    settings = frozen("densenet121", weights_file=str(path), weights_sha256=file_sha256(path))
    net = make_baseline(settings, 4, SIZE, 0).model.body
    assert all(torch.equal(value, saved[key]) for key, value in net.state_dict().items())


def test_wrong_hash_shows_both_and_the_remedy(weights):
    with pytest.raises(
        DiagvibError, match="wrong hash.*replace the file, or.*model.weights_sha256"
    ) as caught:
        made(weights, weights_sha256="0" * 64)
    assert str(weights) in str(caught.value)
    assert "0" * 64 in str(caught.value) and file_sha256(weights) in str(caught.value)
    with pytest.raises(DiagvibError, match=r"wrong hash: expected sha256 f707e7126e\.\.\., found"):
        made(weights, weights_sha256=None)  # torchvision's own


def test_first_digits_of_a_hash_suffice(weights):
    made(weights, weights_sha256=file_sha256(weights)[:8].upper())


def test_missing_and_unfitting_files(weights, tmp_path):
    with pytest.raises(DiagvibError, match="absent.pth: no such file; model.weights_file"):
        made(weights, weights_file=str(tmp_path / "absent.pth"))
    other = tmp_path / "other.pth"
    torch.save({"a": torch.zeros(1)}, other)
    with pytest.raises(
        DiagvibError, match="other.pth: holds no weights of torchvision's shufflenet_v2_x0_5"
    ):
        made(other)
    other.write_bytes(b"no weights")
    with pytest.raises(DiagvibError, match="other.pth: holds no weights"):
        made(other)


def test_unknown_names(weights):
    with pytest.raises(
        DiagvibError, match="unknown weights of shufflenet_v2_x0_5 'IMAGENET1K_V7'; did you mean"
    ):
        made(weights, weights="IMAGENET1K_V7")
    with pytest.raises(
        DiagvibError, match="unknown torchvision classifier 'resnet81'; did you mean resnet18"
    ):
        make_baseline(frozen("resnet81"), 6, SIZE, 0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints" / "shufflenetv2_x0.5-f707e7126e.pth"


def without_file():
    return make_baseline(frozen(), 6, SIZE, 0)


def test_without_network_it_says_what_to_do(cache, monkeypatch):
    def offline(*arguments, **keywords):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(
        DiagvibError,
        match="downloaded.*no network.*model: {name: .*, weights: .*, weights_file: PATH}",
    ):
        without_file()


def test_download_is_hashed_too(cache, monkeypatch, weights):
    """This includes what an earlier program left in torchvision's cache, which torch itself would
    trust."""
    cache.write_bytes(weights.read_bytes())
    with pytest.raises(
        DiagvibError, match="wrong hash.*delete it; the next run downloads it again"
    ):
        without_file()
    cache.unlink()

    def arrives(url, path, hash_prefix, progress):
        assert hash_prefix == "f707e7126e"
        raise RuntimeError('invalid hash value (expected "f707e7126e", got "1234")')

    monkeypatch.setattr(torch.hub, "download_url_to_file", arrives)
    with pytest.raises(DiagvibError, match='expected "f707e7126e", got "1234"'):
        without_file()
