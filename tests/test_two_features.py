"""Two features, one of which is a shortcut: methods that should then do better than plain training
on the worst group do."""

import itertools
from dataclasses import replace

import pytest
import torch

from conftest import refused
from diagvib.methods.registry import make_baseline
from diagvib.settings.layout import Run
from diagvib.training.batches import Annotations, Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol
from diagvib.training.selection_rules import INFERRED
from diagvib.training.trainer import Trainer
from synthetic_methods import settings_of
from test_trainer import Interrupted, Interruption

CPU = torch.device("cpu")
GROUPS = [(label, cue) for label in (0, 1) for cue in (0, 1)]
# Images of each group: as in Waterbirds, the cue agrees with the label in 95 %; as in CelebA, one
# class is rare, and a cue rarer still in it.
WATERBIRDS, CELEBA = [475, 25, 25, 475], [400, 440, 150, 10]
EASIER = 4  # how much further apart the cue's classes may be than the label's


def drawn(counts, seed, easier=1, noise=0):
    """float[N, 2 + noise]: one feature for the label, a clearer one for the cue, others for
    nothing."""
    generator = torch.Generator().manual_seed(seed)
    label, cue = torch.tensor(GROUPS).repeat_interleave(torch.tensor(counts), 0).T
    n, wide = len(label), 0.5 if easier > 1 else 1.0
    core = 2 * label - 1 + wide * torch.randn(n, generator=generator)
    shortcut = easier * (2 * cue - 1 + 0.3 * torch.randn(n, generator=generator) / easier)
    alternatives = torch.randn(n, noise, generator=generator)
    return torch.cat([torch.stack([core, shortcut], 1), alternatives], 1), label, cue


def trainer(
    name, counts, epochs, easier=1, noise=0, lr=1e-2, selection="last", **options
) -> Trainer:
    def split(counts, seed):
        features, label, cue = drawn(counts, seed, easier, noise)
        description = Annotations(cue[:, None], None, ("0", "1"), {"cue": ("0", "1")})
        return Batches(features, label, CPU, None, description)

    linear = {"name": "linear", "options": {"features": 2 + noise}}
    method = {"name": name, **options}
    settings = settings_of(linear, method, lr, batch_size=32, selection=selection)
    protocol = Protocol(max_epochs=epochs, patience=None, seed=0)
    run, splits = Run("two", "zso", "hue", 0), (split(counts, 1), split([50] * 4, 2))
    trainer = Trainer(make_baseline(settings, 2, 0, 0), *splits, run, protocol)
    trainer.test = split([200] * 4, 3)
    return trainer


def worst_group(*description, **settings) -> float:
    trained = trainer(*description, **settings)
    trained.fit()
    test, method = trained.test, trained.method
    with torch.inference_mode():
        right = method.eval().predict(test.batch(torch.arange(800))).argmax(1) == test.labels
    return right.view(4, 200).float().mean(1).min().item()


def both(name, *description, noise=0, lr=1e-2, **options):
    arguments = {"noise": noise, "lr": lr}
    return worst_group("erm", *description, **arguments), worst_group(
        name, *description, **arguments, **options
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rwg", {}),
        ("afr", {"gamma": 4.0}),
        ("lc", {}),
        ("ula", {"bias_epochs": 10}),
        ("xrm", {}),
        ("dpe", {"noise": 30, "members": 3, "diversity": 100.0, "images": "validation"}),
        ("dpe", {"noise": 30, "members": 3, "diversity": 100.0, "supervision": "cues"}),
    ],
)
def test_a_cue_that_is_mostly_right(name, options):
    plain, subject = both(name, WATERBIRDS, 10, **options)
    assert plain < 0.4 and subject > plain + 0.25


@pytest.mark.parametrize("name", ["rwy", "suby", "llr"])
def test_a_cue_in_a_rare_class(name):
    plain, subject = both(name, CELEBA, 10, **({"class_balanced": True} if name == "llr" else {}))
    assert plain < 0.25 and subject > plain + 0.25


@pytest.mark.parametrize(
    ("name", "options"),
    [("self", {"finetuned": 20, "early": 0.1}), ("ula", {"bias_epochs": 1})],
)
def test_a_cue_that_is_learnt_first(name, options):
    plain, subject = both(name, WATERBIRDS, 20, EASIER, lr=3e-3, **options)
    assert plain < 0.5 and subject > plain + 0.3


def test_retraining_the_last_layer_alone_is_no_remedy():
    """Without balance, it learns the same from fewer images: the control for the others."""
    plain, subject = both("llr", WATERBIRDS, 10)
    assert abs(subject - plain) < 0.15


def test_a_head_that_overshoots_is_kept_as_it_was_at_its_best():
    """The steps of AFR, which weighs the rare images most, end below plain training."""
    plain, last = both("afr", WATERBIRDS, 10, head_lr=0.1)
    retained = worst_group("afr", WATERBIRDS, 10, head_lr=0.1, selection="val_worst_group")
    assert last < 0.05 and plain > 0.2 and retained > 0.7


@pytest.mark.parametrize(
    ("name", "length", "selection", "options"),
    [
        ("afr", "head_epochs", "val_worst_group", {"head_lr": 0.5, "gamma": 20.0}),
        ("llr", "head_epochs", "val_accuracy", {"head_lr": 0.1}),
        ("self", "steps", "val_loss", {"head_lr": 1.0, "finetuned": 20}),
        ("dpe", "head_epochs", "val_worst_group", {"noise": 30, "members": 1, "head_lr": 0.05}),
    ],
)
def test_the_best_epoch_of_a_head_is_kept(name, length, selection, options):
    """Of heads that were trained for 1, 2, ... epochs, the one that is best by the rule, measured as
    any other epoch is; of equal ones the more accurate, then the first."""
    rows, states = [], []
    for epochs in range(1, 7):
        shorter = trainer(name, WATERBIRDS, 1, **options, **{length: epochs})
        rows.append(shorter.fit().history[-1])
        states.append(shorter.method.state_dict())
    sign = -1 if selection == "val_loss" else 1
    scores = [(sign * row[selection], row["val_accuracy"]) for row in rows]
    best = scores.index(max(scores))
    entire = trainer(name, WATERBIRDS, 1, selection=selection, **options, **{length: 6})
    entire.fit()
    assert entire.method.selections == {"head_epochs": [best + 1]} and best < 5
    for key, value in entire.method.state_dict().items():
        assert torch.equal(value, states[best][key])


@pytest.mark.parametrize(
    ("name", "options"),
    [("afr", {"head_epochs": 20}), ("dpe", {"members": 3, "head_epochs": 2})],
)
def test_a_run_killed_while_it_retrains_ends_the_same(name, options, tmp_path):
    """Or when it has just retrained: the choice is kept, too."""

    def start():
        return trainer(name, WATERBIRDS, 1, selection="val_worst_group", **options)

    def result(trainer, *arguments):
        history = trainer.fit(*arguments).history
        state = {key: value.tolist() for key, value in trainer.method.state_dict().items()}
        return history, state, trainer.method.selections

    entire, killed, ranks = result(start()), start(), itertools.count(1)

    def rank(logits):
        if next(ranks) == 4:
            raise Interrupted
        return killed.rank(logits)

    killed.data = replace(killed.data, rank=rank)
    checkpoint = Checkpoint(tmp_path / "state.pt", "d")
    for begun, callback in ((killed, None), (start(), Interruption(epoch=2))):
        with pytest.raises(Interrupted):
            begun.fit(checkpoint, callback)
        torch.manual_seed(9)
    assert result(start(), checkpoint) == entire


def test_xrm_selects_by_groups_that_it_infers_in_validation():
    """A class, and whether either twin errs."""
    fitted = trainer("xrm", WATERBIRDS, 4, selection=INFERRED)
    epochs = fitted.fit()
    batch, right = fitted.val.batch(torch.arange(200)), torch.zeros(200, dtype=torch.bool)
    with torch.inference_mode():
        mistakes = (fitted.method.both(batch).argmax(2) != batch.labels).any(0)
        right = fitted.method.predict(batch).argmax(1) == batch.labels
    groups = [
        right[(batch.labels == label) & (mistakes == part)] for label in (0, 1) for part in (0, 1)
    ]
    worst = min(group.double().mean().item() for group in groups if len(group))
    column = [row.get(INFERRED) for row in epochs.history]
    assert column[:4] == [None] * 4 and max(column[4:]) == worst
    assert column[epochs.selected_epoch - 1] == worst and len({*column[4:]}) > 1
    with refused("selection: method erm infers no groups of validation"):
        trainer("erm", WATERBIRDS, 1, selection=INFERRED)
