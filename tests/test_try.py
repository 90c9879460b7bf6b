"""`diagvib try`: what would fail is told in seconds, and nothing stays behind."""

import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from conftest import refused
from diagvib import cli
from diagvib.commands.dry_run import dry_run
from diagvib.commands.new_photos import look, write
from diagvib.commands.photo_columns import Columns
from diagvib.commands.plan import estimate
from diagvib.commands.plan_table import print_plan
from diagvib.commands.try_baseline import with_one_baseline
from diagvib.foundation.files import write_json
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from diagvib.settings.baselines import load_settings
from diagvib.settings.layout import Layout

CONFIG = """
root: out
sources: official
studies: [fgo-10]
bindings: [shape-hue, hue-shape]
samples: 3
seeds: 2
counts: {train: 4500, val: 90, id: 90, ood: 90}
image_size: 64
images: render
baselines: [{name: jtt, max_epochs: 3}]
baselines_from: [mine.yaml]
training: {max_epochs: 7}
"""
BASELINES = "".join(
    f"""
{name}:
  model: {model}
  method: {method}
  optimiser: {{name: adam, lr: 1.0e-3}}
  batch_size: 16
  origin: mine
"""
    for name, model, method in (
        ("raises", "small_cnn", "mine:Raises"),
        ("few_logits", "small_cnn", "mine:FewLogits"),
        ("infinite", "small_cnn", "mine:Infinite"),
        ("counts", "small_cnn", "mine:Counts"),
        ("pictures", "small_cnn", "mine:Pictures"),
        ("vector", "small_cnn", "mine:Vector"),
        ("masked", "small_cnn", "mine:Masked"),
        ("no_phases", "small_cnn", "mine:NoPhases"),
        ("constant", "small_cnn", "mine:Constant"),
        ("misnamed", "small_cnn", "mine:Misnamed"),
        ("late", "small_cnn", "mine:Late"),
        ("selects", "small_cnn", "mine:Selects"),
        ("draws", "small_cnn", "mine:Draws"),
        ("listed", "mine:Listed", "erm"),
        ("large", "mine:large", "erm"),
        ("shared", "mine:shared", "erm"),
        ("unseeded", "mine:unseeded", "erm"),
        ("absent", "{name: resnet18, weights: IMAGENET1K_V1, weights_file: gone.pth}", "erm"),
    )
)
METHODS = """
import numpy
import torch
from torch import nn
from diagvib.methods.method import Method, StepOutput

class Raises(Method):
    def combine(self, losses, batch):
        return losses.no_such_thing()

class FewLogits(Method):
    def predict(self, batch):
        return self.model(batch.inputs)[:, :2]

class Infinite(Method):
    def combine(self, losses, batch):
        return losses.mean() / 0

class Counts(Method):
    steps = 0
    def combine(self, losses, batch):
        self.steps += 1
        return losses.mean()

class Pictures(Method):
    def visualisations(self, batch, denormalise):
        return [batch.labels]

class Vector(Method):
    def combine(self, losses, batch):
        return losses

class Masked(Method):
    def sampling(self, phase, data):
        return data.labels == 0

class NoPhases(Method):
    def phases(self, data):
        return []

class Constant(Method):
    def combine(self, losses, batch):
        return torch.tensor(losses.mean().item(), requires_grad=True)

class Misnamed(Method):
    def optimisers(self, phase):
        return {"net": self.optimiser(self.model)}

class Late(Method):
    def start_phase(self, phase, data):
        self.extra = nn.Linear(3, 3)

class Selects(Method):
    selections = property(lambda self: {"hard": torch.tensor([1])})
    def augment(self, batch):
        return batch

class Draws(Method):
    def combine(self, losses, batch):
        self.memory["total"] = self.memory.get("total", 0) + losses.mean()
        return losses.mean()
    def predict(self, batch):
        return super().predict(batch) + torch.randn(10)
    def validation_step(self, phase, batch):
        return StepOutput(self.losses(self.predict(batch), batch.labels))

class Listed(nn.Module):
    def __init__(self, n_classes, image_size):
        super().__init__()
        self.first = [nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 8)]
        self.last = nn.Linear(8, n_classes)

    def forward(self, images):
        return self.last(nn.Sequential(*self.first)(images))

def large(n_classes, image_size):
    return nn.Sequential(nn.Conv2d(3, 4, 96), nn.Flatten(), nn.Linear(4, n_classes))

def tiny(n_classes, image_size):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, n_classes))

def shared(n_classes, image_size, nets={}):
    return nets.setdefault(n_classes, tiny(n_classes, image_size))

def unseeded(n_classes, image_size):
    net = tiny(n_classes, image_size)
    net[-1].bias.data += numpy.random.default_rng().normal()
    return net
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("c.yaml", CONFIG), ("mine.yaml", BASELINES), ("mine.py", METHODS)):
        Path(name).write_text(text)
    return tmp_path


def tried(*arguments: str) -> tuple[int, str]:
    """The exit code, and the output as one line without the table's frame."""
    result = CliRunner().invoke(cli.app, ["try", *arguments])
    assert result.exit_code in (0, 1), result.exception
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


def test_a_trial_tells_time_labels_and_settings_and_leaves_nothing(folder):
    """The sources are not here: stand-ins are as fast."""
    before = sorted(folder.rglob("*"))
    code, output = tried("jtt", "fgo-10", "--config", "c.yaml")
    assert code == 0 and "nothing failed" in output
    assert "the labels of shape; epochs are selected by" in output
    assert "at most 3 epochs (its entry in the configuration, not training.max_epochs, 7)" in output
    assert "6 runs on 4,500 images, epochs: identify" in output and "with copies" in output
    assert "2 such jobs" in output
    assert [path for path in sorted(folder.rglob("*")) if "pycache" not in str(path)] == before
    code, output = tried(
        "erm", "fgo-10", "hue-shape", "--config", "c.yaml", "--set", "counts.val=18"
    )
    assert "selected by val_worst_group, with labels of shape" in output
    assert "would be doubtful: its epoch was chosen by val_worst_group" in output


def test_a_trial_says_that_tuning_comes_first_and_then_has_its_settings(folder):
    entry = "baselines=[{name: small_cnn, settings: tuned}]"
    arguments = ("small_cnn", "fgo-10", "shape-hue", "--config", "c.yaml", "--set", entry)
    _, output = tried(*arguments)
    assert "batches of 32 (before small_cnn is tuned); tuning comes first" in output
    tuned = {**load_settings("small_cnn"), "batch_size": 16, "origin": "tuned"}
    write_json(Layout("out").tuning / "small_cnn.yaml", {"small_cnn": tuned})
    code, output = tried(*arguments)
    assert code == 0 and "batches of 16 (as tuned)" in output


@pytest.mark.parametrize(
    ("baseline", "problem"),
    [
        ("raises", "Raises.combine ({folder}/mine.py, line 9): AttributeError"),
        ("few_logits", "predict of mine:FewLogits gives float32[{n}, 2]; logits [B, classes] are"),
        ("infinite", "train_loss is nan in epoch 1"),
        ("counts", "changes steps while it trains"),
        ("pictures", "Pictures.visualisations ({folder}/mine.py, line 27): AttributeError"),
        (
            "vector",
            "combine of mine:Vector gives float32[16] from ",
        ),
        (
            "masked",
            "sampling of mine:Masked gives bool[82] from 0 to 1; None is needed, or a weight",
        ),
        ("no_phases", "phases of mine:NoPhases gives []; a list of one or more"),
        ("constant", "a loss that does not depend on the weights of the optimiser model"),
        ("misnamed", "gives update the name 'model', but its `optimisers` gives net"),
        ("late", "mine:Late could not continue after it was killed"),
        ("selects", "selections of mine:Selects gives (hard=int64[1] from 1 to 1), which JSON"),
        ("large", "Kernel size can't be greater than actual input size"),
        (
            "shared",
            "mine:shared returned parameters of an earlier call, so each run would go on from",
        ),
        ("absent", "gone.pth: no such file"),
    ],
)
def test_what_would_fail_has_a_line(folder, baseline, problem):
    precision = "training.precision=fp32"  # the same type of logits on every processor
    code, output = tried(baseline, "fgo-10", "--config", "c.yaml", "--set", precision)
    assert code == 1 and "Traceback" not in output
    assert output.count("would fail: ") == 1
    assert problem.format(folder=folder.resolve(), n=32) in output.partition("would fail: ")[2]
    # It goes on with random weights; pictures come last.
    assert ("prediction" in output) == (baseline in ("absent", "late", "pictures"))


def test_weights_that_no_seed_decides_are_doubtful(folder):
    code, output = tried("unseeded", "fgo-10", "--config", "c.yaml")
    assert code == 0 and "nothing failed" in output
    doubt = (
        "would be doubtful: its initial weights (model.head.bias) are others each time it is made"
    )
    assert doubt in output


def test_layers_that_torch_does_not_find_are_doubtful(folder):
    code, output = tried("listed", "fgo-10", "--config", "c.yaml")
    assert code == 0 and "would be doubtful: the modules in model.body.first are not" in output


def test_chance_growing_memory_and_another_selection_are_doubtful(folder):
    Path("mine.yaml").write_text(
        BASELINES.replace("mine:Draws", "mine:Draws\n  selection: val_accuracy")
    )
    code, output = tried("draws", "fgo-10", "--config", "c.yaml")
    assert code == 0 and output.count("would be doubtful: ") == 3
    for doubt in (
        "self.memory keeps all that total was computed from",
        "validation_step gives no logits, so epochs are selected by val_loss, not by val_accuracy",
        "predict of mine:Draws: the features of the same images differ from call to call",
    ):
        assert f"would be doubtful: {doubt}" in output


def test_a_study_in_which_a_method_is_impossible_is_refused(folder):
    with refused("group_dro needs train images of every combination"):
        with_one_baseline(Path("c.yaml"), None, "group_dro", "zgo", None)


@pytest.mark.parametrize("key", ["baselines", "studies", "bindings"])
def test_a_value_of_another_type_is_refused_before_it_is_used(folder, key):
    with refused(f"^c.yaml: {key}: must be .*a valid list, not 3"):
        with_one_baseline(Path("c.yaml"), [f"{key}=3"], "erm", "zgo", None)


def test_photos_are_tried_and_planned_as_many_as_there_are(tmp_path, monkeypatch, capsys):
    """In a published split: 40 for training of each of four combinations."""
    monkeypatch.chdir(tmp_path)
    for split, count in (("train", 40), ("val", 10), ("test", 10)):
        for number, name in enumerate(("bird/sea", "bird/land", "cow/sea", "cow/land")):
            place = Path("mine", split, name)
            place.mkdir(parents=True)
            for shade in range(count):
                colour = shade, 60 * number, 50 * len(split)
                Image.new("RGB", (20, 16), colour).save(place / f"{shade}.png")
    levels = ["split", "animal", "ground"]
    columns = Columns(target="animal", cues=["ground"], split="split", levels=levels)
    path = write(look(Path("mine"), None, columns), Path())["configuration"]
    config = with_one_baseline(path, ["image_size=64"], "erm", "mine-published", None)
    (baseline,), ((_, *dataset),) = config.baselines, config.train_jobs
    result = dry_run(config, baseline, tuple(dataset), "cpu")
    assert not result.problems and result.rates.prediction > 0
    assert result.sizes == {"mine-published": {"train": 160, "val": 40, "test": 40}}
    assert not Path(config.root).exists()
    plan = estimate(config, "cpu")
    assert plan["photos_not_known"] == ["mine-published"] and not plan["images"]
    print_plan(plan, config)
    assert "0 of 64 x 64 pixels, without photos" in capsys.readouterr().out
    prepared = Layout(config.root).prepared(config.scenes[0])
    shutil.copytree(cached(load_scene(config.scenes[0]), "official", None), prepared)
    plan = estimate(config, "cpu")
    assert plan["images"] == 240 and not plan["photos_not_known"]
