"""Two features, one of which is a shortcut: methods that should then do better than plain training
on the worst group do."""

import pytest
import torch

from diagvib.methods.registry import make_baseline
from diagvib.settings.grid import Run
from diagvib.training.batches import Annotations, Batches
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_methods import settings_of

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
    others = torch.randn(n, noise, generator=generator)
    return torch.cat([torch.stack([core, shortcut], 1), others], 1), label, cue


def worst_group(name, counts, epochs, easier=1, noise=0, lr=1e-2, **options) -> float:
    def split(counts, seed):
        features, label, cue = drawn(counts, seed, easier, noise)
        about = Annotations(cue[:, None], None, ("0", "1"), {"cue": ("0", "1")})
        return Batches(features, label, CPU, None, about)

    train, val, test = split(counts, 1), split([50] * 4, 2), split([200] * 4, 3)
    linear = {"name": "linear", "options": {"features": 2 + noise}}
    method = {"name": name, **options}
    settings = settings_of(linear, method, lr, batch_size=32, selection="last")
    method = make_baseline(settings, 2, 0, 0)
    protocol = Protocol(max_epochs=epochs, patience=None, seed=0)
    Trainer(method, train, val, Run("two", "zso", "hue", 0), protocol).fit()
    with torch.inference_mode():
        right = method.eval().predict(test.batch(torch.arange(800))).argmax(1) == test.labels
    return right.view(4, 200).float().mean(1).min().item()


def both(name, *about, noise=0, lr=1e-2, **options):
    given = {"noise": noise, "lr": lr}
    return worst_group("erm", *about, **given), worst_group(name, *about, **given, **options)


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
    plain, own = both(name, WATERBIRDS, 10, **options)
    assert plain < 0.4 and own > plain + 0.25


@pytest.mark.parametrize("name", ["rwy", "suby", "llr"])
def test_a_cue_in_a_rare_class(name):
    plain, own = both(name, CELEBA, 10, **({"class_balanced": True} if name == "llr" else {}))
    assert plain < 0.25 and own > plain + 0.25


@pytest.mark.parametrize(
    ("name", "options"),
    [("self", {"finetuned": 20, "early": 0.1}), ("ula", {"bias_epochs": 1})],
)
def test_a_cue_that_is_learnt_first(name, options):
    plain, own = both(name, WATERBIRDS, 20, EASIER, lr=3e-3, **options)
    assert plain < 0.5 and own > plain + 0.3


def test_retraining_the_last_layer_alone_is_no_remedy():
    """Without balance, it learns the same from fewer images: the control for the others."""
    plain, own = both("llr", WATERBIRDS, 10)
    assert abs(own - plain) < 0.15
