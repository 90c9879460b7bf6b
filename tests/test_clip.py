"""CLIP networks: a classifier made of words, in every study; with a small random one of open_clip."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from conftest import refused
from diagvib.commands.evaluate import frozen_baseline, with_tag, write_configuration
from diagvib.commands.imagenet_w import load_classifier
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, file_sha256
from diagvib.models.clip import clip_input
from diagvib.models.registry import make_network
from diagvib.settings.baselines import complete, load_settings
from toy import run_here

open_clip = pytest.importorskip("open_clip", reason="needs the package open_clip (diagvib[clip])")
pytestmark = pytest.mark.integration

SIDE, FEATURES = 32, 12
TINY = {
    "embed_dim": FEATURES,
    "vision_cfg": {"image_size": SIDE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> tuple[Path, torch.nn.Module]:
    return tiny_clip(tmp_path_factory.mktemp("clip"))


def tiny_clip(folder: Path) -> tuple[Path, torch.nn.Module]:
    """A file of weights of clip/tiny, and the model."""
    (folder / "tiny.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(folder / "tiny.json")
    torch.manual_seed(0)
    model = open_clip.create_model("tiny").eval()
    torch.save(model.state_dict(), folder / "tiny.pt")
    return folder / "tiny.pt", model


def settings(file: Path, **changes) -> dict:
    weights = {"file": str(file), "sha256": file_sha256(file)}
    entry = {"name": "clip/tiny", "weights": weights, "frozen": True, "head": "published"}
    baseline = {
        "model": {**entry, **changes},
        "method": "erm",
        "optimiser": {"name": "sgd", "lr": 0.1},
        "batch_size": 8,
        "origin": "a test",
    }
    return complete(baseline)["model"]


@torch.no_grad()
def zero_shot(model, prompts: list[list[str]], images: torch.Tensor) -> torch.Tensor:
    """CLIP's logits, as its paper defines them: each class by its mean text."""
    tokens = open_clip.get_tokenizer("tiny")
    texts = torch.stack(
        [model.encode_text(tokens(texts), normalize=True).mean(0) for texts in prompts]
    )
    return (
        model.logit_scale.exp() * model.encode_image(images, normalize=True) @ F.normalize(texts).T
    )


def test_logits_are_those_of_words(tiny):
    file, model = tiny
    images = torch.rand(5, 3, SIDE, SIDE)
    options = {"templates": ["a photo of a {}", "one {}."], "words": {"b": "red thing"}}
    named_classes = settings(file, options=options) | {"classes": ("dark_cat", "b")}
    network = make_network(named_classes, 2, SIDE).eval()
    prompts = [
        [text.format(words) for text in options["templates"]] for words in ("dark cat", "red thing")
    ]
    with torch.no_grad():
        torch.testing.assert_close(network(images), zero_shot(model, prompts, images))
        assert network.features(images).shape == (5, FEATURES) and network.separable
    # With a new layer, features are the same, and nothing must be known of the classes.
    probe = make_network(settings(file, head="linear"), 7, SIDE).eval()
    with torch.no_grad():
        torch.testing.assert_close(probe.features(images), network.features(images))
    assert probe.head.out_features == 7
    with refused("model.options.words: unknown class 'b'; did you mean bb"):
        make_network(named_classes | {"classes": ("dark_cat", "bb")}, 2, SIDE)
    with refused("needs the names of 3 classes"):
        make_network(settings(file), 3, SIDE)


def test_words_are_read_on_a_gpu_while_the_image_tower_stays_where_it_is(tiny, monkeypatch):
    def classifier(model, *_: object, device: torch.device) -> torch.Tensor:
        assert device.type == "meta" and {p.device.type for p in model.parameters()} == {"meta"}
        return torch.ones(FEATURES, 2)

    monkeypatch.setattr("diagvib.models.clip.resolve_device", lambda _: torch.device("meta"))
    monkeypatch.setattr(open_clip, "build_zero_shot_classifier", classifier)
    network = make_network(settings(tiny[0]) | {"classes": ("a", "b")}, 2, SIDE)
    assert {p.device.type for p in network.parameters()} == {"cpu"}


def test_imagenets_classes_have_open_clips_names(tiny, monkeypatch):
    file, model = tiny
    short = [lambda name: f"a photo of a {name}."]
    monkeypatch.setattr(open_clip, "OPENAI_IMAGENET_TEMPLATES", short)
    network = make_network(settings(file), 1000, SIDE).eval()
    prompts = [[f"a photo of a {name}."] for name in open_clip.IMAGENET_CLASSNAMES]
    images = torch.rand(2, 3, SIDE, SIDE)
    with torch.no_grad():
        torch.testing.assert_close(network(images), zero_shot(model, prompts, images))
    encoder, crop, shown = load_classifier("clip/tiny", str(file), 1000, 224, None)
    assert (crop.size, crop.resize, crop.interpolation, shown) == (SIDE, SIDE, "bicubic", "tiny.pt")
    assert encoder.mean.tolist() == pytest.approx([255 * x for x in open_clip.OPENAI_DATASET_MEAN])


def test_a_fine_tuned_file_has_its_own_last_layer(tiny, tmp_path):
    """The layout of model soups: the image tower below `model`, and `classification_head`."""
    _, model = tiny
    head = torch.nn.Linear(FEATURES, 9)
    tensors = {f"module.model.{key}": value for key, value in model.state_dict().items()}
    tensors = {
        key: value
        for key, value in tensors.items()
        if ".transformer." not in key or "visual" in key
    }
    tensors |= {
        f"module.classification_head.{key}": value for key, value in head.state_dict().items()
    }
    torch.save(tensors, tmp_path / "soup.pt")
    network, images = (
        make_network(settings(tmp_path / "soup.pt"), 9, SIDE).eval(),
        torch.rand(4, 3, SIDE, SIDE),
    )
    with torch.no_grad():
        expected = head(model.encode_image(images, normalize=True))
        torch.testing.assert_close(network(images), expected)
    del tensors["module.model.visual.conv1.weight"]
    torch.save(tensors, tmp_path / "broken.pt")
    with refused("broken.pt: holds the weights of another model"):
        make_network(settings(tmp_path / "broken.pt"), 9, SIDE)


def test_names_of_models_and_weights():
    assert with_tag("clip/ViT-L-14-openai", None) == ("clip/ViT-L-14", "openai")
    assert with_tag("clip/ViT-L-14", "openai") == ("clip/ViT-L-14", "openai")
    with pytest.raises(
        DiagvibError, match="unknown CLIP model 'ViT-L-15'; did you mean .*ViT-L-14"
    ):
        frozen_baseline("clip/ViT-L-15", "openai")
    with pytest.raises(
        DiagvibError, match="unknown weights of clip/ViT-L-14 'openal'; did you mean openai"
    ):
        frozen_baseline("clip/ViT-L-14", "openal")


def test_words_and_a_linear_probe_on_every_study(tiny, tmp_path, monkeypatch):
    """The two baselines that `diagvib evaluate` writes, on a small study."""
    file, _ = tiny
    entry = frozen_baseline("clip/tiny", str(file))
    counts = "counts={train: 72, val: 18, id: 18, ood: 36}"
    overrides = ["sources=embedded", "samples=1", counts, "bindings=[shape-hue]", "image_size=64"]
    monkeypatch.chdir(tmp_path)
    path, config = write_configuration(entry, ["zgo"], None, overrides, "root")
    names = ["frozen_clip-tiny", "zero_shot_clip-tiny"]
    assert [baseline.name for baseline in config.baselines] == names
    run_here(path, root=tmp_path / "root")
    runs = pd.read_csv(tmp_path / "root/results/tables/runs.csv").set_index("baseline")
    assert (runs["status"] == "ok").all() and {*runs.index} == {*names}
    # What is predicted are the words that are closest to the features.
    (path,) = (tmp_path / "root").rglob("zero_shot_clip-tiny/zgo/shape-hue/0/predictions.parquet")
    predictions, (features,) = (
        pd.read_parquet(path),
        (tmp_path / "root").rglob("features/**/test.npy"),
    )
    classes = sorted(predictions["shape"].unique())  # not all ten
    classifier = make_network(settings(file) | {"classes": classes}, len(classes), SIDE).head
    nearest = classifier(torch.from_numpy(np.load(features))).argmax(1)
    assert [classes[index] for index in nearest] == predictions["prediction"].tolist()


@pytest.mark.parametrize("name", ["vit_l_14_openai", "vit_l_14_laion400m", "vit_h_14_laion2b"])
def test_recipes_prepare_photos_as_open_clip_does(name):
    files = [definition_path("imagenet_w/foundation_models.yaml")]
    recipe = load_settings(f"clip_{name}", files)["model"]
    tag, scaling = clip_input(recipe["name"], recipe["weights"])
    assert tag == recipe["weights"]
    for key, value in scaling.items():
        assert recipe["input"][key] == (value if isinstance(value, str) else pytest.approx(value))
