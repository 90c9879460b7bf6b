"""Weights of a file go to the tensors that their names mean, whatever their order, or are refused."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from conftest import refused
from diagvib.foundation.files import file_sha256
from diagvib.models.network import Network, Whole, separated
from diagvib.models.weights import of_file

SIZE = 8


class Net(nn.Module):
    """Layers whose tensors have the same shapes, apart from the first and the last."""

    def __init__(self, n_classes, classifier_first=False):
        super().__init__()
        if classifier_first:
            self.fc = nn.Linear(4, n_classes)
        self.conv1 = nn.Conv2d(3, 4, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.blocks = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(11)))
        self.query, self.key = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        if not classifier_first:
            self.fc = nn.Linear(4, n_classes)

    def forward(self, images):
        x = self.blocks(self.bn1(self.conv1(images)).mean((2, 3)))
        return self.fc(x + self.query(x) * self.key(x).tanh())


def cut(settings, n_classes, image_size):
    return separated(Net(n_classes), n_classes)


def plain(settings, n_classes, image_size):
    return Whole(Net(n_classes, classifier_first=True), n_classes)


def auxiliary(settings, n_classes, image_size):
    """With a further head of four outputs, which is trained on something else."""
    net = Net(n_classes)
    net.aux = nn.Linear(4, 4)
    return Whole(net, n_classes)


def deep(settings, n_classes, image_size):
    layers = nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, n_classes), nn.Softplus()
    head = nn.Sequential(nn.BatchNorm1d(4), *layers)
    return Network(separated(Net(n_classes), n_classes).body, head)


def tied(settings, n_classes, image_size):
    net = Net(n_classes)
    net.key.weight = net.query.weight
    return separated(net, n_classes)


@pytest.fixture
def load(tmp_path):
    def load(tensors, make=cut, n_classes=3, **settings):
        path = tmp_path / "w.pth"
        torch.save(tensors, path)
        weights = {"file": str(path), "package": None, "sha256": file_sha256(path)}
        return of_file(make, {"name": "my:net", "weights": weights, **settings}, n_classes, SIZE)

    return load


def trained(n_classes=3, make=cut):
    """The state of a plain network: without `body.`, and all tensors random."""
    torch.manual_seed(1)
    net = Net(n_classes)
    net = make({}, n_classes, SIZE).body if make in (plain, auxiliary) else net
    for tensor in net.state_dict().values():
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 1.5)
    return net.state_dict()


IMAGES = torch.rand(2, 3, SIZE, SIZE)


def features(state):
    net = Net(len(state["fc.weight"]))
    net.load_state_dict(state)
    net.fc = nn.Identity()
    return net.eval()(IMAGES)


def renamed(key):
    for old, new in (("conv1", "stem.conv"), ("bn1", "stem.norm"), ("blocks", "layers")):
        key = key.replace(old, new)
    return key.replace("query", "ask").replace("key", "answer").replace("fc", "out")


def sorted_by_layer(state):
    """Layers sorted by name, and the tensors of each as they were."""
    return dict(sorted(state.items(), key=lambda item: item[0].rpartition(".")[0]))


def moved(state, key, place):
    keys = [name for name in state if name != key]
    keys.insert(keys.index(place), key)
    return {name: state[name] for name in keys}


# File -> its tensors, all with other names, and the pair that does not fit.
CONTRADICTING = {
    "sorted": (
        lambda state: dict(sorted(state.items())),
        r"answer\.weight would become body\.conv1|another model",
    ),
    "sorted in each layer": (
        lambda state: moved(state, "stem.norm.bias", "stem.norm.weight"),
        r"stem\.norm\.bias would become body\.bn1\.weight",
    ),
    "variance first": (
        lambda state: moved(state, "stem.norm.running_var", "stem.norm.running_mean"),
        r"stem\.norm\.running_var would become body\.bn1\.running_mean",
    ),
    "beta before gamma": (
        lambda state: {
            key.replace("norm.weight", "norm.gamma").replace("norm.bias", "norm.beta"): value
            for key, value in moved(state, "stem.norm.bias", "stem.norm.weight").items()
        },
        r"stem\.norm\.beta would become body\.bn1\.weight",
    ),
    "layer 10 before layer 2": (
        lambda state: moved(state, "layers.10.weight", "layers.2.weight"),
        r"layers\.2\.weight stands after a higher number",
    ),
    "numbered and sorted": (
        lambda state: {
            f"p{number}": tensor
            for number, tensor in sorted(enumerate(state.values()), key=lambda item: str(item[0]))
        },
        r"another model|higher number",
    ),
    "key before query": (
        lambda state: {
            key.replace("answer", "net.key").replace("ask", "net.query"): value
            for key, value in moved(state, "answer.weight", "ask.weight").items()
        },
        r"net\.key\.weight would become body\.query\.weight",
    ),
    "transposed": (
        lambda state: {
            key.replace("weight", "kernel") if "layers" in key else key: value
            for key, value in state.items()
        },
        r"layers\.0\.kernel would become body\.blocks\.0\.weight",
    ),
}


@pytest.mark.parametrize("kind", CONTRADICTING)
def test_names_that_contradict_their_order_are_refused(load, kind):
    order, message = CONTRADICTING[kind]
    state = {renamed(key): value for key, value in trained().items()}
    with refused(message):
        load(order(state))


def test_sorted_names_do_not_tell_which_of_two_layers_is_which(load):
    """Without biases and norms, nothing in the names contradicts the order."""

    def make(settings, n_classes, image_size):
        layers = {"skip": nn.Linear(3, 3, False), "conv": nn.Linear(3, 3, False)}
        return Network(nn.Sequential(OrderedDict(layers)), nn.Linear(3, n_classes))

    weights = torch.rand(2, 3, 3)
    with refused("they are sorted, and block_a.weight and block_b.wei"):
        load({"block_a.weight": weights[0], "block_b.weight": weights[1]}, make)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state,
        lambda state: {f"p{number}": tensor for number, tensor in enumerate(state.values())},
        lambda state: {
            key.replace("norm.weight", "norm.gamma").replace("norm.bias", "norm.beta"): value
            for key, value in state.items()
        },
        lambda state: {key: value for key, value in state.items() if "out" not in key},
        lambda state: {key: value for key, value in state.items() if "tracked" not in key},
        lambda state: {
            key: value.half() if value.is_floating_point() else value
            for key, value in state.items()
        },
    ],
)
@pytest.mark.parametrize("classes", [3, 5])
def test_other_names_in_the_networks_order_are_understood(load, change, classes):
    state = trained(classes)
    network = load(change({renamed(key): value for key, value in state.items()})).eval()
    assert network.head.out_features == 3
    assert torch.allclose(network.features(IMAGES), features(state), rtol=2e-3)


WRAPPED = {
    "plain": lambda state: state,
    "sorted": lambda state: dict(sorted(state.items())),
    "reversed": lambda state: dict(reversed(state.items())),
    "wrapped": lambda state: {f"module.model.{key}": value for key, value in state.items()},
    "beside a projector": lambda state: {
        **{f"backbone.{key}": value for key, value in state.items() if "fc" not in key},
        **{f"projector.{key}": torch.rand(4, 4) for key in ("0.weight", "2.weight")},
    },
    "a wrapped pair": lambda state: {
        **{f"module.encoder.{key}": value for key, value in state.items() if "fc" not in key},
        "module.head.0.weight": torch.rand(7, 4),
        "module.head.2.weight": torch.rand(8, 7),
    },
    "without a head": lambda state: {key: value for key, value in state.items() if "fc" not in key},
    "a head of two layers": lambda state: {
        **{key: value for key, value in state.items() if "fc" not in key},
        **{"fc.0.weight": torch.rand(7, 4), "fc.2.weight": torch.rand(8, 7)},
    },
    "an auxiliary head": lambda state: {
        "aux.weight": torch.rand(4, 4),
        "aux.bias": torch.rand(4),
        **state,
    },
    "float64": lambda state: {key: value.double() for key, value in state.items()},
}


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("classes", [3, 5])
def test_names_decide_whatever_the_order(load, kind, classes):
    state = trained(classes)
    network = load(WRAPPED[kind](state)).eval()
    assert torch.allclose(network.features(IMAGES), features(state))
    headed = {"plain", "sorted", "reversed", "wrapped", "an auxiliary head", "float64"}
    retained = torch.equal(network.head.weight[:3], state["fc.weight"][:3])
    assert retained == (classes == 3 and kind in headed)


@pytest.mark.parametrize("make", [plain, auxiliary])
@pytest.mark.parametrize("order", [dict, lambda state: dict(sorted(state.items()))])
def test_the_number_of_classes_is_that_of_the_last_layer_wherever_it_stands(load, make, order):
    """Of a network that does not say where its head is."""
    state = trained(5, make)
    network = load(order(state), make, frozen=True).eval()
    assert network.body.fc.out_features == 5
    assert torch.equal(network.body(IMAGES), Whole(network.body, 5)(IMAGES))
    assert torch.equal(network.body.state_dict()["key.weight"], state["key.weight"])


@pytest.mark.parametrize("classes", [3, 5])
def test_a_head_of_several_layers_says_its_classes_in_its_last(load, classes):
    state = dict(sorted(deep({}, classes, SIZE).state_dict().items()))
    network = load(state, deep)
    assert network.head[3].out_features == 3
    equal = {key: torch.equal(value, state[key]) for key, value in network.state_dict().items()}
    assert equal["body.conv1.weight"] and equal["head.1.weight"] == (classes == 3)


def test_a_tied_tensor_needs_to_be_there_once(load):
    state = trained()
    del state["key.weight"]
    network = load(state, tied)
    assert torch.equal(network.body.key.weight, state["query.weight"])
    with refused(r"do not fit: body\.key\.weight$"):
        load(state)
    with refused(r"another model: .*do not fit: body\.key\.weight, x\.weight$"):
        load({**state, "x.weight": torch.rand(4, 4)})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda w: {"query.weight": (w["query.weight"] * 9).to(torch.int8)},
            "query.weight is torch.int8",
        ),
        (lambda w: {"fc.weight": (w["fc.weight"] * 9).long()}, "head.weight is torch.int64, not"),
        (
            lambda w: {"fc.weight": w["fc.weight"].T.contiguous()},
            r"head.weight \(\[4, 3\] for \[3, 4\], perhaps tr",
        ),
        # Layers that the network lacks, as in another model with the same names for the rest.
        (lambda w: {"blocks.0.norm.weight": torch.rand(4)}, "do not fit: blocks.0.norm.weight"),
        (lambda w: {"bn0.weight": torch.rand(4)}, "do not fit: bn0.weight"),
    ],
)
def test_tensors_of_another_kind_are_named(load, changed, message):
    state = trained()
    with refused(message):
        load(state | changed(state))
