"""Recorded steps end where models trained step by step end, bit for bit."""

import pytest
import torch

from diagvib.methods.method import StepOutput
from diagvib.methods.registry import make_baseline
from diagvib.settings.grid import Run
from diagvib.training.batches import Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from recorded_operations import RecordedOperations
from synthetic_images import SIZE, separable
from synthetic_methods import TwoPhases, changed, small_cnn, two_phases
from test_trainer import Interrupted, Interruption

CPU = torch.device("cpu")
PROTOCOL = Protocol(max_epochs=2, patience=None, seed=3)


RUN = Run("small_cnn", "zso", "hue", "hue", (), 0)


def dataset():
    train = Batches(*separable(80, seed=0), CPU)
    return train, Batches(*separable(20, seed=1), CPU, train.scaling)


def fit(model, *arguments, protocol=PROTOCOL, **keywords):
    return Trainer(model, *dataset(), RUN, protocol).fit(*arguments, **keywords)


def result(model, fitted):
    return (
        fitted.history,
        fitted.selected_epoch,
        {name: value.clone() for name, value in model.state_dict().items()},
    )


def same(one, other):
    return one[:2] == other[:2] and all(
        torch.equal(one[2][name], other[2][name]) for name in one[2]
    )


def alone(make):
    model = make()
    return result(model, fit(model))


@pytest.mark.parametrize("make", [small_cnn, two_phases])
def test_a_recorded_step_computes_what_the_step_does(make):
    model, graphs = make(), RecordedOperations()
    fitted = fit(model, graphs=graphs)
    assert same(result(model, fitted), alone(make))
    assert all((row["train_accuracy"] or 0) <= 1 for row in fitted.history), (
        "every epoch counts anew"
    )
    # 5 steps an epoch, 2 epochs a phase; the first three of each phase are made before recording.
    assert graphs.repetitions == [7] * len({row["phase"] for row in fitted.history})


def test_a_smaller_last_batch_is_not_repeated_from_the_record():
    """80 images in batches of 32: of six steps the fourth is recorded, and two are smaller."""
    results = []
    for graphs in (None, RecordedOperations()):
        settings = changed("small_cnn", batch_size=32, drop_last=False)
        model = make_baseline(settings, 3, SIZE, 3)
        results.append(result(model, fit(model, graphs=graphs)))
    assert graphs.repetitions == [2] and same(*results)


@pytest.mark.parametrize("at", [{"step": 7}, {"epoch": 2}])
def test_an_interrupted_run_continues_with_recorded_steps(tmp_path, at):
    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    with pytest.raises(Interrupted):
        fit(two_phases(), checkpoint, Interruption(**at), graphs=RecordedOperations())
    for _ in range(2):  # the second time from the checkpoint of a finished run
        model = two_phases()
        assert same(
            result(model, fit(model, checkpoint, graphs=RecordedOperations())), alone(two_phases)
        )


def test_a_step_that_reads_a_value_back_is_not_recorded(capsys):
    """As a user's model may do: the run continues step by step, with the same result, and one line
    says why."""

    class Waiting(TwoPhases):
        def training_step(self, phase, batch, update):
            output = super().training_step(phase, batch, update)
            return StepOutput(
                output.loss * (1.0 if output.loss.mean().item() > 0 else 2.0), output.logits
            )

    model = two_phases(Waiting)
    assert same(
        result(model, fit(model, graphs=RecordedOperations())), alone(lambda: two_phases(Waiting))
    )
    assert capsys.readouterr().err.splitlines() == 2 * [
        "training without CUDA graphs, step by step: operation not permitted when stream is capturing"
    ]


def test_too_little_memory_for_recording_is_not_hidden():
    class TooSmall(RecordedOperations):
        def record(self, work):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        fit(small_cnn(), graphs=TooSmall())
