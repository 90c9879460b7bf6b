"""Which class a cue points to, and how many predictions follow it."""

import torch

from diagvib.scenes import load_scene
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.preference import cue_label, cue_label_names, image_counts, single_cue_label
from diagvib.studies.study import load_studies
from diagvib.training.running_metrics import cue_preferences
from synthetic_studies import own_study


def test_what_a_cue_mostly_accompanies_comes_before_its_index():
    often = {"splits": ["train", "val"], "group": "seen", "weight": 8.0}
    once = {"splits": ["train", "val", "test"], "group": "seen"}
    rows = [
        {**often, "cells": [[0, 1], [1, 0]]},
        {**once, "cells": [[0, 0], [1, 1], [0, 2], [1, 2], [1, 3]]},
    ]
    five = {"roles": {"target": 2, "cue": 5}}
    study = own_study(rows, **five)
    assert single_cue_label(study, "cue") == (1, 0, None, 1, None), (
        "class 2 is with both equally often, class 4 with none"
    )
    assert list(map(set, cue_label(study, "cue"))) == [{1}, {0}, set(), {1}, set()]
    rows[0]["cells"] = [[0, 0], [1, 2]]
    rows[1]["cells"] = [[0, 1], [1, 1], [1, 0], [0, 2], [1, 3]]
    tied = own_study(rows, **five)
    assert single_cue_label(tied, "cue")[1] is None, (
        "an index says nothing if there are more cue classes"
    )
    assert cue_label(load_studies()["m2m-easy"], "cue")[0] == {0, 2}


def test_names_are_those_of_the_dataset_sample():
    scene, study = load_scene("digits"), load_studies()["zgo"]
    sample = dataset_sample(0, scene)
    result = cue_label_names(study, {"target": "shape", "cue": "hue"}, sample, scene.factors, {})
    assert result == {"hue": dict(zip(sample.classes["hue"], sample.classes["shape"], strict=True))}


def test_in_a_published_split_the_trained_photos_count():
    """Mostly gulls everywhere: no ground stands for wrens, although its index does."""
    rows = [{"splits": ["train", "val", "test"], "group": "all", "cells": {"cue": "same"}}]
    rows += [{**rows[0], "cells": {"cue": "other"}}]
    study = own_study(rows, as_published=True)
    assert cue_label(study, "cue") == (frozenset(), frozenset())
    classes = [("gull", "wren"), ("land", "sea")]
    for counts, labels in (
        ((3498, 184, 56, 1057), (0, 1)),
        ((9, 90, 80, 8), (1, 0)),
        ((90, 40, 8, 20), (0, 0)),
        ((7, 0, 7, 0), (None, None)),
    ):
        names = ("gull-land", "gull-sea", "wren-land", "wren-sea")
        images = image_counts(study, classes, dict(zip(names, counts, strict=True)))
        assert single_cue_label(study, "cue", images=images) == labels
        several = [frozenset([label] * (label is not None)) for label in labels]
        assert list(cue_label(study, "cue", images=images)) == [*several]
    assert image_counts(own_study(rows), classes, {"gull-land": 5}) is None, (
        "its rows' weights count"
    )


def test_shares_of_predictions_that_follow_a_cue():
    prediction, cue_labels = (
        torch.tensor([0, 1, 2, 2]),
        torch.tensor([[0, 1], [1, 1], [0, -1], [2, -1]]),
    )
    assert cue_preferences(prediction, cue_labels) == {
        "val_follows_cue_1": 0.75,
        "val_follows_cue_2": 0.25,
    }
    assert cue_preferences(prediction, None) == {}


def test_a_cue_class_counts_in_all_environments_together():
    """With class 0 in 4 of 10 images of one environment, with class 1 in 3 of 10 of each."""
    calls = {"splits": ["train", "val", "test"], "group": "all"}
    rows = [
        {**calls, "environment": "a", "weight": 4.0, "cells": [[0, 0]]},
        {**calls, "environment": "a", "weight": 3.0, "cells": [[1, 0]]},
        {**calls, "environment": "b", "weight": 3.0, "cells": [[1, 0]]},
        {**calls, "environment": "b", "weight": 4.0, "cells": [[0, 1]]},
    ]
    assert single_cue_label(own_study(rows), "cue") == (1, 0)
