"""Random search: what each trial draws, which trial each rule chooses, and real training at toy
size, also killed."""

import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from conftest import refused
from diagvib import stages as jobs
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.foundation.validation import validated
from diagvib.settings.baselines import complete, load_settings
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.ranges import (
    Ranges,
    distinct_trials,
    read_ranges,
    search_space,
    trial_values,
)
from diagvib.settings.resolve import load_config
from diagvib.training import trials
from diagvib.training.tuning import choose, rule_rows
from toy import images_here

STUDY, BINDING = "o2o-easy", "shape-hue"
TOY = [
    "sources=embedded",
    "image_size=64",
    "samples=1",
    f"studies=[{STUDY}]",
    f"bindings=[{BINDING}]",
    "counts={train: 96, val: 32, id: 32, ood: 32}",
    "baselines=[erm_env, coral]",
    "training.max_epochs=2",
    "training.track_test=true",
]
SEARCH = [*TOY, f"tuning.study={STUDY}"]
MINE = (
    "{all: {optimiser.lr: {log10: [-4, -2]}, batch_size: {log2: [3, 4]}}, coral: {method.gamma: {log10: [-1, 1]}}, "
    "fish: {method.meta_lr: {choice: [0.05, 0.1, 0.5]}}}"
)
RULES = [
    "val_loss",
    "val_accuracy",
    "val_worst_group",
    "val_environment_accuracy",
    "last",
    "oracle",
]


def searching(**changed) -> str:
    options = {"bindings": f"[{BINDING}]", "trials": 3, "ranges": MINE, **changed}
    return (
        "tuning.random_search={"
        + ", ".join(f"{key}: {value}" for key, value in options.items())
        + "}"
    )


@cache
def space(baseline: str, ranges: str = MINE) -> dict:
    inputs = validated(Ranges, yaml.safe_load(ranges), "r")
    return search_space(load_settings(baseline), inputs, "r", baseline)


def drawn(baseline: str, trial: int, ranges: str = MINE, seed: int = 0) -> dict:
    return trial_values(load_settings(baseline), space(baseline, ranges), seed, trial)


def test_no_two_trials_are_the_same_and_choices_are_exhausted():
    four = "{all: {batch_size: {choice: [8, 16]}, optimiser.lr: {choice: [0.1, 0.2]}}}"
    settings = load_settings("coral")
    for count in (2, 4, 50):
        trials = distinct_trials(settings, space("coral", four), 0, count)
        assert len(trials) == min(count, 5) and trials[0] == drawn("coral", 0, four)
        assert len({tuple(trial.values()) for trial in trials}) == len(trials)
        assert trials == distinct_trials(settings, space("coral", four), 0, 50)[:count]
    assert distinct_trials(settings, space("coral"), 0, 9) == [drawn("coral", n) for n in range(9)]


def test_a_grid_of_choices_is_whole_whatever_is_drawn(monkeypatch):
    monkeypatch.setattr("diagvib.settings.ranges._ATTEMPTS", 1)  # the second draw may be the first
    nine = "{coral: {method.gamma: {choice: [1, 2, 3]}, batch_size: {choice: [8, 16, 32]}}}"
    settings = load_settings("coral")
    trials = distinct_trials(settings, space("coral", nine), 0, 100)
    grid = {(g, size) for g in (1.0, 2.0, 3.0) for size in (8, 16, 32)}
    own_values = tuple(drawn("coral", 0, nine).values())
    assert {tuple(trial.values()) for trial in trials} == grid | {own_values}
    for count in range(1, len(trials)):
        assert distinct_trials(settings, space("coral", nine), 0, count) == trials[:count]


def test_ranges_may_be_those_of_a_baseline(tmp_path):
    display = (
        "{small_cnn: {optimiser.lr: {log10: [-4, -3]}}, all: {optimiser.lr: {log10: [-2, -1]}}}"
    )
    assert space("small_cnn", display)["optimiser.lr"].log10 == [-4, -3]
    assert space("coral", display)["optimiser.lr"].log10 == [-2, -1]
    ranges = validated(Ranges, yaml.safe_load(display), "r")
    assert read_ranges(ranges, ["small_cnn"]) == ranges
    with refused("unknown method or baseline 'small_cnn'; did you mean sm"):
        read_ranges(ranges, ["small_cnns"])


def test_the_range_of_a_method_takes_precedence_wherever_it_is_written():
    subject = "{coral: {optimiser.lr: {log10: [-4, -3]}}, all: {optimiser.lr: {log10: [-2, -1]}}}"
    assert space("coral", subject)["optimiser.lr"].log10 == [-4, -3]


def test_a_trial_is_drawn_by_seed_number_and_setting_alone():
    """The first has the baseline's own settings."""
    settings, single = load_settings("coral"), drawn("coral", 7)
    settings_ = settings["optimiser"]["lr"], settings["batch_size"], settings["method"]["gamma"]
    assert tuple(drawn("coral", 0).values()) == settings_
    assert drawn("erm_env", 7).items() < single.items(), "all methods share what all of them draw"
    gamma = drawn("coral", 7, "{coral: {method.gamma: {log10: [-1, 1]}}}")
    assert gamma == {"method.gamma": single["method.gamma"]}
    for alternative in (drawn("coral", 8), drawn("coral", 7, seed=1)):
        assert all(alternative[key] != single[key] for key in ("optimiser.lr", "method.gamma"))


def test_a_frozen_network_is_not_searched():
    """All trials read the features that were computed once."""
    with refused("r: model.options.width: the network of lite0 is frozen"):
        space("lite0", "{all: {model.options.width: {choice: [1, 2]}}}")


def test_numbers_have_the_kind_that_the_setting_has():
    trial = drawn("ula", 1, "{ula: {method.strength: {choice: [2]}}}")
    assert type(trial["method.strength"]) is float
    with refused("r: model.options.width: small_cnn does not say whether"):
        space("small_cnn", "{all: {model.options.width: {log2: [3, 6]}}}")


def test_draws_fill_their_range():
    """Evenly, in the exponent; whole numbers are rounded down."""
    several = pd.DataFrame([drawn("coral", trial) for trial in range(1, 401)])
    exponent = np.log10(several["optimiser.lr"])
    assert exponent.between(-4 - 1e-4, -2 + 1e-4).all()
    assert exponent.mean() == pytest.approx(-3, abs=0.1)
    assert exponent.std() == pytest.approx(2 / 12**0.5, rel=0.1)
    assert set(several["batch_size"]) == set(range(8, 16))
    epochs = [drawn("xrm", 1, "{xrm: {method.twin_epochs: {uniform: [2, 3]}}}")]
    assert epochs == [{"method.twin_epochs": 2}], "also where null is another value"
    settings = load_settings("small_cnn")
    settings["model"]["options"] = {"width": 32}
    ranges = validated(Ranges, {"all": {"model.options.width": {"log2": [3, 6]}}}, "r")["all"]
    width = trial_values(settings, ranges, 0, 1)["model.options.width"]
    assert type(width) is int and 8 <= width < 64
    rates = pd.Series([drawn("fish", trial)["method.meta_lr"] for trial in range(1, 401)])
    assert set(rates) == {0.05, 0.1, 0.5}


def test_the_shipped_ranges_fit_every_baseline():
    for name in read_yaml(definition_path("baselines/domain_generalisation.yaml")):
        for names in ("domainbed", "domainbed-small"):
            assert len(search_space(load_settings(name), read_ranges(names), "r", name)) >= 2


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"ranges": "{all: {method.gamma: {log10: [-1, 1]}}}"},
            "method.gamma: unknown option 'gamma'",
        ),
        ({"ranges": "domain"}, "unknown set of ranges 'domain'; did you mean domainbed"),
        (
            {"ranges": "{coral: {method.gamma: {log10: [1, -1]}}}"},
            r"gamma.log10: \[1.0, -1.0\] is in descending order",
        ),
        (
            {"ranges": "{all: {batch_size: {uniform: [1, 4]}}}"},
            "erm_env.batch_size: must be greater than or equal to 2",
        ),
        (
            {"ranges": "{all: {optimiser.lr: {uniform: [0.1, 1001]}}}"},
            "erm_env.optimiser.lr: must be less than or equal to 1000",
        ),
    ],
)
def test_what_cannot_be_searched_is_named_at_planning(changed, says):
    with refused(says) as error:
        load_config(None, [*SEARCH, searching(**changed)])
    assert "\n" not in str(error.value) and "random_search" in str(error.value)


def test_a_search_needs_a_study_that_its_baselines_can_be_trained_on():
    """A baseline not trained on the study is not tuned on it, except by the grid."""
    with refused("random_search: coral: study zgo: .* environments, but"):
        load_config(None, [*SEARCH, searching(), "tuning.study=zgo"])
    two = "baselines=[{name: coral, studies: [o2o-easy]}, {name: small_cnn, studies: [zgo]}]"
    studies = "studies=[o2o-easy, zgo]"
    search = load_config(None, [*SEARCH, studies, two, searching()])
    assert search.tuned == ["coral"]
    assert load_config(None, [*TOY, studies, two]).tuned == ["coral", "small_cnn"]


def history(*epochs: tuple) -> list[dict]:
    names = (
        "val_loss",
        "val_accuracy",
        "val_worst_group",
        "val_environment_accuracy",
        "id_accuracy",
        "ood_accuracy",
    )
    return [
        {
            "epoch": number,
            "phase": "classify",
            "train_loss": 1.0,
            "train_accuracy": 0.5,
            **dict(zip(names, values, strict=True)),
        }
        for number, values in enumerate(epochs, 1)
    ]


# Validation loss, accuracy, worst group, accuracy of the environments; accuracy on id and on ood.
# Each rule has a different epoch.
EPOCHS = [
    (0.1, 0.5, 0.1, 0.5, 0.9, 0.3),
    (0.5, 0.9, 0.2, 0.6, 0.9, 0.4),
    (0.6, 0.6, 0.8, 0.7, 0.9, 0.5),
    (0.7, 0.7, 0.3, 0.8, 0.9, 0.6),
    (0.8, 0.4, 0.1, 0.4, 0.9, 0.2),
    (0.9, 0.3, 0.0, 0.3, 0.9, 0.7),
    (0.9, 0.2, 0.0, 0.3, 0.8, 0.1),
]


def test_each_rule_keeps_its_epoch():
    result = pd.DataFrame(rule_rows(history(*EPOCHS))).set_index("rule")
    assert result["epoch"].to_dict() == dict(zip(RULES, (1, 2, 3, 4, 7, 6), strict=True))
    assert result["test_accuracy"].to_list() == [0.3, 0.4, 0.5, 0.6, 0.1, 0.7]
    # For the last epoch, the accuracy on validation images of the training environments.
    assert result["score"].to_list() == [0.1, 0.9, 0.8, 0.8, 0.3, 0.7]


def rows(*scores: tuple) -> pd.DataFrame:
    """scores: trial, status, then score and test accuracy of val_loss and of
    val_environment_accuracy."""
    return pd.DataFrame(
        [
            {
                "trial": trial,
                "status": status,
                "rule": rule,
                "score": score,
                "test_accuracy": tested,
            }
            for trial, status, *arguments in scores
            for rule, score, tested in (
                ("val_loss", *arguments[:2]),
                ("val_environment_accuracy", *arguments[2:]),
            )
        ]
    )


def test_only_epochs_of_the_last_phase_may_be_chosen(monkeypatch):
    """Those before it are not of the network that is tested."""
    epochs = [{"phase": "identify"}, {"phase": "classify"}, {"phase": "classify"}]
    fitted = SimpleNamespace(history=epochs, val_loss=1.0, selected_epoch=2)
    monkeypatch.setattr(trials, "fit", lambda *_: (None, fitted))
    outcome = trials.train_trial(None, None, SimpleNamespace(train=[0]), None, "a")
    assert outcome["history"] == epochs[1:] and outcome["epochs"] == 3


def test_rules_choose_trials_by_their_mean_scores():
    table = rows(
        (0, "ok", 0.3, 0.5, 0.7, 0.6),
        (0, "ok", 0.5, 0.7, 0.9, 0.8),
        (1, "ok", 0.1, 0.1, 0.7, 0.2),
        (1, "ok", 0.5, 0.3, 0.8, 0.4),
        (2, "ok", 0.0, 0.9, 1.0, 0.9),
        (2, "diverged", 0.0, 0.9, 1.0, 0.9),
        (3, "ok", 0.4, 0.0, 0.8, 0.0),
        (3, "ok", 0.4, 0.0, 0.8, 0.0),
    )
    choice = choose(table, "net")
    assert choice["trial"].to_dict() == {"val_loss": 1, "val_environment_accuracy": 0}, (
        "0 and 3 are equal: the former"
    )
    assert choice["score"].to_list() == pytest.approx([0.3, 0.8])
    assert choice["test_accuracy"].to_list() == pytest.approx([0.2, 0.7])
    with refused("tune net: no trial ends with a score on every dataset; try other"):
        choose(table[table["trial"] == 2], "net")


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    """A root with one dataset, in which coral was tuned once."""
    config = load_config(None, [*SEARCH, searching()])
    layout = images_here(config, tmp_path_factory.mktemp("search"))
    jobs.tune(layout, stage_settings(config, "tune", baseline="coral"), "coral", "cpu")
    return layout.root


def test_the_table_says_what_each_rule_would_choose_and_have_got(searched):
    table = pd.read_csv(searched / "results/tuning/coral.csv")
    settings = ["batch_size", "optimiser.lr", "method.gamma"]
    recorded = [*RULES[:2], "val_worst_class", *RULES[2:]]
    assert table["rule"].to_list() == recorded * 3 and set(table["epochs"]) == {2}
    for trial, part in table.groupby("trial"):
        values = drawn("coral", trial)
        assert part[list(values)].drop_duplicates().to_dict("records") == [values]
    for rule, part in table.groupby("rule"):
        best = part.loc[part["score"].idxmin() if rule == "val_loss" else part["score"].idxmax()]
        assert part.loc[part["chosen"], "trial"].to_list() == [best["trial"]]
    best = table[(table["rule"] == "val_environment_accuracy") & table["chosen"]].iloc[0]
    entry = complete(read_yaml(searched / "results/tuning/coral.yaml")["coral"], "coral")
    result = entry["batch_size"], entry["optimiser"]["lr"], entry["method"]["gamma"]
    assert result == tuple(best[settings])
    message = f"trial {best['trial']} of a random search of 3 (seed 0; batch_size 2^U(3, 4); "
    assert message in entry["origin"]


def test_trials_of_another_seed_are_trained_anew(searched, tmp_path):
    """But for the first, which has the baseline's own values."""
    root = shutil.copytree(searched, tmp_path / "root")
    config = load_config(None, [*SEARCH, searching(seed=1)])
    jobs.tune(Layout(root), stage_settings(config, "tune", baseline="coral"), "coral", "cpu")
    before, after = (
        pd.read_csv(top / "results/tuning/coral.csv").query("rule == 'val_loss'")["score"]
        for top in (searched, root)
    )
    assert before[0] == after[0] and len({*before, *after}) == len(before) + len(after) - 1
