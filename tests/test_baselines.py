"""One contract for all baselines, and what is particular to the kinds."""

import subprocess
import sys
import textwrap

import pytest
import torch
import torchvision
from scipy.stats import kstest

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, file_sha256, read_yaml
from diagvib.methods.registry import KINDS, baseline_names, load_settings, make_baseline
from diagvib.training.batches import Batches
from synthetic_images import SIZE, separable

CPU = torch.device("cpu")
ENTRY = {"kind": "torchvision", "model": "resnet18", "batch_size": 8, "lr": 1e-3, "betas": [0.9, 0.999],
         "origin": "test"}


@pytest.fixture
def batch():
    pixels, labels = separable(6)
    return Batches(pixels, labels, CPU).batch(torch.arange(6))


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A random network's weights for each baseline that would download some."""
    files = {}
    for name in baseline_names():
        settings = load_settings(name)
        if settings["kind"] == "torchvision_frozen":
            path = tmp_path_factory.mktemp("weights") / "random.pth"
            torch.manual_seed(7)
            torch.save(torchvision.models.get_model(settings["model"], weights=None).state_dict(), path)
            files[name] = {"weights_file": str(path), "weights_sha256": file_sha256(path)}
    return files


def made(name, seed=0, stand_ins=None):
    settings = load_settings(name)
    settings["options"] = settings.get("options", {}) | (stand_ins or {}).get(name, {})
    return make_baseline(settings, n_classes=6, image_size=SIZE, seed=seed)


def train(model, batch, steps):
    """Losses of `steps` steps of every phase on one batch, each with the same noise."""
    losses = []
    model.train()
    for phase in model.phases():
        given = model.optimisers(phase.name)
        adams = {name: torch.optim.Adam(o.parameters, lr=o.lr, betas=o.betas) for name, o in given.items()}

        def update(name, loss, given=given, adams=adams):
            adams[name].zero_grad()
            loss.backward(inputs=list(given[name].parameters))
            adams[name].step()

        losses.append([])
        for _ in range(steps):
            torch.manual_seed(0)
            losses[-1].append(model.training_step(phase.name, batch, update).loss.mean().item())
    return losses


@pytest.mark.parametrize("name", baseline_names())
def test_contract(name, batch, stand_ins):
    model = made(name, 0, stand_ins)
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    repeated, other = made(name, 0, stand_ins), made(name, 1, stand_ins)
    assert all(torch.equal(value, repeated.state_dict()[key]) for key, value in initial.items()), \
        "initial weights follow the seed"
    assert any(not torch.equal(value, other.state_dict()[key]) for key, value in initial.items())

    losses = train(model, batch, steps=3)
    assert all(phase[-1] < phase[0] for phase in losses), "learning on a fixed batch lowers its loss"
    assert train(repeated, batch, steps=3) == losses

    model.eval()
    with torch.inference_mode():
        logits = model.predict(batch)
        outcome = model.validation_step(model.phases()[-1].name, batch)
        assert logits.shape == (len(batch.labels), 6) and logits.isfinite().all()
        assert outcome.loss.shape == batch.labels.shape
        assert torch.equal(logits, model.predict(batch)), "prediction is deterministic"
        other.load_state_dict(model.state_dict())
        assert torch.equal(other.eval().predict(batch), logits), "weights are all there is to save"


@pytest.mark.parametrize("name", baseline_names())
def test_only_what_an_optimiser_holds_moves(name, batch, stand_ins):
    """Each optimiser's step, taken alone, moves what it holds and nothing else."""
    model = made(name, 0, stand_ins).train()
    for phase in model.phases():
        for optimiser, given in model.optimisers(phase.name).items():
            adam = torch.optim.Adam(given.parameters, lr=given.lr)
            before = {key: value.clone() for key, value in model.named_parameters()}

            def update(name, loss, asked=optimiser, given=given, adam=adam):
                if name == asked:
                    loss.backward(inputs=list(given.parameters))
                    adam.step()

            model.training_step(phase.name, batch, update)
            held = {id(parameter) for parameter in given.parameters}
            for key, value in model.named_parameters():
                assert id(value) in held or torch.equal(value, before[key]), f"{key} moved with {optimiser}"
            assert any(not torch.equal(value, before[key]) for key, value in model.named_parameters())


def drawn(settings, n_classes, seed=0):
    return make_baseline(settings, n_classes, SIZE, seed).state_dict()


def assert_one_backbone(settings):
    """What the number of classes does not shape is the same for each; what it does is drawn, from the seed."""
    models = {n: drawn(settings, n) for n in (3, 5, 10)}
    again, other = drawn(settings, 5), drawn(settings, 5, seed=1)
    heads = [name for name in models[3] if models[3][name].shape != models[10][name].shape]
    for name, value in models[3].items():
        if name not in heads:
            assert torch.equal(value, models[5][name]) and torch.equal(value, models[10][name]), name
    weights = [name for name in heads if models[5][name].dim() > 1]
    assert weights, "the classes are somewhere"
    for name in weights:
        assert torch.equal(models[5][name], again[name]) and not torch.equal(models[5][name], other[name])
        assert not torch.equal(models[3][name], models[5][name][:3]), "a head of its own for each number of classes"


@pytest.mark.parametrize("name", baseline_names())
def test_one_backbone_for_all_factors(name, stand_ins):
    settings = load_settings(name)
    settings["options"] = settings.get("options", {}) | stand_ins.get(name, {})
    assert_one_backbone(settings)


@pytest.mark.parametrize(("kind", "model"), [
    ("torchvision", "mobilenet_v3_small"), ("torchvision", "efficientnet_b0"), ("torchvision", "squeezenet1_1"),
    ("timm", "resnet10t"), ("timm", "mobilenetv3_small_050")])
def test_one_backbone_of_any_model(kind, model):
    if kind == "timm":
        pytest.importorskip("timm", reason="timm is optional and not installed here")
    assert_one_backbone({**ENTRY, "kind": kind, "model": model})


def test_weights_are_distributed_as_their_layers_have_it():
    """The default of a linear layer: uniform within one over the root of its inputs."""
    head, bound = drawn(ENTRY, 10)["net.fc.weight"], 512**-0.5
    assert kstest(head.flatten().numpy(), "uniform", (-bound, 2 * bound)).pvalue > 1e-3
    first, second = (drawn(ENTRY, 10)[f"net.layer1.{block}.conv2.weight"].flatten() for block in (0, 1))
    deviation = (2 / (64 * 9)) ** 0.5  # torchvision's resnets: He et al., by outputs
    assert kstest(first.numpy(), "norm", (0, deviation)).pvalue > 1e-3
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.02, "layers of one shape are independent"


def test_construction_leaves_the_global_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    made("small_cnn")
    assert torch.equal(torch.get_rng_state(), before)


def test_names_and_settings_need_no_torch():
    script = "import sys, diagvib.methods.registry as b; b.load_settings('asr'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_papers_nine_are_there():
    assert {"alexnet", "resnet18", "resnet50", "wide_resnet50_2", "densenet161", "resnet50_in", "asr", "vae",
            "factor_vae"} <= set(baseline_names())
    assert {load_settings(name)["batch_size"] for name in ("vae", "factor_vae")} == {64}
    assert {load_settings(name)["lr"] for name in ("vae", "factor_vae")} == {1e-4}


def test_published_settings_of_resnet18():
    settings = load_settings("resnet18")
    assert (settings["batch_size"], settings["lr"], settings["betas"]) == (64, 2e-4, [0.9, 0.999])
    assert sum(p.numel() for p in made("resnet18").parameters()) == 11_176_512 + 6 * 513


def test_schema_knows_the_registered_kinds():
    schema = read_yaml(definition_path("schema/baselines.schema.yaml"))
    assert schema["additionalProperties"]["properties"]["kind"]["else"]["enum"][:-1] == list(KINDS)


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
    assert net.predict(batch).shape == (6, 6)


def test_options_reach_the_model(batch):
    settings = {**ENTRY, "model": "vit_b_32", "options": {"image_size": SIZE}}
    assert make_baseline(settings, 6, SIZE, 0).eval().predict(batch).shape == (6, 6)
    with pytest.raises(DiagvibError, match=r"options of model 'resnet18'.*image_sice"):
        make_baseline({**ENTRY, "options": {"image_sice": 64}}, 6, SIZE, 0)


def test_unknown_torchvision_name_suggests_the_nearest():
    with pytest.raises(DiagvibError, match=r"unknown torchvision classifier 'resnet81'; did you mean resnet18"):
        make_baseline({**ENTRY, "model": "resnet81"}, 6, SIZE, 0)


def test_timm_model_by_its_name(batch):
    pytest.importorskip("timm", reason="timm is optional and not installed here")
    settings = {**ENTRY, "kind": "timm", "model": "resnet10t"}
    model = make_baseline(settings, 6, SIZE, 0)
    losses, = train(model, batch, steps=3)
    assert losses[-1] < losses[0]
    assert model.eval().predict(batch).shape == (6, 6)
    transformer = {**settings, "model": "vit_tiny_patch16_224", "options": {"img_size": SIZE}}
    assert make_baseline(transformer, 6, SIZE, 0).eval().predict(batch).shape == (6, 6)
    with pytest.raises(DiagvibError, match="unknown timm model 'resnet10tt'; did you mean resnet10t"):
        make_baseline({**settings, "model": "resnet10tt"}, 6, SIZE, 0)
    with pytest.raises(DiagvibError, match="options of model 'resnet10t' do not fit it"):
        make_baseline({**settings, "options": {"image_sice": 64}}, 6, SIZE, 0)


def test_timm_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(DiagvibError, match="needs the package timm, which is not installed; `pip install timm`"):
        make_baseline({**ENTRY, "kind": "timm", "model": "resnet10t"}, 6, SIZE, 0)


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

        def head_first(n_classes, image_size):
            head = nn.Linear(7, n_classes)
            return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, 7), nn.Linear(7, 7), head)
        """))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def own(kind, **options):
    return make_baseline({**ENTRY, "kind": kind, "options": options}, 6, SIZE, 0)


def test_own_function(own_module, batch):
    model = own("my_nets:linear", bias=False)
    assert model.predict(batch).shape == (6, 6)
    assert len(list(model.parameters())) == 1
    assert not torch.equal(next(model.parameters()), torch.zeros(()))


def test_one_backbone_of_an_own_function(own_module):
    assert_one_backbone({**ENTRY, "kind": "my_nets:head_first"})


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
    ("kind: timm, options: 3", "mine.options"),
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


@pytest.mark.parametrize(("kind", "option", "message"), [
    ("asr", "base_widht: 3", "mine.options.base_widht'; did you mean mine.options.base_width"),
    ("asr", "levels: 0", "mine.options.levels"),
    ("vae", "latent: twelve", "mine.options.latent"),
    ("vae", "gamma: 20", "unknown key 'mine.options.gamma'"),
    ("factor_vae", "discriminator_betas: [0.5]", "mine.options.discriminator_betas"),
    ("torchvision_frozen, model: resnet50", "strictly_frozen: maybe", "mine.options.strictly_frozen"),
    ("torchvision_frozen, model: resnet50", "weights_sha256: 0676ba61", "weights_file.* is a dependency"),
    ("torchvision_frozen, model: resnet50", "weights_sha256: xyz, weights_file: a.pth", "options.weights_sha256"),
])
def test_wrong_options_name_file_and_key(tmp_path, kind, option, message):
    path = tmp_path / "baselines.yaml"
    path.write_text(f"mine: {{kind: {kind}, options: {{{option}}}, batch_size: 4, lr: 0.1, betas: [0.9, 0.99], "
                    "origin: test}\n")
    with pytest.raises(DiagvibError, match=message) as caught:
        load_settings("mine", path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["asr", "vae", "factor_vae"])
def test_wrong_option_given_in_code(kind):
    settings = {**load_settings(kind), "options": {"betta": 1}}
    with pytest.raises(DiagvibError, match=f"kind: {kind}: unknown option 'betta'"):
        make_baseline(settings, 6, SIZE, 0)


@pytest.mark.parametrize("size", [96, 160, 256])
@pytest.mark.parametrize("name", ["asr", "vae"])
def test_other_image_sizes(name, size):
    model = make_baseline(load_settings(name), 6, size, 0)
    batch = Batches(*separable(2, size=size), CPU).batch(torch.arange(2))
    assert torch.isfinite(model.eval().predict(batch)).all()
    with torch.inference_mode():
        assert model.validation_step(model.phases()[0].name, batch).loss.shape == (2,)


@pytest.mark.parametrize("name", ["asr", "vae", "factor_vae"])
def test_image_size_that_does_not_fit(name):
    with pytest.raises(DiagvibError, match=f"kind: {name}: image_size 100 .*multiple of 32"):
        make_baseline(load_settings(name), 6, 100, 0)


def test_missing_setting_and_unknown_baseline(tmp_path):
    path = tmp_path / "baselines.yaml"
    path.write_text("mine: {kind: torchvision, batch_size: 4, lr: 0.1, betas: [0.9, 0.99], origin: test}\n")
    with pytest.raises(DiagvibError, match="mine: 'model' is a required property"):
        load_settings("mine", path)
    path.write_text("mine: {kind: vae, batch_size: 4, betas: [0.9, 0.99], origin: test}\n")
    with pytest.raises(DiagvibError, match="mine: 'lr' is a required property"):
        load_settings("mine", path)
    with pytest.raises(DiagvibError, match="unknown baseline 'resnet81'; did you mean resnet18"):
        load_settings("resnet81")
