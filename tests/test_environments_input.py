"""Settings that do not fit studies with environments are refused when planning: a line names study,
method or factor."""

import re

import numpy as np
import pytest
import yaml

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.settings.resolve import load_config
from diagvib.studies.recipes import quotas_of
from diagvib.studies.scarcity import check_counts
from synthetic_studies import own_study

HUE = "bindings=[shape-hue]"
MINE = """
title: Mine
studies:
  mine:
    title: Mine
    meaning: two environments, of which the second is small, and one class in it smaller
    metrics: average
    roles: {target: 2, cue: 2}
    rows:
      - {splits: [train, val, test], group: id, environment: a, weight: 30, cells: [[0, 0], [1, 1]]}
      - {splits: [train, val, test], group: id, environment: b, weight: 9, cells: [[0, 0]]}
      - {splits: [train, val, test], group: id, environment: b, weight: 1, cells: %s}
      - {splits: [test], group: ood, environment: c, cells: {cue: other}}
"""
RARE = """
title: Rare
studies:
  rare:
    title: Rare
    meaning: a group of the test is rare
    metrics: accuracy
    roles: {target: 3, cue: 3}
    rows:
      - {splits: [train, val, test], group: common, weight: 0.972, cells: {cue: same}}
      - {splits: [test], group: few, weight: 0.028, cells: {cue: other}}
"""


@pytest.fixture
def mine(tmp_path):
    def write(cells: str) -> str:
        (tmp_path / "mine.yaml").write_text(MINE % cells)
        return f"studies_from=[{tmp_path / 'mine.yaml'}]"

    return write


def test_a_method_that_a_study_cannot_serve_is_named_at_planning():
    message = "baselines: coral: study zgo: method: coral needs environments, but the study has one"
    with refused(message):
        load_config(None, ["studies=[zgo]", HUE, "baselines=[coral]"])


def test_an_environment_without_a_class_is_named_at_planning(mine, tmp_path):
    overrides = ["studies=[mine]", HUE, "baselines=[erm_env]"]
    with refused(
        "mine.yaml: studies.mine.rows: the environment b has no training images of target class 1",
    ):
        load_config(None, [*overrides, mine("[[0, 1]]")])
    scarce = mine("[[1, 1]]")
    with refused(
        "counts.train: with 39 images of study mine, the environment b may have "
        "none of target class 1; raise the number to 40 or more",
    ):
        load_config(None, [*overrides, scarce, "counts.train=39"])
    assert load_config(None, [*overrides, scarce, "counts.train=40"])
    row = "[train, val%s], group: id, environment: b, weight: 1, cells: [%s[1, 1]]"
    text = (tmp_path / "mine.yaml").read_text()
    assert row % (", test", "") in text
    (tmp_path / "mine.yaml").write_text(text.replace(row % (", test", ""), row % ("", "[1, 0], ")))
    with refused("raise the number to 80 or more"):
        load_config(None, [*overrides, scarce, "counts.train=79"])


def test_a_class_that_would_not_be_trained_is_named_at_planning(tmp_path):
    rare = RARE.replace("weight: 0.972, cells: {cue: same}", "weight: 0.01, cells: [[2, 2]]")
    remainder = (
        "      - {splits: [train, val, test], group: common, weight: 2, cells: [[0, 0], [1, 1]]}\n"
    )
    (tmp_path / "rare.yaml").write_text(rare + remainder)
    overrides = [
        f"studies_from=[{tmp_path / 'rare.yaml'}]",
        "studies=[rare]",
        HUE,
        "counts.test=9000",
    ]
    with refused(
        "of study rare, it may have none of target class 2; raise the number to 201",
    ):
        load_config(None, [*overrides, "counts.train=200"])
    assert load_config(None, [*overrides, "counts.train=201"])


def test_a_test_group_whose_cells_would_be_empty_is_named_at_planning(tmp_path):
    (tmp_path / "rare.yaml").write_text(RARE)
    overrides = [f"studies_from=[{tmp_path / 'rare.yaml'}]", "studies=[rare]", HUE]
    with pytest.raises(DiagvibError) as error:
        load_config(None, [*overrides, "counts.test=120"])
    message = re.search(
        r"counts.test: with 120 images of study rare, cell \[0, 1\] of the group few may have none; "
        r"raise the number to (\d+) or more$",
        str(error.value),
    )
    minimum = int(message[1])
    with refused(f"with {minimum - 1} images"):
        load_config(None, [*overrides, f"counts.test={minimum - 1}"])
    assert load_config(None, [*overrides, f"counts.test={minimum}"])
    weights = np.array([0.972 / 3] * 3 + [0.028 / 6] * 6)
    for count, fewest in ((120, 0), (minimum, 1)):  # however ties are broken
        quotas = [quotas_of(count, weights, np.random.default_rng(seed)) for seed in range(20)]
        assert np.min(quotas) == fewest


def test_more_images_than_the_number_named_are_enough_too(tmp_path):
    """One more image may leave another cell without any: 68 are enough for these, 69 are not."""
    weights = {(0, 0): 0.93, (0, 1): 0.13, (0, 2): 3, (1, 0): 1.87, (1, 1): 5, (1, 2): 5}
    tested = [
        {"splits": ["test"], "group": "all", "weight": weight, "cells": [[*cell]]}
        for cell, weight in weights.items()
    ]
    trained = {"splits": ["train", "val"], "group": "all", "cells": [[0, 0], [1, 1]]}
    study = {"title": "t", "meaning": "m", "metrics": "accuracy", "roles": {"target": 2, "cue": 3}}
    study |= {"rows": [trained, *tested]}
    path = tmp_path / "odd.yaml"
    path.write_text(yaml.safe_dump({"title": "t", "studies": {"odd": study}}, sort_keys=False))
    overrides = [f"studies_from=[{path}]", "studies=[odd]", HUE]
    with pytest.raises(DiagvibError) as error:
        load_config(None, [*overrides, "counts.test=10"])
    minimum = int(re.search(r"raise the number to (\d+) or more$", str(error.value))[1])
    for number in range(minimum, minimum + 90):
        assert load_config(None, [*overrides, f"counts.test={number}"])
    with refused("may have none"):
        load_config(None, [*overrides, f"counts.test={minimum - 1}"])


def test_the_least_number_of_training_images_is_rounded_up():
    """Of 1 / 0.42 = 2.38 images."""
    row = {"splits": ["train", "val", "test"], "group": "all"}
    rows = [{**row, "weight": 0.58, "cells": [[0, 0]]}, {**row, "weight": 0.42, "cells": [[1, 1]]}]
    with refused("none of target class 1; raise the number to 3 or more"):
        check_counts(own_study(rows), {"train": 2, "test": 100})
