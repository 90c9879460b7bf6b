"""Weights of trained networks: trusted only by their hash, from a file, torch's cache, a download or
the mirror."""

import re
import urllib.error

import pandas as pd
import pytest
import torch
import torchvision

from conftest import refused
from diagvib.foundation.files import definition_path, file_sha256, read_json
from diagvib.images.datasets import ImageFiles
from diagvib.methods.registry import make_baseline
from diagvib.models import weights
from diagvib.models.weights import located, read_state
from diagvib.papers.notes import scratch_note
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Run
from diagvib.settings.model_settings import published_folder
from diagvib.settings.resolve import load_config
from diagvib.training.batches import Batches
from diagvib.training.job import Folders, Job
from diagvib.training.protocol import Protocol
from diagvib.training.run import train_runs
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable, write_dataset
from synthetic_methods import settings_of
from test_trainer import CPU, RUN

# The smallest of torchvision's with ImageNet weights and batch norm, and its published file.
NAME, FILE = "shufflenet_v2_x0_5", "shufflenetv2_x0.5-f707e7126e.pth"


def settings(name=NAME, **options):
    return settings_of({"name": name, "weights": "IMAGENET1K_V1", **options}, batch_size=8)


def saved(path, name=NAME, changed=lambda key: key):
    torch.manual_seed(7)
    state = torchvision.models.get_model(name, weights=None).state_dict()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({changed(key): value for key, value in state.items()}, path)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A mirror's file, with random weights."""
    return saved(tmp_path_factory.mktemp("mirror") / "weights" / FILE)


def made(path, seed=0, name=NAME, **options):
    keys = {"weights_file": str(path), "weights_sha256": path.exists() and file_sha256(path)}
    keys = {key: value or "0" * 64 for key, value in keys.items()}
    return make_baseline(settings(name, **{**keys, **options}), 6, SIZE, seed)


def test_weights_come_from_the_file_and_the_head_from_the_seed(file):
    single, alternative = (made(file, seed).model for seed in (0, 1))
    state = torch.load(file, weights_only=True)
    for net in (single, alternative):
        assert all(torch.equal(value, state[key]) for key, value in net.body.state_dict().items())
    assert single.head.weight.shape == (6, 1024)
    assert not torch.equal(single.head.weight, alternative.head.weight)


def test_frozen_statistics_stay_while_everything_else_learns(file):
    model = made(file, frozen_statistics=True)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train = Batches(*separable(32), CPU)
    run = Run("resnet50_in", "zso", "hue", 0)
    Trainer(model, train, train, run, Protocol(2, None, 0)).fit()
    retained = {key for key, value in model.state_dict().items() if torch.equal(value, before[key])}
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert retained == {key for key in before if key.rsplit(".")[-1] in statistics}


def older(key):
    """As in the published files of the densenets."""
    return re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", key)


@pytest.mark.parametrize("name", ["densenet121", "squeezenet1_1"])
def test_the_last_linear_layer_is_replaced_if_there_is_one(name, tmp_path):
    path = saved(tmp_path / "weights.pth", name, older)
    if name == "squeezenet1_1":
        with refused("squeezenet1_1 has no linear layer"):
            made(path, name=name)
        return
    batch = Batches(*separable(2), CPU).batch(torch.arange(2))
    assert made(path, name=name).eval().predict(batch).shape == (2, 6)


def test_a_wrong_hash_shows_both_and_the_remedy(file):
    with refused("wrong hash.*replace the file, or") as e:
        made(file, weights_sha256="0" * 64)
    assert all(part in str(e.value) for part in (str(file), "0" * 64, file_sha256(file)))
    with refused(r"wrong hash: expected sha256 f707e7126e\.\.\., found"):
        made(file, weights_sha256=None)  # torchvision's own
    made(file, weights_sha256=file_sha256(file)[:8].upper())


def test_missing_and_unfitting_files(tmp_path):
    path = tmp_path / "x.pth"
    with refused("x.pth: no such file"):
        made(path)
    for content, reason in (
        ({"a": torch.zeros(1)}, ""),
        (["no weights"], ""),
        ({0: torch.zeros(1)}, r" \(no dict of tensors by name\)"),
        ({"model": {"a": torch.zeros(1)}}, ".*tensors by name; perhaps they are under 'model'"),
    ):
        torch.save(content, path)
        with refused(f"x.pth: holds no weights{reason}"):
            made(path)
    with refused(r"\(no key 'net', but \['model'\]\); a whole file is needed that torch.save"):
        read_state(path, "net")
    for content, reason in ((b"", "EOFError"), (b"\x40\0\0\0\0\0\0\0{", "a file of another kind")):
        path.write_bytes(content)
        with refused(rf"x.pth: holds no weights \({reason}\); .*, not safetensors"):
            read_state(path)


def test_unknown_names(file):
    with refused("unknown weights of .* 'IMAGENET1K_V7'; did you mean"):
        made(file, weights="IMAGENET1K_V7")
    with refused("classifier 'resnet81'; did you mean resnet18"):
        make_baseline(settings("resnet81"), 6, SIZE, 0)


def test_downloads_are_hashed_too_and_without_a_network_it_says_what_to_do(
    tmp_path, monkeypatch, file
):
    """This includes what an earlier program left in torchvision's cache, which torch itself would
    trust."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    cache = tmp_path / "checkpoints" / FILE
    cache.parent.mkdir()
    cache.write_bytes(file.read_bytes())

    def no_network_is_made(message):
        with refused(message):
            make_baseline(settings(), 6, SIZE, 0)

    no_network_is_made("wrong hash.*delete it; the next run downloads it again")
    cache.unlink()

    def arrives(url, path, hash_prefix, progress):
        assert hash_prefix == "f707e7126e"
        raise RuntimeError('invalid hash value (expected "f707e7126e", got "1234")')

    def offline(*arguments, **keywords):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", arrives)
    no_network_is_made('expected "f707e7126e", got "1234"')
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    no_network_is_made("downloaded.*no network.*model.weights_file")


def test_a_models_weights_are_found_in_the_mirror_by_torchvisions_name(file):
    model = settings()["model"]
    of_open_clip = {**model, "name": "clip/RN50", "weights": "openai"}
    assert located(model, file.parent) == {**model, "weights_file": str(file)}
    for unchanged, folder in (
        (model, None),
        (model, file.parent.parent),
        ({**model, "weights": None}, file.parent),
        ({**model, "weights_file": "mine.pth"}, file.parent),
        (of_open_clip, file.parent),
    ):
        assert located(unchanged, folder) == unchanged
    folders = [None, file.parent.parent, file.parent]
    assert published_folder(model, folders) == file.parent
    for others in (of_open_clip, {**model, "name": "resnet55"}, None):
        assert published_folder(others, folders) is None
    with refused("IMAGENET1K_V9'; did you mean IMAGENET1K_V1"):
        located({**model, "weights": "IMAGENET1K_V9"}, file.parent)


def test_a_training_takes_them_from_there_and_keeps_quiet_about_the_path(
    file, tmp_path, monkeypatch
):
    write_dataset(tmp_path / "images", "zso", "hue", 0, counts=(16, 8, 12))
    images, inputs = ImageFiles(tmp_path / "images"), settings()
    job = Job(inputs, Protocol(1, None, 3), CPU, images, weights=file.parent)
    folders = Folders(tmp_path / "runs", tmp_path / "checkpoints")
    with refused(f"{FILE}: wrong hash: expected sha256 f707e7126e"):
        train_runs(job, [RUN], folders)
    monkeypatch.setattr(weights, "named_hash", lambda url: file_sha256(file)[:8])
    train_runs(job, [RUN], folders)
    assert read_json(tmp_path / "runs/0/run.json")["settings"] == inputs


def test_photos_without_published_weights_are_another_experiment():
    config = load_config(definition_path("spawrious.yaml"))
    names = [entry.name for entry in config.baselines]
    settings = stage_settings(config, "tabulate").plain()
    frame = pd.DataFrame([{"baseline": name, "study": "dogs-o2o-easy"} for name in names])
    assert scratch_note(frame, settings) == (
        "Trained from scratch, not from published weights as in the paper: dogs_erm_scratch, "
        "dogs_group_dro_scratch, dogs_mmd_scratch."
    )
    assert scratch_note(frame.assign(study="o2o-easy"), settings) == "", (
        "digits are learnt from scratch in the paper too"
    )
    published = definition_path("photos/colored_mnist/config.yaml")
    settings = stage_settings(load_config(published), "tabulate").plain()
    frame = pd.DataFrame({"baseline": ["erm"], "study": settings["studies"][:1]})
    assert scratch_note(frame, settings) == "", "as published: a small network from scratch"


def test_dropout_is_of_the_features_and_only_in_training():
    method = make_baseline(settings_of({"name": "small_cnn", "dropout": 0.5}), 6, SIZE, 0)
    plain, inputs = make_baseline(settings_of(), 6, SIZE, 0), torch.rand(4, 3, SIZE, SIZE)
    features = plain.eval().model.features(inputs)
    assert torch.equal(method.eval().model.features(inputs), features)
    method.train()
    method.model.body.eval()
    dropped = method.model.features(inputs)
    retained = dropped != 0
    assert retained.float().mean() < 0.6 * (features != 0).float().mean()
    assert torch.allclose(dropped[retained], features[retained] / 0.5)
    with refused("dropout: this is for networks that are trained"):
        settings_of({"name": "resnet18", "frozen": True, "dropout": 0.1})
    with refused("squeezenet1_1 has no last layer for dropout"):
        make_baseline(settings_of({"name": "squeezenet1_1", "dropout": 0.1}), 6, SIZE, 0)


def test_inputs_are_scaled_as_the_weights_of_googlenet_want(tmp_path):
    """torchvision does so itself only if it loads the weights."""
    network = made(saved(tmp_path / "googlenet.pth", "googlenet"), name="googlenet").model
    scaling = [m.transform_input for m in network.modules() if hasattr(m, "transform_input")]
    assert scaling == [True]
