"""Where a method looks: networks that read one part of an image by construction, and the regions of
scenes."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

from conftest import refused
from diagvib.images.files import Images
from diagvib.methods.registry import make_baseline
from diagvib.models.maps import smooth_evidence
from diagvib.models.network import Network
from diagvib.results.saliency_shares import measures, saliency_sentence, saliency_tables
from diagvib.scenes import load_scene
from diagvib.scenes.digits.scene import Digits
from diagvib.settings.baselines import load_settings
from diagvib.studies.known_studies import SHIPPED
from diagvib.training.batches import Batches
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.saliency import saliency, shares, smooth_saliency
from synthetic_images import SIZE, separable

CPU = torch.device("cpu")
PROTOCOL = Protocol(max_epochs=1, patience=None, seed=1)
ROWS = np.arange(20)
CORNER = np.s_[:, : SIZE // 2, : SIZE // 2]


@pytest.fixture
def batches():
    return Batches(*separable(20), CPU)


@pytest.fixture
def method():
    return make_baseline(load_settings("small_cnn"), 3, SIZE, seed=0)


def read_corner(method) -> None:
    """Let the head read only the first of the last map's 4 x 4 cells."""
    with torch.no_grad():
        method.model.head.weight.view(3, 128, 16)[..., 1:] = 0
        method.model.head.bias.zero_()


def looks_at_corner(location) -> bool:
    """Whether nothing is found outside it, of each of 20 images."""
    return torch.allclose(location[CORNER].sum((1, 2)), torch.ones(20), atol=1e-5)


def test_a_network_that_reads_one_corner_looks_there(batches, method):
    read_corner(method)
    logits, location = saliency(method, batches, ROWS, PROTOCOL)
    assert location.shape == (20, SIZE, SIZE) and (location >= 0).all()
    assert torch.allclose(location.sum((1, 2)), torch.ones(20), atol=1e-5)
    assert looks_at_corner(location)
    assert torch.equal(logits.argmax(1), predict(method, batches, PROTOCOL)[0])


def test_smooth_grad_cam_plus_plus_is_that_of_a_calculation_by_hand():
    """One image, one channel, two cells 2 and 1; gradients of two copies (1, 0) and (3, 2)."""
    maps = torch.tensor([[[[2.0, 1.0]]]])
    copies = [torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[3.0, 2.0]]]])]
    # Means of the gradients 2 and 1, of their squares 5 and 2, of their cubes 14 and 4; the map's sum 3.
    weight = 5 / (2 * 5 + 3 * 14) * 2 + 2 / (2 * 2 + 3 * 4) * 1
    expected = torch.tensor([[[2 * weight, weight]]])
    assert torch.allclose(smooth_evidence(copies, maps), expected)
    assert not smooth_evidence([-copy for copy in copies], maps).any(), "nothing speaks for it"


def test_smooth_saliency_is_where_the_network_looks(batches, method):
    read_corner(method)
    before = torch.get_rng_state()
    heat = smooth_saliency(method, batches, ROWS, PROTOCOL)
    assert heat.shape == (20, SIZE, SIZE) and (heat >= 0).all() and heat.any()
    assert torch.equal(heat, smooth_saliency(method, batches, ROWS, PROTOCOL))
    assert torch.equal(torch.get_rng_state(), before)
    method.model = Network(Corner(), nn.Identity())
    assert smooth_saliency(method, batches, ROWS, PROTOCOL) is None, "without a map"


class Corner(nn.Module):
    """Reads the pixels of one corner, without a map."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs):
        return self.layer(inputs[..., : SIZE // 2, : SIZE // 2].mean((2, 3)))


class Darkened(Corner):
    """Changes its inputs in place."""

    def forward(self, inputs):
        inputs -= 0.1
        return super().forward(inputs)


class Hidden(Corner):
    forward = torch.no_grad()(Corner.forward)


class SideBranch(Corner):
    """A map at the end that the features do not depend on."""

    def __init__(self):
        super().__init__()
        self.side = nn.Conv2d(3, 2, 1)

    def forward(self, inputs):
        features = super().forward(inputs)
        self.side(inputs)
        return features


@pytest.mark.parametrize("kind", [Corner, Darkened, SideBranch])
def test_without_a_map_behind_the_prediction_the_gradient_at_the_pixels_counts(
    batches, method, kind
):
    method.model = Network(kind(), nn.Identity())
    assert looks_at_corner(saliency(method, batches, ROWS, PROTOCOL)[1])


def test_features_and_predictions_without_a_gradient_have_none(batches, method):
    features = Batches(torch.zeros(20, 5), torch.zeros(20, dtype=torch.int64), CPU)
    assert saliency(method, features, ROWS, PROTOCOL) is None
    method.model.requires_grad_(False)
    assert saliency(method, batches, ROWS, PROTOCOL) is not None, "a frozen network has gradients"
    method.model = Network(Hidden(), nn.Linear(3, 3))
    assert saliency(method, batches, ROWS, PROTOCOL) is None, "only the head has them"
    method.predict = lambda batch: torch.zeros(len(batch.pixels), 3)
    assert saliency(method, batches, ROWS, PROTOCOL) is None


def test_an_encoder_that_learnt_before_the_head_shows_where_it_looks():
    images = torch.randint(256, (20, 64, 64, 3), dtype=torch.uint8)
    batches = Batches(images, torch.zeros(20, dtype=torch.int64), CPU)
    method = make_baseline(load_settings("vae"), 3, 64, seed=0)
    assert saliency(method, batches, ROWS, PROTOCOL)[1].any(2).any(1).all()


def test_nothing_else_changes(batches, method):
    before = {name: value.clone() for name, value in method.state_dict().items()}
    state = torch.get_rng_state()
    saliency(method, batches, ROWS, PROTOCOL)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in method.parameters())


def test_the_share_on_a_digit_is_that_of_its_pixels(method):
    """A digit in the corner that the network reads, and one elsewhere."""
    grey = torch.full((2, SIZE, SIZE, 3), 127, dtype=torch.uint8)
    grey[0, :16, :16], grey[1, 32:48, 32:48] = 200, 200
    batches = Batches(grey, torch.zeros(2, dtype=torch.int64), CPU)
    read_corner(method)
    test = Images(grey, pa.table({"shape": ["0", "0"]}), {"scene": "digits"})

    def share(row):
        return shares(method, batches, test, ["shape"], np.array([row]), PROTOCOL)["shape"]

    assert share(0)["area"] == share(1)["area"] == 1 / 16
    assert share(0)["share"] > 0.5 and share(1)["share"] == 0
    photos = Images(grey, test.table, {"scene": "dogs"})
    assert shares(method, batches, photos, ["breed"], ROWS[:2], PROTOCOL) == {}


def test_share_and_area_are_of_the_same_images(monkeypatch):
    """Those with any saliency: not the second one, which shows its digit at four times the size."""
    location = torch.zeros(2, SIZE, SIZE)
    location[0, 0, 0] = 1
    monkeypatch.setattr("diagvib.training.saliency.saliency", lambda *_: (None, location))
    grey = torch.full((2, SIZE, SIZE, 3), 127, dtype=torch.uint8)
    grey[0, :16, :16], grey[1, 32:, 32:] = 200, 200
    test = Images(grey, pa.table({"shape": ["0", "0"]}), {"scene": "digits"})
    result = shares(None, None, test, ["shape"], np.arange(2), PROTOCOL)
    assert result == {"shape": {"share": 1, "area": 1 / 16}}
    display = (grey[..., 0] != 127).numpy().astype(np.uint8) * 255
    monkeypatch.setattr(Digits, "region", lambda *_: display)
    with refused(r"region gives uint8\[2, .* for shape; bool"):
        shares(None, None, test, ["shape"], np.arange(2), PROTOCOL)


def recipe_of(row: float, column: float, scale: float) -> pa.Table:
    """A digit of this position and scale."""
    return pa.table(
        {"position_row": [row], "position_column": [column], "scale_factor": [scale]}
        | {name: [0.0] for name in ("hue_degrees", "lightness_1", "lightness_2")}
        | {name: [0] for name in ("digit", "crop_row", "crop_column")}
    )


def test_where_images_show_a_factor():
    digits, cars = load_scene("digits"), load_scene("cars")
    pixels = np.full((1, 128, 128, 3), 127, np.uint8)
    recipes = recipe_of(0.25, 0.5, 1.0)
    box = digits.region("position", recipes, pixels)
    assert box.sum() == 40 * 40 and box[0, 32, 64]
    parts = [cars.region(factor, recipes, pixels) for factor in ("car", "object", "background")]
    assert (np.sum(parts, axis=0) == 1).all(), "each pixel belongs to one"
    assert [part.mean() for part in parts[:2]] == [1 / 4, 1 / 16] and parts[1][0, 64, 112]


def test_what_speaks_against_a_class_does_not_count(batches, method):
    read_corner(method)
    with torch.no_grad():
        weights = method.model.head.weight.view(3, 128, 4, 4)
        weights[..., 3, 3] = -weights[..., 0, 0] / 10
    location = saliency(method, batches, ROWS, PROTOCOL)[1]
    assert (location[:, -1, -1] == 0).any()


def test_where_an_image_shows_a_digit():
    """Also where one channel is that of the canvas, and at the border of the image."""
    pixels = np.full((1, 64, 64, 3), 127, np.uint8)
    pixels[0, 5, 6] = 127, 10, 127
    recipes = recipe_of(0.9, 0.9, 1.4)
    digits = load_scene("digits")
    assert np.argwhere(digits.region("shape", recipes, pixels)).tolist() == [[0, 5, 6]]
    assert digits.object_boxes(recipes, 64)[0, 2:].tolist() == [64, 64]


def test_the_columns_of_a_run_are_named_by_role():
    record = {"shape": {"share": 0.5, "area": 0.1}, "hue": {"share": 0.2, "area": 0.3}}
    target = {"saliency_target": 0.5, "area_target": 0.1}
    assert measures(record, "shape-hue") == target | {"saliency_cue": 0.2, "area_cue": 0.3}
    assert measures(record, "shape-position-hue") == (
        target | {"saliency_cue_2": 0.2, "area_cue_2": 0.3}
    )


def test_where_networks_look_is_the_mean_over_the_runs_that_say_so():
    """Without a cue, there is no share of it; a frozen network has no numbers at all."""
    rows = [
        ("zso", "one", 0.9, 0.1, np.nan, np.nan),
        ("zgo", "one", 0.2, 0.1, 0.6, 0.3),
        ("zgo", "one", 0.4, 0.1, 0.8, 0.3),
        ("zgo", "two", 0.6, 0.1, 0.1, 0.3),
        ("zgo", "frozen", *[np.nan] * 4),
    ]
    roles = ["saliency_target", "area_target", "saliency_cue", "area_cue"]
    runs = pd.DataFrame(rows, columns=["study", "baseline", *roles])
    (table,) = saliency_tables(runs, SHIPPED)
    words = [[word.replace("\N{NO-BREAK SPACE}", " ") for word in row] for row in table.rows]
    assert words == [
        ["ZSO", "one", "90 % (10 %)", "-", "1"],
        ["ZGO", "one", "30 % (10 %)", "70 % (30 %)", "2"],
        ["ZGO", "two", "60 % (10 %)", "10 % (30 %)", "1"],
    ]
    message = saliency_sentence(runs, SHIPPED).replace("\N{NO-BREAK SPACE}", " ")
    assert message.startswith("one, ZGO: 30 % of the evidence for its predictions")
    assert saliency_sentence(runs[["study", "baseline"]], SHIPPED) == ""
