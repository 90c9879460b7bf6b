"""Features that depend on more than their image are refused, with the likely reason."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from conftest import refused
from diagvib.images.files import Images
from diagvib.models.independence import check_independent
from diagvib.models.registry import make_network
from diagvib.training.encode import feature_chunks
from diagvib.training.probe import features_by

PIXELS = torch.randint(0, 256, (40, 4, 4, 3), dtype=torch.uint8)
PIXELS = PIXELS.repeat_interleave(8, 1).repeat_interleave(8, 2)


def network(**options):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 5, 2), nn.BatchNorm2d(8, **options), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
    return nn.Sequential(*layers, nn.Flatten())


def scaled(net):
    return lambda images: net(images.float() / 255 - 0.5)


def colours(images):
    return F.adaptive_avg_pool2d(images.float() / 255, 4).flatten(1)


def standardised(images):
    values = colours(images)
    return (values - values.mean(0)) / values.std(0)


def inverted_in_place(images):
    return colours(images.bitwise_not_())


calls = []


def counted(images):
    calls.append(0)
    return colours(images) * (1 + 0.1 * len(calls))


def placed(images):
    return colours(images) * torch.linspace(1, 2, len(images))[:, None]


def same_noise(images):
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return colours(images + 20 * noise)


def noisy(images):
    return colours(images) + 0.02 * torch.rand(len(images), 1)


DEPENDENT = [
    (scaled(network().train()), "which images come with it: batch norm"),
    (scaled(network(track_running_stats=False).eval()), "lacks running statistics"),
    (standardised, "standardised per call"),
    (lambda images: F.instance_norm(colours(images).T[None])[0].T, "standardised per call"),
    (lambda images: colours(images).softmax(0), "which images come with it"),
    (lambda images: colours(images).argsort(0).float(), "which images come with it"),
    (lambda images: colours(images).roll(1, 0), "which images come with it"),
    (lambda images: F.dropout(colours(images), 0.1), "call to call: dropout is active"),
    (noisy, "random numbers are drawn"),
    (counted, "differ from call to call"),
    (same_noise, "its place among the others"),
    (placed, "its place among the others"),
    (inverted_in_place, "changes the images in place"),
]


@pytest.mark.parametrize(("features", "message"), DEPENDENT)
def test_a_probed_function_gives_each_image_features_of_its_own(features, message):
    with refused(f"probe: .*{message}"):
        features_by(features, Images(PIXELS, None, {}))


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x0_5"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ordinary_networks_pass_in_any_precision_and_only_in_evaluation_mode(name, dtype):
    torch.manual_seed(0)
    net = torchvision.models.get_model(name, weights=None)
    images = F.interpolate(torch.randn(8, 3, 4, 4), 32) * torch.rand(8, 1, 1, 1)
    net = net.to(dtype)
    check_independent(net.eval(), images.to(dtype), "net")
    with refused("net: an image's features depend on which images"):
        trained = copy.deepcopy(net).eval()
        for module in trained.modules():
            module.train(isinstance(module, nn.BatchNorm2d))
        check_independent(trained, images.to(dtype), "net")


class Dropped(nn.Linear):
    """Drops values in evaluation mode, too."""

    def forward(self, images):
        return super().forward(F.dropout(images.flatten(1), 0.1))


class InPlace(nn.Linear):
    def forward(self, images):
        return super().forward(images.mul_(2).flatten(1))


def own(n_classes, image_size, kind):
    if kind == "batch norm":
        body = network(track_running_stats=False)
        return nn.Sequential(*body, nn.Linear(32, n_classes))
    return {"dropout": Dropped, "in place": InPlace}[kind](3 * image_size**2, n_classes)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("batch norm", "lacks running statistics"),
        ("dropout", "dropout is active"),
        ("in place", "changes the images in place"),
    ],
)
def test_an_own_network_gives_each_image_logits_of_its_own(kind, message, frozen):
    model = {"name": "test_independence:own", "options": {"kind": kind}, "frozen": frozen}
    with refused(f"test_independence:own in evaluation mode: .*{message}"):
        make_network(model, 6, 32)


def test_an_encoder_is_checked_before_its_features_are_written():
    def encoder(pixels):
        return standardised(pixels.permute(0, 3, 1, 2))

    encoder.mean = torch.zeros(3)
    part = SimpleNamespace(chunks=lambda start: iter([PIXELS]), split="train")
    with refused("model.frozen: an image's features depend on which"):
        next(feature_chunks(encoder, part, 0, [""]))


@pytest.mark.parametrize(
    "network",
    [
        network().eval(),
        lambda images: nn.Linear(48, 2)(images.flatten(1)[:, :48]),
        lambda images: images.mean((2, 3)),
        lambda images: F.layer_norm(images, images.shape[1:]),
    ],
)
def test_a_network_that_wants_real_numbers_is_told_that_it_gets_bytes(network):
    with refused(r"gets images uint8\[B, 3, H, W\].*images.float\(\) / 255"):
        features_by(network, Images(PIXELS, None, {}))


def test_what_is_no_tensor_is_named():
    with refused("the function gave dict; features"):
        features_by(lambda images: {"features": colours(images)}, Images(PIXELS, None, {}))
