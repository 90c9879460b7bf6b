"""Every training sets PyTorch's switches while it runs, and restores them afterwards."""

import random
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diagvib.foundation.seeding import generators_restored, seed_generators
from diagvib.settings.layout import Run
from diagvib.training.protocol import Protocol, deterministic, epoch_seed

CPU = torch.device("cpu")


def tf32():
    """Where torch may round to TF32 on a GPU: convolutions, recurrent layers, matrix products."""
    operations = torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul
    return [operation.fp32_precision == "tf32" for operation in operations]


def test_fp32_means_no_tf32_until_the_end_also_behind_an_error():
    """torch itself allows TF32 for convolutions."""
    assert tf32() == [True, True, False]
    with pytest.raises(KeyError), deterministic(CPU, 1):
        assert tf32() == [False] * 3 and not torch.backends.cudnn.allow_tf32
        with deterministic(CPU, 1):
            assert tf32() == [False] * 3
        raise KeyError
    assert tf32() == [True, True, False]


@pytest.mark.parametrize(
    ("avx512", "amx", "used"),
    [(True, False, "bf16"), (False, True, "bf16"), (False, False, "fp32")],
)
def test_bf16_is_for_cpus_that_have_it(monkeypatch, avx512, amx, used):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    protocol = Protocol(max_epochs=1, patience=None, seed=0)
    assert protocol.on(CPU) == used
    assert Protocol(max_epochs=1, patience=None, seed=0, precision="fp32").on(CPU) == "fp32"


@pytest.mark.parametrize(("major", "used"), [(7, "fp32"), (8, "bf16")])
def test_bf16_is_for_gpus_that_have_it(monkeypatch, major, used):
    properties = SimpleNamespace(major=major)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    protocol = Protocol(max_epochs=1, patience=None, seed=0)
    assert protocol.on(torch.device("cuda")) == used


def drawn():
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()


def test_all_global_generators_are_seeded_and_restored():
    seed_generators(3)
    left, right = drawn(), drawn()
    seed_generators(3)
    assert drawn() == left
    with deterministic(CPU, 1):
        seed_generators(4)
        drawn()
    assert drawn() == right


def test_generators_of_all_gpus_in_use_are_restored(monkeypatch):
    restored = []

    @contextmanager
    def fork_rng(devices):
        restored.extend(devices)
        yield

    monkeypatch.setattr("torch.random.fork_rng", fork_rng)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    with generators_restored():
        pass
    assert restored == [0, 1, 2]


def test_every_dataset_sample_and_epoch_has_a_seed_of_its_own_and_every_baseline_the_same():
    runs = [Run(name, "zgo", "shape-hue", sample) for name in ("a", "b") for sample in (0, 1)]
    seeds = [epoch_seed(run, 1332, epoch) for run in runs for epoch in (1, 2)]
    assert seeds[:4] == seeds[4:] and len(set(seeds)) == 4
    alternatives = Run("a", "fgo-5", "shape-hue", 0), Run("a", "zgo", "hue-shape", 0)
    additions = [epoch_seed(runs[0], 7, 1), *(epoch_seed(run, 1332, 1) for run in alternatives)]
    assert len({*seeds, *additions}) == 7
