"""Baselines: the shipped ones, the networks that their names stand for, and mistakes in entries."""

import random
import sys
import textwrap

import numpy as np
import pytest
import torch

from conftest import refused
from diagvib.foundation.seeding import seed_generators
from diagvib.methods.registry import make_baseline
from diagvib.models.registry import family
from diagvib.settings.baselines import baseline_names, complete, load_settings, shortened
from diagvib.training.batches import Batches
from synthetic_images import SIZE, separable
from synthetic_methods import settings_of

CPU = torch.device("cpu")


@pytest.fixture
def batch():
    pixels, labels = separable(6)
    return Batches(pixels, labels, CPU).batch(torch.arange(6))


def made(name, seed=0):
    return make_baseline(load_settings(name), n_classes=6, image_size=SIZE, seed=seed)


@pytest.mark.parametrize("name", ["small_cnn", "vae"])
def test_initial_weights_follow_the_seed(name):
    original, again, alternative = (list(made(name, seed).parameters()) for seed in (0, 0, 1))
    assert all(map(torch.equal, original, again)) and not all(
        map(torch.equal, original, alternative)
    )


def test_construction_leaves_the_global_random_state_alone():
    def drawn():
        return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()

    seed_generators(5)
    before = drawn()
    seed_generators(5)
    made("small_cnn")
    assert drawn() == before


def test_a_shortened_entry_means_the_same():
    for name in baseline_names():
        settings = load_settings(name)
        assert complete(shortened(settings)) == settings


def test_a_torchvision_classifier_by_its_name(batch):
    """One that gives auxiliary logits, too."""
    model = {"name": "googlenet", "options": {"init_weights": False}}
    net = make_baseline(settings_of(model), 6, SIZE, 0).train()
    assert net.predict(batch).shape == (6, 6)


def test_timm_model_by_its_name(batch):
    pytest.importorskip("timm", reason="timm is optional and not installed here")
    transformer = settings_of({"name": "timm/vit_tiny_patch16_224", "options": {"img_size": SIZE}})
    assert make_baseline(transformer, 6, SIZE, 0).eval().predict(batch).shape == (6, 6)
    distilled = settings_of(
        {"name": "timm/deit_tiny_distilled_patch16_224", "options": {"img_size": SIZE}}
    )
    assert make_baseline(distilled, 6, SIZE, 0).eval().predict(batch).shape == (6, 6), "two heads"
    with refused("unknown timm model 'resnet10tt'; did you mean resnet10t"):
        make_baseline(settings_of("timm/resnet10tt"), 6, SIZE, 0)


def test_timm_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with refused("needs the package timm, which is not installed; `pip install timm`"):
        make_baseline(settings_of("timm/resnet10t"), 6, SIZE, 0)


ADAM = "{name: adam, lr: 0.1}"
ASR, VAE = "model: resnet18, method: {name: asr", "method: {name: vae"
CLIP = "method: erm, model: {name: clip/ViT-B-32, weights: openai, frozen: true"
OUTPUTS = "model: {name: 'lab:net', head: published}, method: {name: diagvib.methods.fitted:Fitted"
DRAWN = "model: small_cnn, method: {name"
VIEWS = f"{DRAWN}: diagvib.methods.views"
PLAIN = "method: erm, model: {name: resnet50"
RESNET50 = "method: erm, model: {name: resnet50, weights: IMAGENET1K_V1"


@pytest.mark.parametrize(
    ("inputs", "option", "message"),
    [
        (
            ASR,
            "base_widht: 3",
            "mine.method.base_widht: unknown option .*; did you mean base_width",
        ),
        (VAE, "beta: .nan", "mine.method.beta: nan is not of type 'number'"),
        (ASR, "supervision: cues", "mine.method.supervision: 'cues' is not one of"),
        (VAE, "beta: 1e-2", "mine.method.beta: .*with a dot"),
        (ASR, "base_width: 1e2", "mine.method.base_width: .*without an exponent"),
        (RESNET50, "weights_sha256: 0676ba61", "mine.model.weights_sha256: this needs the key"),
        (RESNET50, "option: {}", "'mine.model.option'; did you mean mine.model.options"),
        (PLAIN, "frozen: true, head: published", "mine.model.head: without weights, its last"),
        (CLIP, "options: {words: [a, b]}", "mine.model.options.words: a text for each class"),
        (CLIP, "options: {templates: []}", "mine.model.options.templates: texts with {} once"),
        (f"{VIEWS}:Augmented", "view: cuttout", "mine.method.view: 'cuttout' is not one of"),
        (f"{VIEWS}:Mixed", "view: cutout", "mine.method.view: 'cutout' is not one of"),
        (f"{VIEWS}:WatermarkEnsemble", "views: []", "mine.method.views: .*non-empty"),
        (f"{VIEWS}:AugMixed", "severity: 3", "mine.method.severity: unknown option"),
        (OUTPUTS, "mean: [0, 0, 0]", "mine.method.mean: .* with std: None; leave it out"),
        (f"{DRAWN}: lle", "ablation: augmix, detach: false", "detach: lle does not use it with"),
        (f"{DRAWN}: afr", "images: validation, held_out: 0.5", "held_out: afr does not use it"),
        (f"{DRAWN}: dfr", "head: sgd, c: 0.1", "mine.method.c: dfr does not use it with head: sgd"),
        (f"{DRAWN}: dfr", "retrain_epochs: 2", "epochs: dfr does not use it with head: logistic"),
        (f"{DRAWN}: dfr", "head: sgd, images: validation", "images: dfr does not use it with head"),
        (
            RESNET50,
            "frozen: true, head: published, layer: layer3",
            "mine.model.layer: the network's",
        ),
    ],
)
def test_wrong_options_name_file_and_key(tmp_path, inputs, option, message):
    path = tmp_path / "baselines.yaml"
    path.write_text(
        f"mine: {{{inputs}, {option}}}, optimiser: {ADAM}, batch_size: 4, origin: test}}\n"
    )
    with refused(message) as caught:
        load_settings("mine", [path])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["asr", "vae"])
def test_other_image_sizes(name):
    model = make_baseline(load_settings(name), 6, 96, 0)
    batch = Batches(*separable(2, size=96), CPU).batch(torch.arange(2))
    assert torch.isfinite(model.eval().predict(batch)).all()


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("asr", "lower levels, or choose image_size 96"),
        ("vae", "choose image_size 96"),
    ],
)
def test_image_size_that_does_not_fit(name, fits):
    with refused(f"method: {name}: image_size 100 .*{fits}$"):
        make_baseline(load_settings(name), 6, 100, 0)


@pytest.mark.parametrize(
    "model",
    ["mobilenet_v3_small", "timm/resnet10t", "squeezenet1_1"],
)
def test_features_and_head_make_the_logits(model, batch):
    if model.startswith("timm"):
        pytest.importorskip("timm", reason="timm is optional and not installed here")
    network = make_baseline(settings_of(model), 6, SIZE, 0).eval().model
    with torch.inference_mode():
        features = network.features(batch.inputs)
        assert features.dim() == 2 and torch.equal(network.head(features), network(batch.inputs))
    assert network.separable == (family(model) != "torchvision" or model != "squeezenet1_1")
    assert isinstance(network.head, torch.nn.Linear if network.separable else torch.nn.Identity)


def test_a_module_whose_last_linear_layer_is_not_its_end_stays_whole(tmp_path, monkeypatch, batch):
    (tmp_path / "softmax_nets.py").write_text(
        textwrap.dedent("""
        from torch import nn

        def ends_in_softmax(n_classes, image_size):
            return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, n_classes), nn.LogSoftmax(1))
        """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    network = make_baseline(settings_of("softmax_nets:ends_in_softmax"), 6, SIZE, 0).eval().model
    assert not network.separable
    assert network(batch.inputs).exp().sum(1).tolist() == pytest.approx([1] * 6)


@pytest.mark.parametrize(
    "source",
    [
        "from my_nets import *",
        "try:\n    import nothing_here\nexcept ImportError:\n    def made(): ...",
        "globals()['made'] = print",
    ],
)
def test_a_name_that_a_module_may_have_is_not_refused_unread(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "may_have.py").write_text(f"{source}\n")
    assert settings_of("may_have:made")["model"]["name"] == "may_have:made"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tinny_nets:tinny", r"there is no module tinny_nets"),
        ("my_nets:too_fwe", r"my_nets.py: unknown function 'too_fwe'; did you mean too_few\?"),
    ],
)
def test_a_mistyped_model_is_found_before_anything_runs(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_nets.py").write_text("def too_few(): ...\nraise RuntimeError('run')\n")
    (tmp_path / "mine.yaml").write_text(
        f"tiny: {{model: '{name}', method: erm, batch_size: 4, origin: test, optimiser: {ADAM}}}\n"
    )
    with refused(rf"mine.yaml: tiny.model: {name} cannot be found: .*{message}"):
        load_settings("tiny", [tmp_path / "mine.yaml"])
