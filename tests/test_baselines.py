"""One contract for all baselines, and what is particular to the kinds."""

import textwrap

import pytest
import torch

from diagvib.baselines import KINDS, baseline_names, load_settings, make_baseline
from diagvib.batches import Batches
from diagvib.errors import DiagvibError
from diagvib.files import definition_path, read_yaml
from synthetic_images import SIZE, separable

CPU = torch.device("cpu")
ENTRY = {"kind": "torchvision", "model": "resnet18", "batch_size": 8, "lr": 1e-3, "betas": [0.9, 0.999],
         "origin": "test"}


@pytest.fixture
def batch():
    pixels, labels = separable(8)
    return Batches(pixels, labels, CPU).batch(torch.arange(8))


def made(name, seed=0):
    return make_baseline(load_settings(name), n_classes=6, image_size=SIZE, seed=seed)


def train(model, batch, steps):
    """Losses of `steps` steps of every phase on one batch."""
    losses = []
    model.train()
    for phase in model.phases():
        given = model.optimisers(phase.name)
        adams = {name: torch.optim.Adam(o.parameters, lr=o.lr, betas=o.betas) for name, o in given.items()}

        def update(name, loss, given=given, adams=adams):
            adams[name].zero_grad()
            loss.backward(inputs=list(given[name].parameters))
            adams[name].step()

        losses.append([model.training_step(phase.name, batch, update).loss.mean().item() for _ in range(steps)])
    return losses


@pytest.mark.parametrize("name", baseline_names())
def test_contract(name, batch):
    model = made(name)
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    again, other = made(name).state_dict(), made(name, seed=1).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in initial.items()), "initial weights follow the seed"
    assert any(not torch.equal(value, other[key]) for key, value in initial.items())

    torch.manual_seed(0)
    losses = train(model, batch, steps=3)
    assert all(phase[-1] < phase[0] for phase in losses), "learning on a fixed batch lowers its loss"

    model.eval()
    with torch.inference_mode():
        logits = model.predict(batch)
        outcome = model.validation_step(model.phases()[-1].name, batch)
        assert logits.shape == (8, 6) and logits.isfinite().all()
        assert outcome.loss.shape == (8,)
        assert torch.equal(logits, model.predict(batch)), "prediction is deterministic"
        restored = made(name, seed=1)
        restored.load_state_dict(model.state_dict())
        assert torch.equal(restored.eval().predict(batch), logits), "weights are all there is to save"

    repeated = made(name)
    torch.manual_seed(0)
    assert train(repeated, batch, steps=3) == losses


def test_construction_leaves_the_global_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    made("small_cnn")
    assert torch.equal(torch.get_rng_state(), before)


def test_published_settings_of_resnet18():
    settings = load_settings("resnet18")
    assert (settings["batch_size"], settings["lr"], settings["betas"]) == (64, 2e-4, [0.9, 0.999])
    assert sum(p.numel() for p in made("resnet18").parameters()) == 11_176_512 + 6 * 513


def test_schema_knows_the_registered_kinds():
    schema = read_yaml(definition_path("schema/baselines.schema.yaml"))
    assert schema["additionalProperties"]["properties"]["kind"]["anyOf"][0]["enum"] == list(KINDS)


def test_small_cnn_keeps_the_position(batch):
    """A net that averages over the image would give the same logits wherever the object is."""
    pixels = torch.full((2, SIZE, SIZE, 3), 127, dtype=torch.uint8)
    pixels[0, 8:20, 8:20] = 255
    pixels[1, 40:52, 40:52] = 255
    both = Batches(pixels, torch.zeros(2, dtype=torch.int64), CPU).batch(torch.arange(2))
    with torch.inference_mode():
        first, second = made("small_cnn").eval().predict(both)
    assert not torch.allclose(first, second, atol=1e-3)


@pytest.mark.parametrize(("model", "options"), [
    ("alexnet", {}), ("densenet121", {}), ("googlenet", {"init_weights": False})])  # googlenet: auxiliary logits too
def test_any_torchvision_classifier_by_its_name(model, options, batch):
    net = make_baseline({**ENTRY, "model": model, "options": options}, 6, SIZE, 0).train()
    assert net.predict(batch).shape == (8, 6)


def test_options_reach_the_model(batch):
    settings = {**ENTRY, "model": "vit_b_32", "options": {"image_size": SIZE}}
    assert make_baseline(settings, 6, SIZE, 0).eval().predict(batch).shape == (8, 6)
    with pytest.raises(DiagvibError, match=r"options of model 'resnet18'.*image_sice"):
        make_baseline({**ENTRY, "options": {"image_sice": 64}}, 6, SIZE, 0)


def test_unknown_torchvision_name_suggests_the_nearest():
    with pytest.raises(DiagvibError, match=r"unknown torchvision classifier 'resnet81'; did you mean resnet18"):
        make_baseline({**ENTRY, "model": "resnet81"}, 6, SIZE, 0)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(textwrap.dedent("""
        from torch import nn

        def linear(n_classes, image_size, bias=True):
            return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, n_classes, bias=bias))

        def too_few(n_classes, image_size):
            return linear(n_classes - 1, image_size)

        def nothing(n_classes, image_size):
            return None
        """))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def own(kind, **options):
    return make_baseline({**ENTRY, "kind": kind, "options": options}, 6, SIZE, 0)


def test_own_function(own_module, batch):
    model = own("my_nets:linear", bias=False)
    assert model.predict(batch).shape == (8, 6)
    assert len(list(model.parameters())) == 1
    assert not torch.equal(next(model.parameters()), torch.zeros(()))


@pytest.mark.parametrize(("kind", "message"), [
    ("my_nest:linear", "cannot be imported.*my_nest"),
    ("my_nets:lineal", "cannot be imported.*lineal"),
    ("my_nets:__name__", "is no function"),
    ("my_nets:nothing", "returned NoneType, not a torch.nn.Module"),
    ("my_nets:too_few", r"\(2, 5\); logits of shape \(2, 6\) are needed"),
])
def test_own_function_that_does_not_fit(own_module, kind, message):
    with pytest.raises(DiagvibError, match=message):
        own(kind)


@pytest.mark.parametrize(("line", "message"), [
    ("batchsize: 3", "unknown key 'mine.batchsize'; did you mean mine.batch_size"),
    ("kind: torchvison", "mine.kind"),
    ("lr: -1", "mine.lr"),
    ("betas: [0.9]", "mine.betas"),
    ("kind: small_cnn", "mine.kind"),  # which names no model
])
def test_wrong_settings_name_file_and_key(tmp_path, line, message):
    path = tmp_path / "baselines.yaml"
    entry = "mine: {kind: torchvision, model: resnet18, batch_size: 4, lr: 0.1, betas: [0.9, 0.99], origin: test}\n"
    path.write_text(entry)
    assert load_settings("mine", path)["batch_size"] == 4
    wrong = tmp_path / "wrong.yaml"
    key, value = line.split(": ", 1)
    fields = {"kind": "torchvision", "model": "resnet18", "batch_size": "4", "lr": "0.1", "betas": "[0.9, 0.99]",
              "origin": "test", key: value}
    wrong.write_text("mine: {" + ", ".join(f"{k}: {v}" for k, v in fields.items()) + "}\n")
    with pytest.raises(DiagvibError, match=message) as caught:
        load_settings("mine", wrong)
    assert str(wrong) in str(caught.value)


def test_missing_setting_and_unknown_baseline(tmp_path):
    path = tmp_path / "baselines.yaml"
    path.write_text("mine: {kind: torchvision, batch_size: 4, lr: 0.1, betas: [0.9, 0.99], origin: test}\n")
    with pytest.raises(DiagvibError, match="mine: 'model' is a required property"):
        load_settings("mine", path)
    with pytest.raises(DiagvibError, match="unknown baseline 'resnet81'; did you mean resnet18"):
        load_settings("resnet81")
