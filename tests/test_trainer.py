"""Training: it learns, selects, stops, continues bit for bit, and reports errors."""

import math
import re
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from conftest import refused
from diagvib.foundation.progress import TERMINAL
from diagvib.methods.method import Phase, StepOutput, initialised
from diagvib.provenance.conditions import trained_on
from diagvib.settings.layout import Run
from diagvib.training import callbacks, trainer
from diagvib.training.batches import Batches, Scaling
from diagvib.training.callbacks import Callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable, small_batches
from synthetic_methods import TwoPhases, settings_of, small_cnn, two_phases

CPU = torch.device("cpu")
RUN = Run("small_cnn", "zso", "hue", 0)
PROTOCOL = Protocol(max_epochs=4, patience=None, seed=3)


class Interrupted(Exception):
    pass


class Interruption(Callback):
    """Stops the training at a step or at the end of an epoch, counted from 1, by an error."""

    def __init__(self, step=None, epoch=None, error=Interrupted):
        self.step, self.epoch, self.error = step, epoch, error
        self.steps = 0

    def on_step(self, images):
        self.steps += 1
        if self.steps == self.step:
            raise self.error

    def on_epoch(self, row):
        if row["epoch"] == self.epoch:
            raise self.error


@pytest.fixture(scope="module")
def data():
    return small_batches(100)


def fit(model, data, *arguments, protocol=PROTOCOL, **keywords):
    return Trainer(model, *data, RUN, protocol).fit(*arguments, **keywords)


def interrupted(model, data, folder, epoch) -> Checkpoint:
    """The checkpoint of a training that was interrupted at the end of an epoch."""
    checkpoint = Checkpoint(folder / "state.pt", "d")
    with pytest.raises(Interrupted):
        fit(model, data, checkpoint, Interruption(epoch=epoch))
    return checkpoint


def fitted(model, data, **keywords):
    """Everything that training determines: its history, the selection, and the weights."""
    result = fit(model, data, **keywords)
    weights = {key: value.tolist() for key, value in model.state_dict().items()}
    return result.history, result.selected_epoch, result.val_loss, weights


def test_learns_what_is_separable(data):
    """And keeps the weights of the lowest validation loss."""
    model = small_cnn()
    result = fit(model, data)
    test = Batches(*separable(50, seed=2), CPU, data[0].scaling)
    prediction, confidence = predict(model, test, PROTOCOL)
    assert torch.equal(prediction, test.labels) and confidence.min() > 1 / 6
    losses = [row["val_loss"] for row in result.history]
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert result.val_loss == min(losses) == losses[result.selected_epoch - 1]
    with torch.inference_mode():
        loss = [model.validation_step("classify", batch).loss for batch in data[1].in_order()]
    assert torch.cat(loss).mean().item() == pytest.approx(result.val_loss, rel=0.02)


def test_the_best_epochs_weights_are_kept_if_a_later_one_is_worse(data):
    model, retained = small_cnn(), {}

    class Ruined(Callback):
        def on_epoch(self, row):
            if row["epoch"] == 2:
                retained.update({name: value.clone() for name, value in model.state_dict().items()})
                for group in trainer.optimisers["model"].param_groups:
                    group["lr"] = 1.0

    trainer = Trainer(model, *data, RUN, PROTOCOL)
    assert trainer.fit(callback=Ruined()).selected_epoch == 2
    assert all(torch.equal(value, retained[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("rule", "phase", "best"),
    [("val_worst_class", Phase("encode"), 1), ("val_loss", Phase("encode", selection="last"), 2)],
)
def test_of_a_phase_that_does_not_classify_the_least_loss_or_the_last_epoch_is_kept(
    data, rule, phase, best
):
    """`test_methods` has what each rule keeps of epochs that classify."""
    trainer = Trainer(two_phases(), *data, RUN, PROTOCOL)
    trainer.selection, trainer.phases = rule, [phase]
    for epoch in (1, 2):
        row = {"epoch": epoch, "val_loss": float(epoch)}
        row |= dict.fromkeys(("val_accuracy", "val_worst_class"))
        trainer.progress.history.append(row)
        trainer.select(row)
    assert trainer.progress.best["epoch"] == best


def test_patience_stops(data):
    class NeverBetter(TwoPhases):
        def phases(self, data):
            return [Phase("classify")]

        def validation_step(self, phase, batch):
            return StepOutput(torch.ones(len(batch.labels)))

        def training_step(self, phase, batch, update):
            output = super().validation_step(phase, batch)
            update("head", output.loss.mean())
            return output

    model = two_phases(NeverBetter)
    result = fit(model, data, protocol=Protocol(max_epochs=30, patience=2, seed=3))
    assert (len(result.history), result.selected_epoch) == (3, 1)
    assert result.history[0]["val_accuracy"] is None


def test_phases_with_frozen_parts_and_several_optimisers(data):
    model = two_phases()
    frozen = {}

    class AtPhaseTwo(Callback):
        def on_epoch(self, row):
            if row["phase"] == "classify":
                frozen.setdefault("weights", model.encoder[2].weight.clone())

    result = fit(model, data, callback=AtPhaseTwo())
    assert [row["phase"] for row in result.history] == ["encode"] * 2 + ["classify"] * 4
    assert result.history[0]["train_accuracy"] is None and result.history[-1]["val_accuracy"] > 0.5
    assert all(
        later["val_loss"] < former["val_loss"] for former, later in pairwise(result.history[:2])
    )
    assert torch.equal(model.encoder[2].weight, frozen["weights"])
    assert result.selected_epoch > 2


def test_a_phase_begins_with_the_best_weights_of_the_last(data):
    """Of the second, which leaves the encoder alone, with those of the first's first epoch."""
    model, left = two_phases(), {}

    class Ruined(Callback):
        def on_epoch(self, row):
            left.setdefault("weights", model.encoder[2].weight.clone())
            for optimiser in trainer.optimisers.values():
                for group in optimiser.param_groups:
                    group["lr"] = 10.0

    trainer = Trainer(model, *data, RUN, PROTOCOL)
    history = trainer.fit(callback=Ruined()).history
    assert history[1]["phase"] == "encode" and history[0]["val_loss"] < history[1]["val_loss"]
    assert torch.equal(model.encoder[2].weight, left["weights"])


class Loose(TwoPhases):
    """A list of modules is no part of a module."""

    def optimisers(self, phase):
        self.heads = [torch.nn.Linear(8, 3)]
        return {**super().optimisers(phase), "heads": self.optimiser(*self.heads)}


class InPlace(TwoPhases):
    def start_phase(self, phase, data):
        data.labels.add_(0)


class Fractional(TwoPhases):
    def phases(self, data):
        return [Phase("encode", max_epochs=data.max_epochs / 2)]


class NoEpochs(TwoPhases):
    def phases(self, data):
        return [Phase("encode", max_epochs=0)]


class Misspelt(TwoPhases):
    def phases(self, data):
        return [Phase("classify", selection="val_los")]


class Texts(TwoPhases):
    def phases(self, data):
        return ["encode", "classify"]


class Alone(TwoPhases):
    def phases(self, data):
        return Phase("classify")


class Frozen(TwoPhases):
    def build(self):
        super().build()
        self.requires_grad_(False)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Texts, r"phases of erm gives \['encode', 'classify'\]; a list of one or more"),
        (Alone, r"phases of erm gives Phase\(.*\); a list of one or more"),
        (Frozen, r"zso.*optimiser encoder of erm has nothing to train.*model.frozen: true"),
        (Loose, "the optimiser heads of .* has parameters that are none of the method's"),
        (InPlace, "changes images or labels in place"),
        (Fractional, "max_epochs must be None or an integer from 1 up"),
        (NoEpochs, "max_epochs must be None or an integer from 1 up"),
        (Misspelt, "selection None or one of val_loss, "),
    ],
)
def test_what_would_make_a_number_wrong_in_silence_is_refused(kind, says):
    with refused(says):
        fit(two_phases(kind), small_batches(100))


class ByLosses(TwoPhases):
    """The second phase draws images by the losses of the network that it begins with."""

    def sampling(self, phase, data):
        if phase == "encode":
            return None
        losses = [self.validation_step(phase, batch).loss for batch in data.in_order()]
        return torch.cat(losses).detach()


@pytest.mark.parametrize("epoch", [3, 4])
def test_what_is_drawn_by_the_network_is_the_same_after_a_kill(tmp_path, data, epoch):
    entire = fitted(two_phases(ByLosses), data)
    checkpoint = interrupted(two_phases(ByLosses), data, tmp_path, epoch)
    assert fitted(two_phases(ByLosses), data, checkpoint=checkpoint) == entire


class Late(TwoPhases):
    def start_phase(self, phase, data):
        if phase == "classify":
            self.teacher = torch.nn.Linear(2, 2)


def test_modules_that_are_made_too_late_to_continue_are_named(tmp_path, data):
    checkpoint = interrupted(two_phases(Late), data, tmp_path, 3)
    with refused("teacher.*make its modules in `build` or `setup`"):
        fit(two_phases(Late), data, checkpoint)


class Shared(TwoPhases):
    """The decoder's loss reaches the encoder, too."""

    def phases(self, data):
        return [Phase("encode", max_epochs=1)]

    def training_step(self, phase, batch, update):
        loss = self._error(self.encoder(batch.inputs), batch)
        update("decoder", loss.mean())
        return StepOutput(loss)


def test_an_update_is_of_the_parameters_of_its_optimiser_alone(data):
    model = two_phases(Shared)
    before = model.encoder[2].weight.clone()
    fit(model, data)
    assert torch.equal(model.encoder[2].weight, before)
    assert all(item.grad is None for item in model.encoder.parameters())


class NoisyPrediction(TwoPhases):
    def predict(self, batch):
        logits = super().predict(batch)
        return logits + torch.rand_like(logits)


def test_predictions_are_those_of_evaluation_mode_and_their_noise_is_seeded(data):
    model = two_phases().train()
    confidence = predict(model, data[1], PROTOCOL)[1]
    model.eval()
    logits = torch.cat([model.predict(batch) for batch in data[1].in_order()])
    assert torch.allclose(confidence, logits.softmax(1).max(1)[0], atol=5e-3)  # of bf16
    results = []
    for seed in (1, 2):  # of what happened before
        torch.manual_seed(seed)
        results.append(predict(two_phases(NoisyPrediction), data[1], PROTOCOL)[1])
    assert torch.equal(*results)


def test_only_epochs_that_classify_are_tracked(data):
    result = fit(two_phases(), data, tracker=lambda method: {"ood_accuracy": 0.5})
    assert [row.get("ood_accuracy") for row in result.history] == [None] * 2 + [0.5] * 4


def test_continues_bit_for_bit_and_ends_once(tmp_path, data):
    """Interrupted at a step; `test_methods` does so after every epoch."""
    entire = fitted(two_phases(), data)
    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    for step in (3, 20):
        with pytest.raises(Interrupted):
            fit(two_phases(), data, checkpoint, Interruption(step=step))
    assert fitted(two_phases(), data, checkpoint=checkpoint) == entire
    nothing_left = Interruption(step=1)
    assert fitted(two_phases(), data, checkpoint=checkpoint, callback=nothing_left) == entire


def test_a_run_names_all_machines_that_it_was_trained_on(tmp_path, data, monkeypatch):
    checkpoint = interrupted(two_phases(), data, tmp_path, 2)
    before = fit(two_phases(), data).trained_on
    monkeypatch.setattr(trainer, "machine", lambda: "another, 2 cores")
    checkpoint_again = replace(checkpoint)
    result = fit(two_phases(), data, checkpoint).trained_on
    assert result == {"device": "cpu", "machine": f"{before['machine']} then another, 2 cores"}
    assert fit(two_phases(), data, checkpoint_again).trained_on == result
    processor = before["machine"].rpartition(", ")[0]
    assert trained_on(result) == f"{processor} then another"


@pytest.mark.parametrize("damage", ["truncated", "one bit", "other digest"])
def test_unusable_checkpoint_is_ignored(tmp_path, data, capsys, damage):
    checkpoint = interrupted(two_phases(), data, tmp_path, 3)
    content = checkpoint.path.read_bytes()
    flipped = bytearray(content)
    with zipfile.ZipFile(checkpoint.path) as archive:  # not in the padding, which no sum covers
        longest = max(map(archive.read, archive.namelist()), key=len)
    flipped[content.index(longest) + len(longest) // 2] ^= 1
    changed = {"one bit": bytes(flipped), "truncated": content[: len(content) // 2]}
    checkpoint.path.write_bytes(changed.get(damage, content))
    if damage == "other digest":
        checkpoint = Checkpoint(checkpoint.path, "e")
    assert fitted(two_phases(), data, checkpoint=checkpoint) == fitted(two_phases(), data)
    assert f"{checkpoint.path}: checkpoint ignored" in capsys.readouterr().err


def test_independent_of_threads_outside_and_global_seed(data):
    """Both are as before afterwards."""
    before, results = torch.get_num_threads(), []
    for number in (3, before):
        torch.set_num_threads(number)
        torch.manual_seed(number)
        state = torch.get_rng_state()
        results.append(fitted(two_phases(), data))
        assert torch.get_num_threads() == number and torch.equal(torch.get_rng_state(), state)
    assert results[0] == results[1]


def test_scaling_is_that_of_all_pixels():
    pixels = torch.randint(0, 256, (700, 9, 9, 3), dtype=torch.uint8)
    pixels[..., 2] = 77
    scaling = Scaling.of_parts([pixels])
    numbers = pixels.double().flatten(0, 2)
    assert scaling.mean == pytest.approx(numbers.mean(0).tolist(), rel=1e-12)
    assert scaling.std[:2] == pytest.approx(numbers.std(0, unbiased=False)[:2].tolist(), rel=1e-12)
    assert scaling.std[2] == 1, "a constant channel is centred, not divided by zero"
    batches = Batches(pixels, torch.zeros(700, dtype=torch.int64), CPU)
    inputs = batches.batch(torch.arange(700)).inputs
    expected = (pixels - torch.tensor(scaling.mean)) / torch.tensor(scaling.std)
    assert torch.allclose(inputs, expected.permute(0, 3, 1, 2), atol=1e-5)


@pytest.mark.parametrize("split", ["train", "val"])
def test_loss_that_is_no_number(tmp_path, data, split):
    class Diverging(TwoPhases):
        def training_step(self, phase, batch, update):
            result = super().training_step(phase, batch, update)
            return StepOutput(result.loss * (math.inf if split == "train" else 1))

        def validation_step(self, phase, batch):
            result = super().validation_step(phase, batch)
            return StepOutput(result.loss * math.inf)

    model = two_phases(Diverging)
    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    with refused(
        f"small_cnn/zso/hue/0: {split}_loss is inf in epoch 1; lower the lr of "
        r"small_cnn \(now 0.01\)",
    ):
        fit(model, data, checkpoint)
    assert not checkpoint.path.exists()


@pytest.mark.parametrize(("subject", "epochs"), [({}, 4), ({"max_epochs": 2}, 2)])
def test_a_method_knows_the_validation_images_and_its_own_number_of_epochs(data, subject, epochs):
    model = small_cnn(**subject)
    names = Trainer(model, *data, RUN, PROTOCOL).data
    assert len(names.labels) == 100 and len(names.validation.labels) == 30
    assert names.max_epochs == epochs == len(fit(model, data).history)


def test_batch_larger_than_the_data(data):
    with refused(
        "batch_size 101 is more than the 100 training images; lower the batch_size "
        "of small_cnn, or raise counts.train",
    ):
        fit(small_cnn(batch_size=101), data)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda logits: logits[:, :2], r"gives logits of shape \[30, 2\]; \[30, 3\] is needed"),
        (
            lambda logits: logits.index_fill(0, torch.tensor([3, 7]), math.nan),
            "run: the logits of 2 of 30 images are not numbers",
        ),
    ],
)
def test_predictions_that_are_no_logits_are_refused(data, give, message):
    class Changed(TwoPhases):
        def predict(self, batch):
            return give(super().predict(batch))

    with refused(message):
        predict(two_phases(Changed), data[1], PROTOCOL, "run")


def test_a_job_tells_the_workflows_terminal_its_epoch_and_the_time_left(
    data, tmp_path, monkeypatch
):
    """Its own stderr is a log. The terminal is a file here, and once on another machine."""
    monkeypatch.setattr(callbacks, "SECONDS", 0)
    for place in ("terminal", "elsewhere/terminal"):
        monkeypatch.setenv(TERMINAL, str(tmp_path / place))
        with callbacks.training_callback("a run") as callback:
            fit(small_cnn(), data, callback=callback)
    first_bytes, *_ = (tmp_path / "terminal").read_text().splitlines()
    words = r"a run: epoch 1, val loss \d\.\d{4}, at most \d+\.\d min left in this phase"
    assert re.fullmatch(words, first_bytes)


def test_a_cosine_schedule_halves_the_rate_in_the_middle(data):
    trainer = Trainer(small_cnn(lr=0.1, schedule="cosine"), *data, RUN, PROTOCOL)
    rates, learn = [], trainer.learn

    def noted(*arguments):
        rates.append(trainer.optimisers["model"].param_groups[0]["lr"])
        return learn(*arguments)

    trainer.learn = noted
    trainer.fit()
    assert rates == pytest.approx([0.1, 0.05 * (1 + 0.5**0.5), 0.05, 0.05 * (1 - 0.5**0.5)])


class Counting(Callback):
    def __init__(self):
        self.images = []

    def on_step(self, images):
        self.images.append(images)


@pytest.mark.parametrize(("drop_last", "remainder"), [(True, []), (False, [4])])
def test_an_incomplete_batch_is_left_out_if_asked(data, drop_last, remainder):
    counted = Counting()
    protocol = replace(PROTOCOL, max_epochs=1)
    fit(small_cnn(drop_last=drop_last), data, None, counted, protocol=protocol)
    assert counted.images == [16] * 6 + remainder

    class Constant(TwoPhases):
        def training_step(self, phase, batch, update):
            output = super().training_step(phase, batch, update)
            return StepOutput(torch.ones_like(output.loss), output.logits)

    constant = initialised(lambda: Constant(settings_of(drop_last=drop_last), 3, SIZE), 3)
    assert fit(constant, data, protocol=protocol).history[0]["train_loss"] == 1, "of those used"


class Noisy(TwoPhases):
    def validation_step(self, phase, batch):
        loss = super().validation_step(phase, batch).loss
        return StepOutput(0 * loss + torch.rand(len(loss)))


def test_noise_is_the_same_in_every_validation(data):
    history = fit(two_phases(Noisy), data).history
    assert len(history) > 2 and len({row["val_loss"] for row in history}) == 1


def test_forward_passes_are_in_bf16_also_in_validation_and_gradients_are_not(data, monkeypatch):
    monkeypatch.setattr("diagvib.training.protocol.has_bf16", lambda device: True)
    calls = {}

    def note(name):
        calls.setdefault(name, set()).add(torch.is_autocast_enabled("cpu"))

    class Noted(TwoPhases):
        def training_step(self, phase, batch, update):
            def noted(name, loss):
                loss.register_hook(lambda gradient: note("backward"))
                update(name, loss)

            note("training")
            return super().training_step(phase, batch, noted)

        def validation_step(self, phase, batch):
            note("validation" if not self.training else "training")
            return super().validation_step(phase, batch)

    fit(two_phases(Noted), data)
    assert calls == {"training": {True}, "validation": {True}, "backward": {False}}


def test_scaling_is_exact_for_bright_images():
    """512 squares of bytes are above 2 ** 24, from where on float32 lacks odd numbers."""
    pixels = torch.full((512, 1, 1, 3), 255, dtype=torch.uint8)
    pixels[0] = 254
    assert Scaling.of_parts([pixels]).std == pytest.approx([511**0.5 / 512] * 3, rel=1e-12)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_loop_without_gradients_may_stand_around_a_training(data, off):
    """WILDS' own loop leaves them off."""
    histories = []
    for around in (nullcontext, off):
        model = small_cnn()
        with around():
            histories.append(fit(model, data, protocol=Protocol(1, None, 3)).history)
    assert histories[0] == histories[1]
