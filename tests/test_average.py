"""Studies with two environments, and the set of metrics `average`: counts and answers that are known before."""

import numpy as np
import pandas as pd
import pytest

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import load_scene
from diagvib.scenes.digits.prepare import Catalogue
from diagvib.settings.config import load_config
from diagvib.studies.binding import all_bindings, bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.preference import spoken_for, spoken_for_among
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.study import load_studies, load_study, parse_study, read_study_file, study_aliases

DIGITS = load_scene("digits")
DOGS = ("bulldog", "corgi", "dachshund", "labrador")
PLACES = ("desert", "jungle", "dirt", "mountain", "snow", "beach")
_SHORT = {"De": "desert", "J": "jungle", "Di": "dirt", "M": "mountain", "S": "snow", "B": "beach"}
# As the authors' code has them, bulldog, dachshund, labrador, corgi: own backgrounds, the shared one, those of the test.
O2O = {"o2o-easy": ("De J Di S", "B", "Di S De J"), "o2o-medium": ("M B Di J", "De", "J Di B S"),
       "o2o-hard": ("J M S De", "B", "M S De J")}
# Backgrounds in the two environments; those of the test of bulldog and dachshund, and of labrador and corgi.
M2M = {"m2m-hard": ("Di/J J/Di S/B B/S", "S B", "Di J"), "m2m-easy": ("De/M M/De Di/J J/Di", "Di J", "M De"),
       "m2m-medium": ("B/S S/B M/De De/M", "De M", "B S")}
ORDER = ("bulldog", "dachshund", "labrador", "corgi")
COUNTS = {"train": 25344, "val": 6336, "id": 25344, "ood": 25344}


def published(study: str) -> dict[tuple[str, str, str], int]:
    """The published images of each environment, class and background."""
    found = {}
    if study in O2O:
        own, shared, tested = O2O[study]
        for dog, mine, test in zip(ORDER, own.split(), tested.split(), strict=True):
            for environment, share in (("env-1", 0.97), ("env-2", 0.87)):
                most = int(share * 3168)
                found[environment, dog, _SHORT[mine]] = most
                found[environment, dog, _SHORT[shared]] = 3168 - most
            found["test", dog, _SHORT[test]] = 6336
        return found
    own, first, second = M2M[study]
    for dog, places in zip(ORDER, own.split(), strict=True):
        for environment, place in zip(("env-1", "env-2"), places.split("/"), strict=True):
            found[environment, dog, _SHORT[place]] = 3168
        for place in (first if dog in ("bulldog", "dachshund") else second).split():
            found["test", dog, _SHORT[place]] = 3168
    return found


def sample_of(number: int):
    return dataset_sample(number, DIGITS.factors, DIGITS.published_samples)


@pytest.mark.parametrize("study", [*O2O, *M2M])
def test_drawn_images_are_as_many_as_the_published_ones(study):
    digits = Catalogue(np.tile(np.arange(10), 70), np.repeat(["train", "val", "test"], [400, 100, 200]), "synthetic",
                       False, "0")
    definition, sample = load_study(study), sample_of(3)
    drawn = draw_recipes(definition, bind(definition, "shape-hue", DIGITS.factors), [sample], COUNTS, DIGITS, digits)
    frame = drawn.to_pandas()
    dogs = dict(zip(sample.chosen("shape", 4, DIGITS.factors["shape"]), DOGS, strict=True))
    places = dict(zip(sample.chosen("hue", 6, DIGITS.factors["hue"]), PLACES, strict=True))
    frame = frame.assign(dog=frame["shape"].map(dogs), place=frame["hue"].map(places))
    counted = {name: own.groupby(["environment", "dog", "place"]).size().to_dict()
               for name, own in frame.groupby(frame["group"].where(frame["split"] == "test", frame["split"]))}
    trained = {cell: n for cell, n in published(study).items() if cell[0] != "test"}
    assert sum(trained.values()) == 25344 and len(trained) == (16 if study in O2O else 8)
    assert counted["train"] == counted["id"] == trained, "what is tested in distribution is as in training"
    assert counted["ood"] == {cell: n for cell, n in published(study).items() if cell[0] == "test"}
    assert {place for _, _, place in trained} <= set(PLACES)


def test_counts_that_are_published_are_those_of_the_weights():
    assert [published("o2o-easy")[environment, "corgi", place] for environment in ("env-1", "env-2")
            for place in ("snow", "beach")] == [3072, 96, 2756, 412]


@pytest.mark.parametrize("study", [*O2O, *M2M])
def test_digits_with_classes_enough_can_play_the_roles(study):
    definition = load_study(study)
    assert (definition.roles, definition.environments) == ({"target": 4, "cue": 6}, ("env-1", "env-2"))
    named = [binding.name for binding in all_bindings(definition, DIGITS.factors)]
    enough = {least: {f for f, classes in DIGITS.factors.items() if len(classes) >= least} for least in (4, 6)}
    assert enough[6] == {"position", "hue", "shape"} and set(DIGITS.factors) == enough[4]
    assert set(named) == {f"{target}-{cue}" for target in enough[4] for cue in enough[6] - {target}}
    with pytest.raises(DiagvibError, match=f"study {study}: cue has 6 classes, but scale only 5; bind another factor"):
        bind(definition, "shape-scale", DIGITS.factors)


@pytest.mark.parametrize("factor", DIGITS.factors)
def test_a_sample_chooses_four_and_six_classes_for_all_studies_alike(factor):
    known = DIGITS.factors[factor]
    for count in (4, 6):
        if count > len(known):
            with pytest.raises(DiagvibError, match=f"{factor} has {len(known)} classes, a role needs {count}"):
                sample_of(0).chosen(factor, count, known)
        else:
            chosen = [sample_of(number).chosen(factor, count, known) for number in range(12)]
            assert all(len(set(names)) == count and set(names) <= set(known) for names in chosen)
            assert chosen == [sample_of(number).chosen(factor, count, known) for number in range(12)]
            assert len(set(chosen)) > 6


# Methods of naming: Table 2 lists the M2M studies of the code under headings of its own.
ALIASES = {"paper_table2_m2m_easy": "m2m-hard", "paper_table2_m2m_medium": "m2m-easy",
           "paper_table2_m2m_hard": "m2m-medium"}


def test_the_headings_of_table_2_are_aliases(tmp_path, monkeypatch):
    assert study_aliases() == ALIASES
    for alias, study in ALIASES.items():
        assert load_study(alias) is load_study(study)
    given = ["studies=[paper_table2_m2m_easy, o2o-easy]", "bindings=[shape-hue]", "tuning.study=zso"]
    entry = "baselines=[{name: small_cnn, studies: [paper_table2_m2m_easy]}]"
    config = load_config(None, [*given, entry])
    assert config["studies"] == ["m2m-hard", "o2o-easy"] and config["baselines"][0]["studies"] == ["m2m-hard"]
    for overrides, says in (
            (["studies=[paper_table2_m2m_easi]"], "studies: unknown study 'paper_table2_m2m_easi'; did you mean paper_"),
            (["studies=[m2m-hard, paper_table2_m2m_easy]", *given[1:]],
             "studies: paper_table2_m2m_easy is another name of m2m-hard, so that this study is listed twice"),
            ([*given, "baselines=[{name: small_cnn, studies: [m2m-hard, paper_table2_m2m_easy]}]"],
             "small_cnn: studies: paper_table2_m2m_easy is another name of m2m-hard"),
            ([*given, "baselines=[{name: small_cnn, studies: [paper_table2_m2m_hard]}]"],
             "small_cnn: studies: m2m-medium is not among")):
        with pytest.raises(DiagvibError, match=says):
            load_config(None, overrides)


MINE = """
title: Mine
aliases: {%s}
studies:
  mine:
    title: Mine
    meaning: m
    metrics: average
    roles: {target: 2, cue: 2}
    rows:
      - {splits: [train, val, test], group: id, environment: a, cells: {cue: same}}
      - {splits: [train, val, test], group: id, environment: b, cells: %s}
      - {splits: [test], group: ood, environment: c, cells: %s}
"""
SAME, OTHER = "[[0, 0], [1, 1]]", "[[0, 1], [1, 0]]"


@pytest.mark.parametrize(("aliases", "says"), [
    ("other: mind", "aliases.other: mind is none of the file's studies, mine"),
    ("zgo: mine", "mine.yaml: aliases.zgo: there is another study of this name"),
    ("paper_table2_m2m_hard: mine", "aliases.paper_table2_m2m_hard: there is another study of this name"),
    ("../x: mine", "names are at most 64 letters")])
def test_an_alias_names_one_study_of_its_file(tmp_path, aliases, says):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE % (aliases, SAME, OTHER))
    with pytest.raises(DiagvibError, match=says):
        load_study("nowhere", [path])


def test_average_needs_one_cue_both_groups_and_every_class_in_each_environment(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE % ("other: mine", SAME, OTHER))
    study = load_studies([path])["mine"]
    assert read_study_file(path)[0].aliases == {"other": "mine"} and load_study("other", [path]) is study
    told = {**study.model_dump(exclude={"name"}), "roles": {"target": 2, "cue": 2}}
    rows = told["rows"]
    for changed, says in (
            ({"bound": ["target"]}, "roles: the metrics `average` need 1 bound role beside the target, not 0"),
            ({"rows": rows[:2]}, "no row of the split test has the group ood, which the metrics `average` need"),
            ({"rows": [rows[0], {**rows[1], "cells": [[1, 1]]}, rows[2]]},
             "rows: the environment b has no training images of target class 0, which others have")):
        with pytest.raises(DiagvibError, match=says):
            parse_study("mine", {**told, **changed})


def test_a_cue_may_speak_for_several_classes():
    names = {study: [frozenset(DOGS[i] for i in one) for one in spoken_for_among(load_study(study), "cue")]
             for study in ("o2o-easy", "o2o-medium", "m2m-easy")}
    bulldog, corgi, dachshund, labrador = (frozenset([dog]) for dog in DOGS)
    nothing = frozenset()
    assert names["o2o-easy"] == [bulldog, dachshund, labrador, nothing, corgi, nothing]
    assert names["o2o-medium"] == [nothing, corgi, labrador, bulldog, nothing, dachshund]
    both, others = bulldog | dachshund, corgi | labrador
    assert names["m2m-easy"] == [both, others, others, both, nothing, nothing]
    assert spoken_for(load_study("o2o-easy"), "cue") == (0, 2, 3, None, 1, None)
    assert spoken_for(load_study("m2m-easy"), "cue") == (None,) * 6
    for study in load_studies().values():
        for cue in study.cues if list(study.roles.values()) == [3] * len(study.roles) else ():
            assert all(one is None or one in among for one, among in zip(
                spoken_for(study, cue, (1, 2, 0)), spoken_for_among(study, cue, (1, 2, 0)), strict=True) if among)
