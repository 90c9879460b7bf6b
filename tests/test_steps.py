"""Recorded steps, and one trainer for several runs: both end where new models trained step by step end, bit for bit."""

import pytest
import torch

from diagvib.methods.method import Outcome
from diagvib.methods.registry import load_settings, make_baseline
from diagvib.settings.grid import Run
from diagvib.training.batches import Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.in_place import clear_optimiser, load_optimiser
from diagvib.training.trainer import Protocol, Trainer, Watcher, fit
from recorded_operations import RecordedOperations
from synthetic_images import SIZE, separable
from test_trainer import Interrupted, Interruption, TwoPhases, small_cnn, two_phases

CPU = torch.device("cpu")
PROTOCOL = Protocol(max_epochs=2, patience=None, seed=3)


def run(sample):
    return Run("small_cnn", "zso", "hue", "hue", None, sample)


def dataset(sample):
    train = Batches(*separable(80, seed=10 * sample), CPU)
    return train, Batches(*separable(20, seed=10 * sample + 1), CPU, train.scaling)


def outcome(model, fitted):
    return (fitted.history, fitted.selected_epoch,
            {name: value.clone() for name, value in model.state_dict().items()})


def same(one, other):
    return one[:2] == other[:2] and all(torch.equal(one[2][name], other[2][name]) for name in one[2])


def alone(make, sample, protocol=PROTOCOL):
    model = make()
    return outcome(model, fit(model, *dataset(sample), run(sample), protocol, CPU))


def recording_trainer(model, protocol=PROTOCOL):
    trainer = Trainer(model, protocol, CPU)
    trainer.graphs = RecordedOperations()
    return trainer


@pytest.mark.parametrize("make", [small_cnn, two_phases])
def test_a_recorded_step_computes_what_the_step_does(make):
    trainer = recording_trainer(make())
    fitted = trainer.fit(*dataset(0), run(0))
    assert same(outcome(trainer.model, fitted), alone(make, 0))
    assert all((row["train_accuracy"] or 0) <= 1 for row in fitted.history), "every epoch counts anew"
    # 5 steps an epoch, 2 epochs a phase; the first three of each phase are made before recording.
    assert trainer.graphs.repetitions == [7] * len(trainer.model.phases())


@pytest.mark.parametrize("name", ["resnet18", "asr", "vae", "factor_vae"])
def test_steps_of_the_papers_baselines_can_be_recorded(name):
    """Noise, batch norm, several optimisers; and no step waits for the device. resnet18 stands for the classifiers of
    torchvision that differ from it in layers only."""
    settings = {**load_settings(name), "batch_size": 4}
    if name == "asr":
        settings["options"] = {"base_width": 4, "levels": 2}
    protocol = Protocol(max_epochs=1, patience=None, seed=3)
    train = Batches(*separable(20, seed=0), CPU)
    val = Batches(*separable(8, seed=1), CPU, train.scaling)
    results = []
    for recorded in (False, True):
        trainer = Trainer(make_baseline(settings, 6, SIZE, 3), protocol, CPU)
        if recorded:
            trainer.graphs = RecordedOperations()
        results.append(outcome(trainer.model, trainer.fit(train, val, run(0))))
    assert trainer.graphs.repetitions == [2] * len(trainer.model.phases())
    assert same(*results)


@pytest.mark.parametrize("make", [small_cnn, two_phases])
@pytest.mark.parametrize("recorded", [False, True])
def test_one_trainer_for_several_runs(make, recorded):
    trainer = recording_trainer(make()) if recorded else Trainer(make(), PROTOCOL, CPU)
    train, val = dataset(2)
    for sample in (2, 0, 1, 2):
        assert train.refill(*separable(80, seed=10 * sample))
        assert val.refill(*separable(20, seed=10 * sample + 1), train.scaling)
        assert same(outcome(trainer.model, trainer.fit(train, val, run(sample))), alone(make, sample))
    if recorded:
        phases = len(trainer.model.phases())
        assert trainer.graphs.repetitions == [7 + 3 * 10] * phases, "recorded once, for all four runs"


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("at", [{"step": 3}, {"step": 7}, {"epoch": 1}, {"epoch": 2}, {"epoch": 3}])
def test_one_trainer_continues_an_interrupted_run_between_others(tmp_path, recorded, at):
    trainer = recording_trainer(two_phases()) if recorded else Trainer(two_phases(), PROTOCOL, CPU)
    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    train, val = dataset(0)
    trainer.fit(train, val, run(0))
    train.refill(*separable(80, seed=10))
    val.refill(*separable(20, seed=11), train.scaling)
    with pytest.raises(Interrupted):
        trainer.fit(train, val, run(1), checkpoint, Interruption(**at))
    for samples in ((2, 1), (0, 1)):  # the second time from the checkpoint of a finished run
        for sample in samples:
            train.refill(*separable(80, seed=10 * sample))
            val.refill(*separable(20, seed=10 * sample + 1), train.scaling)
            fitted = trainer.fit(train, val, run(sample), checkpoint if sample == 1 else None)
            assert same(outcome(trainer.model, fitted), alone(two_phases, sample))


def test_images_elsewhere_are_recorded_anew():
    trainer = recording_trainer(small_cnn())
    for sample in (0, 1):
        assert same(outcome(trainer.model, trainer.fit(*dataset(sample), run(sample))), alone(small_cnn, sample))
    assert trainer.graphs.repetitions == [7, 7]


def test_images_of_another_shape_are_not_put_in_place():
    train, _ = dataset(0)
    before = train.pixels.clone(), train.scaling
    assert not train.refill(*separable(81, seed=1))
    assert not train.refill(*separable(80, seed=1, size=48))
    assert torch.equal(train.pixels, before[0]) and train.scaling == before[1]


def test_a_step_that_reads_a_value_back_is_not_recorded(capsys):
    """As a user's model may: the run goes on step by step, to the same end, and one line says why."""
    class Waiting(TwoPhases):
        def training_step(self, phase, batch, update):
            result = super().training_step(phase, batch, update)
            return Outcome(result.loss * (1.0 if result.loss.mean().item() > 0 else 2.0), result.logits)

    def make():
        model = two_phases()
        model.__class__ = Waiting
        return model

    trainer = recording_trainer(make())
    assert same(outcome(trainer.model, trainer.fit(*dataset(0), run(0))), alone(make, 0))
    assert capsys.readouterr().err.splitlines() == 2 * [
        "training without CUDA graphs, step by step: operation not permitted when stream is capturing"]


def test_too_little_memory_for_recording_is_not_hidden():
    class TooSmall(RecordedOperations):
        def record(self, work):
            raise torch.OutOfMemoryError("CUDA out of memory")

    trainer = Trainer(small_cnn(), PROTOCOL, CPU)
    trainer.graphs = TooSmall()
    with pytest.raises(torch.OutOfMemoryError):
        trainer.fit(*dataset(0), run(0))


def test_an_optimiser_is_loaded_and_cleared_where_it_is():
    parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))]

    def adam():
        return torch.optim.Adam(parameters, lr=0.1, fused=True)

    def step(optimiser):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.5)
        optimiser.step()

    def places(optimiser):
        return [tensor.data_ptr() for state in optimiser.state.values() for tensor in state.values()]

    one, other = adam(), adam()
    for optimiser in (one, other, other):
        step(optimiser)
    held = places(one)
    load_optimiser(one, other.state_dict())
    assert places(one) == held
    for parameter in parameters:
        assert all(torch.equal(one.state[parameter][name], other.state[parameter][name])
                   for name in ("step", "exp_avg", "exp_avg_sq"))
    load_optimiser(one, adam().state_dict())  # one that has made no step
    assert places(one) == held and not any(t.any() for s in one.state.values() for t in s.values())
    step(one)
    clear_optimiser(one)
    assert places(one) == held and not any(t.any() for s in one.state.values() for t in s.values())


def test_what_looks_on_learns_where_a_run_continues(tmp_path):
    class Beginning(Watcher):
        epochs = None

        def on_run(self, history):
            self.epochs = [row["epoch"] for row in history]

    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    with pytest.raises(Interrupted):
        fit(small_cnn(), *dataset(0), run(0), PROTOCOL, CPU, checkpoint, Interruption(epoch=1))
    for expected in ([1], [1, 2]):
        beginning = Beginning()
        fit(small_cnn(), *dataset(0), run(0), PROTOCOL, CPU, checkpoint, beginning)
        assert beginning.epochs == expected
