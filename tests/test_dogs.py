"""The scene of dogs: the published numbers of photos, none used twice, whatever a user's folder
contains."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, read_table, write_table
from diagvib.papers.spawrious.published import read_spawrious_tables
from diagvib.results.published import beside_papers
from diagvib.scenes import load_scene
from diagvib.scenes.photos.listing import GENERATED, write_listing
from diagvib.scenes.photos.scene import CATALOGUE, PhotoCatalogue
from diagvib.settings.resolve import load_config
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.known_studies import SHIPPED
from diagvib.studies.recipes import Draw, draw_recipes
from diagvib.studies.scarcity import check_counts, whole_shares
from diagvib.studies.study import load_study
from synthetic_studies import changed_study, own_study
from test_average import DOGS as BREEDS
from test_average import accuracies_of

DOGS = load_scene("dogs")
PLACES = ("desert", "jungle", "dirt", "mountain", "snow", "beach")
_SHORT = {"De": "desert", "J": "jungle", "Di": "dirt", "M": "mountain", "S": "snow", "B": "beach"}
# For bulldog, dachshund, labrador, corgi in the authors' code: own backgrounds, the shared one,
# those of the test.
O2O = {
    "o2o-easy": ("De J Di S", "B", "Di S De J"),
    "o2o-medium": ("M B Di J", "De", "J Di B S"),
    "o2o-hard": ("J M S De", "B", "M S De J"),
}
# Backgrounds in the two environments; those of the test of bulldog and dachshund, and of labrador
# and corgi.
M2M = {
    "m2m-hard": ("Di/J J/Di S/B B/S", "S B", "Di J"),
    "m2m-easy": ("De/M M/De Di/J J/Di", "Di J", "M De"),
    "m2m-medium": ("B/S S/B M/De De/M", "De M", "B S"),
}
ORDER = ("bulldog", "dachshund", "labrador", "corgi")
CONFIG = load_config(definition_path("spawrious.yaml"))
SAMPLE = dataset_sample(0, DOGS)


def published(study: str) -> dict[tuple[str, str, str], int]:
    """The published images of each environment, class and background."""
    results = {}
    if study in O2O:
        subject, shared, tested = O2O[study]
        for dog, mine, test in zip(ORDER, subject.split(), tested.split(), strict=True):
            for environment, share in (("env-1", 0.97), ("env-2", 0.87)):
                maximum = int(share * 3168)
                results[environment, dog, _SHORT[mine]] = maximum
                results[environment, dog, _SHORT[shared]] = 3168 - maximum
            results["test", dog, _SHORT[test]] = 6336
        return results
    subject, left, right = M2M[study]
    for dog, places in zip(ORDER, subject.split(), strict=True):
        for environment, place in zip(("env-1", "env-2"), places.split("/"), strict=True):
            results[environment, dog, _SHORT[place]] = 3168
        for place in (left if dog in ("bulldog", "dachshund") else right).split():
            results["test", dog, _SHORT[place]] = 3168
    return results


def photos(item: int) -> PhotoCatalogue:
    """This many of every breed, background and copy."""
    text = [(breed, background, copy) for copy, background, breed in product("01", PLACES, BREEDS)]
    table = pd.DataFrame(np.repeat(text, item, axis=0), columns=["breed", "background", "lot"])
    return PhotoCatalogue("official", True, "0" * 64, table.assign(split="", unit=""))


def drawn(study: str, catalogue: PhotoCatalogue, counts: dict[str, int]) -> pd.DataFrame:
    """The recipes of a study, with what each photo shows; `part`: the split, or the group of the
    test."""
    definition = load_study(study)
    binding = bind(definition, "breed-background", DOGS.factors)
    frame = draw_recipes(definition, binding, [SAMPLE], counts, DOGS, catalogue).to_pandas()
    display = catalogue.photos.loc[frame["photo"], ["breed", "background", "lot"]]
    return frame.assign(
        **{f"photo_{name}": values.to_numpy() for name, values in display.items()},
        part=frame["group"].where(frame["split"] == "test", frame["split"]),
    )


@pytest.mark.parametrize("study", [*O2O, *M2M])
def test_a_study_has_the_published_photos_and_none_twice(study):
    frame = drawn(f"dogs-{study}", photos(3168), CONFIG.counts)
    assert frame["part"].value_counts().to_dict() == CONFIG.counts and frame["photo"].is_unique
    counted = frame.groupby(["environment", "breed", "background"]).size().to_dict()
    assert counted == published(study)
    for factor in DOGS.factors:
        assert (frame[factor] == frame[f"photo_{factor}"]).all()
    # Each part has the same shares as the total, as far as images can be divided.
    shares = frame.groupby(["part", "environment", "breed", "background"]).size()
    for (part, *cell), n in shares.drop("ood").items():
        assert abs(n - published(study)[tuple(cell)] * CONFIG.counts[part] / 25344) < 2
    copies = frame.groupby("environment")["photo_lot"].unique().map(sorted).to_dict()
    assert copies == (
        {"env-1": ["0"], "env-2": ["1"], "test": ["0", "1"]}
        if study in O2O
        else {"env-1": ["0"], "env-2": ["0"], "test": ["0"]}
    ), "the copies that the authors' code reads"


def test_too_few_photos_are_refused_with_counts_that_fit():
    counts = {"train": 640, "val": 80, "id": 80, "ood": 1600}
    with refused(
        r"dogs: 400 different photos of breed \w+, background \w+ are needed \(ood 400\), but "
        r"there are 200; counts: \{id: 39, ood: 788, train: 315, val: 39\} would",
    ):
        drawn("dogs-o2o-easy", photos(100), counts)
    fitting = drawn("dogs-o2o-easy", photos(100), {"train": 315, "val": 39, "id": 39, "ood": 788})
    assert fitting["photo"].is_unique and len(fitting) == 1181
    with refused("but there are 0$"):
        drawn("dogs-m2m-easy", photos(0), counts)


@pytest.mark.parametrize("missing", [0, 1, 3168, "1"])
def test_only_the_published_numbers_are_comparable(tmp_path, missing):
    frame = photos(3168).photos.assign(sha256="")
    frame = frame[frame["lot"] != "1"] if missing == "1" else frame.iloc[missing:]
    frame["path"] = [f"{number}.png" for number in range(len(frame))]
    write_listing(tmp_path, pa.Table.from_pandas(frame, preserve_index=False), tmp_path, len(frame))
    DOGS.make(tmp_path, tmp_path / "prepared", "official")
    assert DOGS.catalogue(tmp_path / "prepared").comparable == (not missing)
    if not missing:
        (tmp_path / GENERATED).touch()
        DOGS.make(tmp_path, tmp_path / "prepared", "official")
        assert not DOGS.catalogue(tmp_path / "prepared").comparable


def test_a_catalogue_that_is_not_the_described_one_is_refused(tmp_path):
    DOGS.make(tmp_path, tmp_path, "embedded")
    table = read_table(tmp_path / CATALOGUE)
    write_table(tmp_path / CATALOGUE, table.take(list(range(len(table)))[::-1]), {})
    with refused("not those that sources.json describes"):
        DOGS.catalogue(tmp_path)


# Configurations.


def test_the_configuration_has_the_papers_numbers_beside_every_method():
    counts = CONFIG.counts
    assert counts["train"] + counts["val"] + counts["id"] == counts["ood"] == 25344
    settings = {entry.name: entry.settings for entry in CONFIG.baselines}
    frame = pd.DataFrame(
        [
            {"baseline": baseline, "study": study, "status": "ok", "comparable": True}
            for baseline, study, _ in CONFIG.train_jobs
        ]
    )
    comparison = beside_papers(
        accuracies_of([*CONFIG.studies, ""], settings), frame, SHIPPED, settings
    )
    comparison = comparison[comparison["study"] != ""].groupby("baseline")["paper"].count()
    paper = (
        read_spawrious_tables()
        .query("table in (3, 4)")
        .groupby(["table", "method"])["study"]
        .count()
    )
    assert sorted(comparison[comparison > 0]) == sorted(paper), "every row of Tables 3 and 4"
    assert list(comparison[comparison == 0].index) == ["dogs_causirl_mmd"], (
        "the paper has one CausIRL"
    )


def test_the_demo_asks_for_photos_that_there_are():
    config = load_config(definition_path("spawrious_demo.yaml"))
    for study in config.studies:
        assert drawn(study, photos(100), config.counts)["photo"].is_unique


@pytest.mark.parametrize(
    "counts",
    [
        {"train": 529, "val": 32, "id": 45, "ood": 100},
        {"train": 1796, "val": 162, "id": 49, "ood": 4},
    ],
)
def test_every_split_has_each_cells_share_rounded_down(counts):
    """Splits with the same cells are allocated together, so that no photo is left over."""
    study = load_study("dogs-o2o-easy")
    binding = bind(study, "breed-background", DOGS.factors)
    draw = Draw(study, binding, SAMPLE, counts, DOGS, None)
    dealt = draw.deal(np.random.default_rng(0))
    for split in ("train", "val", "test"):
        for group, count, share in draw.blocks(split):
            result = dealt[split, group]
            floors, _ = whole_shares(count, share["weight"].to_numpy())
            assert (result >= floors).all() and result.sum() == count
    subset = {"train": 100, "val": 10, "id": 10, "ood": 10}
    with refused("counts.id: .* may have none; raise the number to 62"):
        check_counts(study, subset)


def test_shares_that_are_whole_stay_whole():
    """100 x 0.29 is 28.999999999999996."""
    floors, rests = whole_shares(100, np.array([0.29, 0.71]))
    assert floors.tolist() == [29, 71] and not rests.any()


def test_a_share_of_one_image_is_dealt():
    """1/26 of 26 images, though its proportion is rounded where proportions are compared."""
    splits = {"splits": ["train", "val", "test"]}
    rows = [
        {**splits, "group": "common", "weight": 12, "cells": {"cue": "same"}},
        {**splits, "group": "rare", "weight": 1, "cells": {"cue": "other"}},
    ]
    study, counts = own_study(rows, scene="dogs"), {"train": 61, "val": 27, "test": 26}
    binding = bind(study, "breed-background", DOGS.factors)
    check_counts(study, counts)
    dealt = Draw(study, binding, SAMPLE, counts, DOGS, None).deal(np.random.default_rng(0))
    assert sorted(dealt["test", None]) == [1, 1, 12, 12]


def test_weights_need_not_add_up_to_one():
    rows = [{"splits": ["train", "val", "test"], "group": "id", "cells": {"cue": "same"}}]
    rows += [
        {"splits": ["test"], "group": "ood", "weight": w, "cells": [c]}
        for w, c in ((10, [0, 1]), (1, [1, 0]))
    ]
    study = changed_study("zgo", rows=rows)
    with refused("counts.ood: .* may have none; raise the number to ([0-9]+)") as no:
        check_counts(study, {"train": 9, "id": 9, "ood": 2})
    minimum = int(re.search("to ([0-9]+) or", str(no.value))[1])
    check_counts(study, {"train": 9, "id": 9, "ood": minimum})
    with pytest.raises(DiagvibError):
        check_counts(study, {"train": 9, "id": 9, "ood": minimum - 1})


def test_a_split_drawn_alone_is_the_same():
    """Its photos are those that it has in the whole dataset, not others' photos."""
    catalogue = photos(200)
    study, counts = load_study("dogs-o2o-easy"), {"train": 400, "val": 100, "id": 100, "ood": 100}
    binding = bind(study, "breed-background", DOGS.factors)
    inputs = study, binding, [SAMPLE], counts, DOGS, catalogue
    all_recipes = draw_recipes(*inputs).to_pandas()
    for split in ("val", "test"):
        single = draw_recipes(*inputs, splits=[split]).to_pandas()
        assert single.equals(all_recipes[all_recipes["split"] == split].reset_index(drop=True))
