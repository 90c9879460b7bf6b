"""A user's model is trained as it is, whatever it does after its last linear layer."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conftest import refused
from diagvib.foundation.plug_ins import imported
from diagvib.methods.method import initialised
from diagvib.methods.registry import make_baseline
from diagvib.models.network import Network, check_logits
from diagvib.models.registry import check_model, make_network
from synthetic_images import SIZE, small_batches
from synthetic_methods import settings_of


class Own(nn.Module):
    """Features, `head`, and something else after it."""

    def __init__(self, n_classes, end):
        super().__init__()
        self.colour = nn.Linear(3, n_classes)
        self.head = nn.Linear(12, n_classes)
        self.features = nn.Sequential(nn.Conv2d(3, 3, 9, 8), nn.ReLU(), nn.AdaptiveMaxPool2d(2))
        self.end = end

    def forward(self, images):
        return ENDS[self.end](self, self.head(self.features(images).flatten(1)), images)


class Overridden(Network):
    def forward(self, images):
        return super().forward(images).tanh()


# After the last linear layer: (net, logits, images) -> logits.
ENDS = {
    "nothing": lambda net, logits, images: logits,
    "in place": lambda net, logits, images: logits.clamp_(-0.4, 0.4),
    "dropout": lambda net, logits, images: F.dropout(logits, 0.5) if net.training else logits,
    "colour": lambda net, logits, images: net.colour(images.mean((2, 3))) + logits,
}


def own(n_classes, image_size, kind):
    sequence = nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * (SIZE // 16) ** 2, n_classes)
    if kind == "overridden":
        return Overridden(nn.Sequential(*sequence[:2]), sequence[2])
    if kind in ENDS:
        return Own(n_classes, kind)
    if kind == "deep head":
        return Network(
            nn.Sequential(*sequence), nn.Sequential(nn.ReLU(), nn.Linear(n_classes, n_classes))
        )
    net = nn.Sequential(*sequence)
    if kind == "hook":
        net.register_forward_hook(lambda module, inputs, output: output.tanh())
    return net


KINDS = [*ENDS, "overridden", "hook", "sequence"]


BODY = nn.Linear(3 * SIZE**2, 4)


def shared(n_classes, image_size):
    return nn.Sequential(nn.Flatten(), BODY, nn.Linear(4, n_classes))


def test_runs_do_not_share_what_they_train():
    model = {"name": "test_own_models:shared"}
    for frozen in (True, True, False):
        make_network({**model, "options": {}, "frozen": frozen}, 6, SIZE)
    with refused("returned parameters of an earlier call"):
        make_network({**model, "options": {}}, 6, SIZE)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("n_classes, width=8", "width"),
        ("n_classes, hidden_size=8, image_size=64", "hidden_size"),
        ("n_classes, image_size", None),
        ("n, res=64, width=8", None),
        ("n, input_dim=64, width=8", None),
        ("n_classes, _=None, *, width=8", None),
        ("*arguments, width=8", None),
    ],
)
@pytest.mark.parametrize("form", ["def net({}): ...", "class net:\n def __init__(self, {}): ..."])
def test_the_image_size_is_not_taken_for_an_option(tmp_path, monkeypatch, arguments, option, form):
    monkeypatch.chdir(tmp_path)
    Path("sizes.py").write_text(form.format(arguments))
    with refused(f"sizes:net: its second argument, {option}, ") if option else nullcontext():
        check_model({"name": "sizes:net"})
    check_model({"name": "sizes:net", "head": "published"})  # is called without arguments


def method_of(kind, method="erm"):
    model = {"name": "test_own_models:own", "options": {"kind": kind}}
    return make_baseline(settings_of(model, method, lr=0.01), 6, SIZE, 3)


@pytest.fixture(scope="module")
def data():
    return small_batches(64)


def plain(kind):
    """The user's network, with the initial weights of `method_of`."""
    return initialised(lambda: own(6, SIZE, kind), 3)


def drawn(work, *arguments):
    torch.manual_seed(1)
    return work(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_gradients_are_those_of_plain_torch(data, kind):
    network, batch = method_of(kind).model, data[0].batch(torch.arange(16))

    def slopes(logits, net):
        F.cross_entropy(logits, batch.labels).backward()
        return {p.grad.numpy().tobytes() for p in net.parameters() if p.grad is not None}

    for mode in (False, True):
        net = plain(kind).train(mode)
        expected = drawn(net, batch.inputs)
        assert torch.equal(drawn(network.train(mode), batch.inputs), expected)
        ours = drawn(lambda: network.head(network.features(batch.inputs)))
        assert torch.equal(ours, expected)
    assert slopes(ours, network) == slopes(expected, net)


def test_features_are_what_the_last_linear_layer_reads(data):
    network, inputs = method_of("in place").model, data[0].batch(torch.arange(16)).inputs
    assert torch.equal(network.features(inputs), network.body.features(inputs).flatten(1))
    with refused(r"only gives .* return Network\(body, head\)"):
        network.head(network.features(inputs) * 2)


@pytest.mark.parametrize("method", ["coral", "dfr", "di", "lle", "w2d"])
def test_a_method_that_needs_the_head_refuses_a_model_that_does_not_say_where_it_begins(method):
    if method == "coral":
        assert method_of("in place", method).model.has_features
        return
    with refused(f"{method} needs a head of its own, but model test_own.*"):
        method_of("in place", method)
    with refused("does not say where a linear one begins"):
        method_of("deep head", method)
    if method != "w2d":
        assert method_of("sequence", method).model.separable


def test_a_file_of_the_current_folder_hides_no_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [item for item in sys.path if item != str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text("mine = 1")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert imported("colorsys:rgb_to_hls", "model").__module__ == "colorsys"


def test_a_network_that_needs_another_memory_format_is_refused_at_once():
    """Images have their channels last in memory."""

    class Viewed(nn.Sequential):
        def forward(self, images):
            return self[1](self[0](images).view(len(images), -1))

    net = Viewed(nn.Conv2d(3, 2, 1), nn.Linear(2 * SIZE**2, 6))
    with refused("Use .reshape"):
        check_logits(net, "mine", 6, SIZE)


def test_a_network_that_returns_no_tensor_is_refused_at_once():
    class Named(nn.Linear):
        def forward(self, images):
            return {"logits": super().forward(images.flatten(1))}

    with refused("mine: its module returns dict; return the logits"):
        check_logits(Named(3 * SIZE**2, 6), "mine", 6, SIZE)


class Pair(nn.Linear):
    def forward(self, images):
        features = images.flatten(1)
        return super().forward(features), features


def ending(n_classes, image_size, softmax):
    linear = Pair(3 * image_size**2, n_classes)
    return (
        nn.Sequential(nn.Flatten(), nn.Linear(*linear.weight.T.shape), nn.Softmax(1))
        if softmax
        else linear
    )


def test_probabilities_are_no_logits_and_of_a_pair_the_first_are():
    model = {"name": "test_own_models:ending", "options": {"softmax": True}}
    with refused("ending: it gives probabilities, which sum to 1, where logits are needed"):
        make_network(model, 6, SIZE)
    network = make_network({**model, "options": {"softmax": False}}, 6, SIZE)
    images = torch.rand(2, 3, SIZE, SIZE)
    assert torch.equal(network(images), network.body(images)[0])


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("timm/eva_large_patch14_196", {"embed_dim": 64, "depth": 1, "num_heads": 2}, 196),
        ("vit_b_32", {}, 224),
        ("inception_v3", {"init_weights": False}, 299),
    ],
)
def test_a_network_for_larger_images_names_its_size(name, options, size):
    if name.startswith("timm/"):
        pytest.importorskip("timm")
    with refused(rf"128 x 128 .*it takes {size} x {size}: --input-size {size} of"):
        make_network(settings_of({"name": name, "options": options})["model"], 6, 128)
