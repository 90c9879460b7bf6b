"""Methods: one contract for all, and the numbers of those that use groups, worked by hand."""

import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from conftest import refused
from diagvib.methods.groups import balancing_weights, group_index
from diagvib.methods.method import Batch, TrainingData
from diagvib.methods.registry import METHODS, declaration, make_baseline
from diagvib.settings.layout import Run
from diagvib.training.batches import Annotations, Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol, epoch_seed
from diagvib.training.running_metrics import group_accuracies
from diagvib.training.saliency import saliency
from diagvib.training.trainer import Trainer, epoch_batches
from synthetic_images import SIZE, separable
from synthetic_methods import settings_of
from test_trainer import Interrupted, Interruption

CPU = torch.device("cpu")
RUN = Run("mine", "zso", "hue", 0)
PROTOCOL = Protocol(max_epochs=2, patience=None, seed=3)
# Every method, small enough to train in a test, and its supervision, if that is a choice.
SMALL = {
    "asr": {"base_width": 4, "levels": 2},
    "vae": {"head_width": 16},
    "factor_vae": {"head_width": 16, "discriminator_width": 8, "discriminator_layers": 1},
    "group_dro": {"supervision": "cues"},
    "jtt": {"copies": 2},
    "eiil": {"inference_steps": 100},
    "cutout": {"p": 0.5},
    "augmix": {"width": 2},
    "dfr": {"resamples": 2, "c": 1.0},
    "irm": {"anneal_steps": 5},
    "vrex": {"anneal_steps": 5},
    "llr": {"head_epochs": 2},
    "afr": {"head_epochs": 5},
    "self": {"steps": 5, "finetuned": 5},
    "dpe": {"members": 2, "head_epochs": 2},
}
# Where half of an option's value, or one more, changes nothing in a training as small.
ALTERNATIVE = {"eiil": {"inference_steps": 1000}, "self": {"early": 0.9}}


class Stripes:
    """`methods.method.Counterfactuals` of images that show the class of cue k as the brightness of
    4 rows."""

    def __init__(self, pixels):
        self.pixels = pixels

    @staticmethod
    def rows(cue):
        return slice(4 * cue, 4 * cue + 4)

    def exchanged(self, index, cue, donors):
        pixels = self.pixels[index].clone()
        pixels[:, self.rows(cue)] = self.pixels[donors, self.rows(cue)]
        return pixels

    def object_boxes(self, index):
        return torch.tensor([16, 16, 40, 40], device=index.device).expand(len(index), 4)


def annotated(n, seed, cues=1, environments=2, scaling=None, device=CPU, mistaken=0, stripes=False):
    """Three colours, each cue mostly of the colour's class, and alternating environments.

    mistaken: the number of wrong labels. stripes: with `Counterfactuals`.
    """
    pixels, labels = separable(n, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    alternative = torch.rand(n, cues, generator=generator) < 0.5
    draws = torch.where(
        alternative, torch.randint(0, 3, (n, cues), generator=generator), labels[:, None]
    )
    for cue in range(cues):
        pixels[:, Stripes.rows(cue)] = (100 * draws[:, cue, None, None, None]).to(torch.uint8)
    labels[:mistaken] = (labels[:mistaken] + 1) % 3
    names = {f"cue {number + 1}": ("a", "b", "c") for number in range(cues)}
    return Batches(
        pixels,
        labels,
        device,
        scaling,
        Annotations(
            draws,
            torch.arange(n) % environments,
            ("red", "green", "blue"),
            names,
            tuple(f"e{number + 1}" for number in range(environments)),
        ),
        Stripes(pixels.to(device)) if stripes else None,
    )


@pytest.fixture(scope="module")
def data():
    train = annotated(64, 0, mistaken=8)  # labels that no method gets right at once
    return train, annotated(24, 1, scaling=train.scaling)


def settings_for(name, **options):
    model = None if declaration(name).own_network else "small_cnn"
    return settings_of(model, {"name": name, **SMALL.get(name, {}), **options})


def made(name, **options):
    return make_baseline(settings_for(name, **options), 6, SIZE, 0)


def fit(method, data, *arguments, **keywords):
    fitted = Trainer(method, *data, RUN, PROTOCOL).fit(*arguments, **keywords)
    return fitted.history, {key: value.tolist() for key, value in method.state_dict().items()}


@pytest.mark.parametrize("name", list(METHODS))
def test_contract(name, data, tmp_path):
    """Losses fall; a training interrupted after every epoch gives the same, bit for bit; a prediction
    uses only the image; and where it comes from can be told."""
    method = made(name)
    if declaration(name).needs:
        data = annotated(64, 0, mistaken=8, stripes=True), data[1]
    entire = history, _ = fit(method, data)
    for phase in dict.fromkeys(row["phase"] for row in history):
        losses = [row["train_loss"] for row in history if row["phase"] == phase]
        assert losses[-1] < losses[0] or len(losses) == 1, phase
    checkpoint = Checkpoint(tmp_path / "state.pt", "d")
    for epoch in range(1, len(history) + 1):
        with pytest.raises(Interrupted):
            fit(made(name), data, checkpoint, Interruption(epoch=epoch))
        torch.manual_seed(epoch)
    assert fit(made(name), data, checkpoint) == entire
    batch = data[1].batch(torch.arange(24))
    blind = replace(batch, labels=None, cues=None, environment=None, index=None)
    with torch.inference_mode():
        assert torch.equal(method.eval().predict(batch), method.predict(blind))
    _, location = saliency(method, data[1], np.arange(4), PROTOCOL)
    assert location.shape == (4, SIZE, SIZE) and location.isfinite().all()


def test_every_number_among_the_options_has_bounds():
    for name in METHODS:
        for option, schema in declaration(name).options.items():
            if {"integer", "number"} & {*np.atleast_1d(schema.get("type", ""))}:
                assert {"maximum", "exclusiveMaximum"} & schema.keys(), (name, option)


def test_a_number_is_a_number_though_yaml_has_an_integer():
    """torch would take weights of integers for the indices of images."""
    weight = settings_of(method={"name": "sd", "weight": 3})["method"]["weight"]
    assert (weight, type(weight)) == (3, float)


def test_augmented_pixels_without_inputs_are_refused(data):
    method = made("erm")
    method.augment = lambda batch: replace(batch, pixels=255 - batch.pixels)
    with refused("changes the pixels of a batch and not its inputs"):
        method.training_step("classify", data[0].batch(torch.arange(4)), lambda *_: None)


def test_which_phases_keep_their_last_epoch():
    """Those in which the validation loss says nothing about what is wanted."""
    data, retained = annotated(64, 0).training_data(), set()
    for name in METHODS:
        if not declaration(name).needs:
            phases = made(name).phases(data)
            retained |= {(name, phase.name) for phase in phases if phase.selection == "last"}
    early = {("self", "early"), ("xrm", "twins"), ("jtt", "identify"), ("eiil", "reference")}
    heads = {(name, "retrain") for name in ("afr", "dfr", "dpe", "llr", "self")}
    assert retained == early | heads


def other_values(schema: dict, value: object) -> list:
    """Values of an option besides this one: every other choice, or one that differs."""
    if "enum" in schema:
        return [choice for choice in schema["enum"] if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, list):
        return [[item / 2 for item in value]]
    return [value / 2 or 1.0] if value is not None else [1 if "integer" in schema["type"] else 0.05]


@pytest.mark.parametrize("name", [name for name in METHODS if declaration(name).options])
def test_every_option_makes_a_difference(name):
    """A training with another value of one option ends with other weights in its last epoch."""

    def made_last(**options):
        return make_baseline({**settings_for(name, **options), "selection": "last"}, 6, SIZE, 0)

    # Of few images, these have too few of a group.
    number = 96 if name in ("dfr", "eiil", "group_dro") else 48
    train = annotated(number, 2, mistaken=8, stripes=True)
    data = train, annotated(number, 3, scaling=train.scaling)
    inputs, defaults = SMALL.get(name, {}), fit(made_last(), data)
    for option in declaration(name).options:
        schema = declaration(name).schemas[option]
        value, retained = inputs.get(option, schema["default"]), {}
        before = defaults
        if name == "dfr" and option in ("head", "retrain_epochs"):  # `sgd` refuses `logistic`'s
            retained = {"c": None, "resamples": 10} | ({} if option == "head" else {"head": "sgd"})
            before = fit(made_last(**retained), data)
        names = ALTERNATIVE.get(name, {})
        alternatives = [names[option]] if option in names else other_values(schema, value)
        for alternative in alternatives:
            assert fit(made_last(**retained | {option: alternative}), data) != before, (
                option,
                alternative,
            )


def refusal(train, name, **options) -> str:
    with refused(f"^mine/zso/hue/0: method: {name} ") as error:
        Trainer(made(name, **options), train, train, RUN, PROTOCOL).fit()
    return str(error.value)


def test_what_the_study_lacks_for_a_methods_supervision_is_named():
    """No cue, one cue or environment, and groups without images: both cues give the label away, and
    no image is in the last environment."""
    poor, names = annotated(32, 0, 0, 1), annotated(32, 0, cues=2)
    equals, three = names.labels[:, None].expand(-1, 2), ("e1", "e2", "e3")
    annotations = replace(names.annotations, cues=equals, environments=three)
    gaps = Batches(names.pixels, names.labels, CPU, None, annotations)
    message = {"environments": "one environment", "cues": "no cue", "cue_types": "no cue"}
    missing = {"environments": "environment e3", "cues": "cue 1 a and cue 2 b"}
    for name in METHODS:
        for supervision in set(declaration(name).supervision) & set(message):
            needs = f"needs {supervision}, but the study has {message[supervision]}"
            assert needs in refusal(poor, name, supervision=supervision)
            # `di` has heads for the domains that occur, and needs no others.
            if supervision in missing and name != "di":
                assert missing[supervision] in refusal(gaps, name, supervision=supervision)
    with_one = annotated(32, 0, 1, 1)
    assert "needs cue-2, but the study has only 1 cue" in refusal(
        with_one, "di", supervision="cue-2"
    )


def test_erm_is_the_plain_loop(data):
    """The hooks of the interface, none of which is used, do not change a bit of the result."""
    settings = settings_of(batch_size=24, drop_last=False, selection="last")
    method = make_baseline(settings, 6, SIZE, 0)
    plain = made("erm").model.to(memory_format=torch.channels_last).train()
    train, _ = data
    Trainer(method, train, train, RUN, replace(PROTOCOL, max_epochs=2, precision="fp32")).fit()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
        torch.set_num_threads(1)
        adam = torch.optim.Adam(plain.parameters(), lr=1e-3, fused=True)
        orders = [
            torch.randperm(64, generator=torch.Generator().manual_seed(epoch_seed(RUN, 3, epoch)))
            for epoch in (1, 2)
        ]
        for index in [*orders[0].split(24), *orders[1].split(24)]:
            batch = train.batch(index)
            adam.zero_grad()
            F.cross_entropy(plain(batch.inputs), batch.labels).backward()
            adam.step()
    ours = method.model.state_dict()
    assert all(torch.equal(value, ours[key]) for key, value in plain.state_dict().items())


def known(labels, cues=None, environment=None, environments=("one",)):
    n = len(labels)
    cues = torch.tensor(cues) if cues else torch.empty(n, 0, dtype=torch.int64)
    environment = torch.tensor(environment or [0] * n)
    return TrainingData(
        torch.tensor(labels),
        cues,
        environment,
        ("red", "green", "blue"),
        {f"cue {k + 1}": ("x", "y", "z") for k in range(cues.shape[1])},
        environments,
        lambda: [],
        None,
        None,
    )


def batch_of(data: TrainingData, index) -> Batch:
    index = torch.tensor(list(index))
    return Batch(
        torch.empty(0),
        torch.empty(0),
        data.labels[index],
        data.cues[index],
        data.environment[index],
        index,
    )


def test_weights_of_group_dro_after_known_losses():
    """Two groups of two images, step size log 2: a loss of 1 doubles a weight. The batch of the
    third step lacks the second group, whose loss is then 0."""
    method = made("group_dro", supervision="environments", step_size=0.6931471805599453)
    data = known([0, 0, 0, 0], environment=[0, 0, 1, 1], environments=("a", "b"))
    method.setup(data)
    assert method.memory["q"].tolist() == [0.5, 0.5]
    for losses, index, weights, expected in (
        ([2.0, 0.0, 0.0, 0.0], [0, 1, 2, 3], [2 / 3, 1 / 3], 2 / 3),  # 2 : 1
        ([0.0, 0.0, 3.0, 1.0], [0, 1, 2, 3], [1 / 3, 2 / 3], 4 / 3),  # 2 : 4
        ([1.0, 3.0], [1, 0], [2 / 3, 1 / 3], 4 / 3),  # 8 : 4
    ):
        loss = method.combine(torch.tensor(losses), batch_of(data, index))
        assert method.memory["q"].tolist() == pytest.approx(weights)
        assert loss.item() == pytest.approx(expected)


def test_groups_of_cues_and_their_balance():
    data = known([0, 0, 0, 2, 2, 2], [[1, 0], [1, 1], [2, 0], [1, 0], [2, 1], [2, 0]])
    index, groups = group_index(data, "cue-1", "m")
    assert groups == 4 and index.tolist() == [0, 0, 1, 2, 3, 3]
    assert balancing_weights(index, groups).tolist() == [3, 3, 6, 6, 3, 3]
    assert group_index(data, "cue-2", "m")[0].tolist() == [0, 1, 0, 2, 3, 2]
    index = index.repeat(1000)
    draws = epoch_batches(
        balancing_weights(index, groups), 6000, 6, torch.Generator().manual_seed(0)
    )
    assert list(map(len, draws)) == [6] * 1000
    assert torch.bincount(index[torch.cat(draws)]).tolist() == pytest.approx([1500] * 4, rel=0.1)


@pytest.mark.parametrize("restart", [True, False])
def test_the_error_set_of_jtt_and_how_often_it_comes(restart):
    method = made("jtt", copies=3, restart=restart)
    labels = [0, 1, 2, 0, 1]
    data = replace(
        known(labels),
        in_order=lambda: [
            replace(
                batch_of(known(labels), index), inputs=F.one_hot(torch.tensor(message), 6).float()
            )
            for index, message in (([0, 1, 2], [0, 2, 2]), ([3, 4], [1, 1]))
        ],
    )
    method.setup(data)
    before = method.model.head.bias.clone()
    # Predicts 0, 2, 2, 1, 1: the second and fourth are wrong; without dropout.
    method.predict = lambda batch: batch.inputs * (not method.model.training)
    assert method.sampling("identify", data) is None
    with torch.no_grad():
        method.model.head.bias.add_(1)
    method.start_phase("classify", data)
    assert method.memory["errors"].tolist() == [False, True, False, True, False]
    assert torch.bincount(method.sampling("classify", data)).tolist() == [1, 4, 1, 4, 1]
    assert torch.equal(method.model.head.bias, before) == restart


def test_a_method_that_reads_features_needs_some():
    with refused("coral needs features, but model squeezenet1_1"):
        make_baseline(settings_of("squeezenet1_1", "coral"), 6, SIZE, 0)


def test_worst_groups_and_environments_of_known_predictions():
    correct = torch.tensor([1, 1, 1, 0, 0, 1], dtype=torch.bool)
    labels, environment = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 1, -1])
    cues = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 0], [0, 0], [0, 0]])
    assert group_accuracies(correct, labels, cues, environment, 2) == {
        "val_worst_class": 0.5,
        "val_worst_group": 0.5,
        "val_worst_group_cue_1": 0.5,
        "val_worst_group_cue_2": 0.5,
        "val_environment_accuracy": pytest.approx((1 + 1 / 3) / 2),
    }
    single = group_accuracies(correct, labels, cues[:, 1:], environment, 1)
    assert single == {"val_worst_class": 0.5, "val_worst_group": 0.5}
    elsewhere = group_accuracies(correct, labels, cues, torch.full((6,), 2), 2)
    assert "val_environment_accuracy" not in elsewhere


def test_the_rule_of_selection_chooses_the_epoch(data, monkeypatch):
    """Of equal epochs the more accurate, then the earlier."""
    worst = {"val_worst_group": [0.1, 0.4, 0.4, 0.4], "val_accuracy": [0.9, 0.6, 0.7, 0.7]}
    worst["val_worst_class"] = [0.1, 0.5, 0.4, 0.5]
    columns = {"val_loss": [0.5, 0.1, 0.3, 0.2], **worst}
    expected = {"val_loss": 2, "val_accuracy": 1, "val_worst_group": 3, "last": 4}
    expected["val_worst_class"] = 4
    for rule, epoch in expected.items():
        method = make_baseline(settings_of(selection=rule), 6, SIZE, 0)
        trainer = Trainer(method, *data, RUN, replace(PROTOCOL, max_epochs=4))
        rows = iter(pd.DataFrame(columns).to_dict("records"))
        monkeypatch.setattr(trainer, "validate", lambda rows=rows: next(rows))
        fitted = trainer.fit()
        selection = fitted.selected_epoch, fitted.val_loss
        assert selection == (epoch, columns["val_loss"][epoch - 1]), rule


def test_a_rule_that_the_study_cannot_offer():
    train = annotated(32, 0, cues=1, environments=1)
    method = make_baseline(settings_of(selection="val_environment_accuracy"), 6, SIZE, 0)
    message = (
        "selection: .* that the study lacks.* choose one of val_loss, val_accuracy, last, val_worst"
    )
    with refused(message):
        Trainer(method, train, train, RUN, PROTOCOL).fit()


@pytest.mark.parametrize(
    ("selection", "dropped", "retained"),
    [
        (None, [3, 3, 3], [3, 3, 3, 1]),
        (torch.tensor([4, 4, 5, 6]), [3], [3, 1]),
        (torch.tensor([4, 5]), [2], [2]),
    ],
)
def test_an_epoch_is_made_of_what_is_sampled(selection, dropped, retained):
    for drop_last, sizes in ((True, dropped), (False, retained)):
        batches = epoch_batches(selection, 10, 3, torch.Generator().manual_seed(0), drop_last)
        assert list(map(len, batches)) == sizes
    draws = torch.cat(batches).sort().values
    assert torch.equal(draws, torch.arange(10) if selection is None else selection)


@pytest.mark.parametrize("selection", [None, torch.arange(20)])
def test_each_epoch_has_another_order(selection):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.cat(epoch_batches(selection, 20, 5, generator)).tolist() for _ in range(2))
    assert sorted(left) == sorted(right) == list(range(20))
    assert left != right and list(range(20)) not in (left, right)


MINE = """
from diagvib.methods.group_dro import GroupDro
from diagvib.methods.method import Method

print("run")

class Focal(Method):
    options = {"gamma": {"type": "number", "minimum": 0, "default": 2.0}}

    def combine(self, losses, batch):
        return ((1 - (-losses).exp()) ** self.options.gamma * losses).mean()

class Careful(GroupDro):
    options = {"patience": {"type": "integer", "default": 3}}

"""


@pytest.fixture
def own_method(tmp_path, monkeypatch):
    (tmp_path / "my_methods.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_method_of_ones_own(own_method, data):
    settings = settings_of("small_cnn", {"name": "my_methods:Focal", "gamma": 0.0})
    assert fit(make_baseline(settings, 6, SIZE, 0), data) == fit(made("erm"), data)
    assert settings_of("small_cnn", "my_methods:Focal")["method"]["gamma"] == 2.0
    inherited = settings_of("small_cnn", "my_methods:Careful")["method"]
    assert inherited == {
        "name": "my_methods:Careful",
        "supervision": "cues",
        "step_size": 0.01,
        "balanced": True,
        "patience": 3,
    }


def test_options_of_ones_own_are_checked_without_running_it(own_method):
    script = textwrap.dedent("""
        import sys
        from diagvib.foundation.errors import DiagvibError
        from diagvib.settings.baselines import complete, load_settings
        load_settings("asr")
        try:
            complete({"method": {"name": "my_methods:Focal", "gama": 1}, "model": "small_cnn", "batch_size": 4,
                      "optimiser": {"name": "adam", "lr": 1.0}, "origin": "x"}, "mine")
        except DiagvibError as error:
            print(error, "torch" in sys.modules)
        """)
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    message = process.stdout.strip()
    assert "mine.method.gama" in message and "did you mean" in message, message
    assert message.endswith("False")
