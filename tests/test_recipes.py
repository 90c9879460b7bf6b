"""Drawn frequencies match every study's cells; values lie within their class; the draw depends only
on names."""

import hashlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.stats import kstest

from conftest import refused
from diagvib.scenes import load_scene
from diagvib.scenes.digits.factors import REALIZATION_COLUMNS, REGIONS, SPREAD_COLUMNS, narrowed
from diagvib.scenes.digits.prepare import DigitCatalogue
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import DatasetSample
from diagvib.studies.dataset_sample import dataset_sample as numbered_sample
from diagvib.studies.recipes import (
    draw_recipes,
    read_recipes,
    select_recipes,
    write_recipes,
)
from diagvib.studies.study import load_study
from synthetic_sources import digit_catalogue
from synthetic_studies import changed_study

COUNTS = {"train": 9000, "val": 1800, "id": 1800, "ood": 1800}
# Random draws fail a test at this level once in a million; the draws are seeded, so it either
# always or never happens.
LEVEL = 1e-6


DIGITS = load_scene("digits")
# The digit number of every image that the first version's generator drew: hue with texture (ZSO:
# hue alone), dataset samples 0, 3 and 11, 60 train, 20 val, 20 id and 20 ood images.
FORMER = {
    "zso": "85dfcd24797a1fe437ecd43d320c076137a911b93ead89671f6917eb2364262f",
    "zgo": "259b3c5d5e665044c4355e4b2b3e1a6715b799d38168b8ea94f8e9eb884fe7c6",
    "cgo-1": "6d47947df2bcb7d799cb1261697c788f9c828e8e9d405558366a48e75a19b096",
    "cgo-2": "be461c82ed7e397fb17b8b8fe2aceba72b437c369dcb043012bcc0f80f0c523a",
    "cgo-3": "e37529f282b4f270747307b54773e96abf7c95f3332e8d922ddc326bc0c2ac2c",
    "chgo": "1d0f3ab4acaeff5c39a7b8d12b0eeaac77dc98aabf7adbe10e3870ba1a8da1c9",
    "fgo-5": "5d8913a6102bfb180baac0e153f6e3018a3c87d69bdb54d6f2b47d778dc3075a",
    "fgo-10": "da324fdb54ea1d2a85d027905e3b6f2997d5f5fc7e6f86e56d437d436e7c93c0",
    "fgo-20": "bb00440238ffb7350fd17918d0ac4c033b2356d0e16186b9084a812f1b399cbb",
}


@pytest.fixture(scope="module")
def pool() -> DigitCatalogue:
    return digit_catalogue()


def dataset_sample(number: int) -> DatasetSample:
    return numbered_sample(number, DIGITS)


def recipes_of(
    study: str, binding: str, pool: DigitCatalogue, numbers=(0,), counts=COUNTS
) -> pa.Table:
    definition = load_study(study)
    bound = bind(definition, binding, DIGITS.factors)
    samples = [dataset_sample(number) for number in numbers]
    return draw_recipes(definition, bound, samples, counts, DIGITS, pool)


def draw(study: str, binding: str, pool: DigitCatalogue, **selection) -> pd.DataFrame:
    return recipes_of(study, binding, pool, **selection).to_pandas()


@pytest.mark.parametrize("study", FORMER)
def test_recipes_are_those_of_the_first_version(study, pool):
    binding = "hue-texture" if load_study(study).cues else "hue"
    counts = {"train": 60, "val": 20, "id": 20, "ood": 20}
    text = draw(study, binding, pool, numbers=(0, 3, 11), counts=counts).to_csv(index=False)
    assert hashlib.sha256(text.encode()).hexdigest() == FORMER[study]


@pytest.fixture(scope="module")
def zso(pool) -> pd.DataFrame:
    """Recipes without a cue."""
    return draw("zso", "shape", pool)


@pytest.mark.parametrize("factor", ["position", "hue", "lightness", "scale"])
def test_realizations_are_uniform_in_their_class(factor, zso):
    for name, rows in zso.groupby(factor):
        regions = REGIONS[factor][name]
        for column, (low, high) in zip(REALIZATION_COLUMNS[factor], regions, strict=True):
            values = rows[column].to_numpy()
            values = np.where(values < low, values + 360, values) if factor == "hue" else values
            assert low <= values.min() and values.max() <= high
            assert kstest(values, "uniform", (low, high - low)).pvalue > LEVEL


def test_only_the_name_decides(pool):
    single = draw("zgo", "hue-shape", pool)
    among = draw("zgo", "hue-shape", pool, numbers=range(3)).query("sample == 0")
    pd.testing.assert_frame_equal(single, among)
    assert not single["digit"].equals(draw("zgo", "hue-scale", pool)["digit"])
    fewer = draw("zgo", "hue-shape", pool, counts=COUNTS | {"train": 90})
    test = [values[values["split"] == "test"].reset_index(drop=True) for values in (single, fewer)]
    pd.testing.assert_frame_equal(*test)


def narrow_draw(factor: str, spread: float, pool: DigitCatalogue, number: int = 1) -> pd.DataFrame:
    """ZGO's recipes with this factor as the cue, drawn under its name."""
    study = changed_study("zgo", "zgo", spread={"cue": spread})
    binding = bind(study, f"{'shape' if factor != 'shape' else 'hue'}-{factor}", DIGITS.factors)
    return draw_recipes(study, binding, [dataset_sample(number)], COUNTS, DIGITS, pool).to_pandas()


@pytest.mark.parametrize("factor", DIGITS.spreads)
def test_a_spread_is_the_share_that_is_left_of_every_difference(factor, pool):
    defaults = draw("zgo", f"shape-{factor}", pool, numbers=[1])
    narrow, columns = narrow_draw(factor, 0.25, pool), list(SPREAD_COLUMNS[factor])
    pd.testing.assert_frame_equal(narrow.drop(columns=columns), defaults.drop(columns=columns))
    part, total = (table[columns].to_numpy() for table in (narrow, defaults))
    if factor == "texture":  # both colours of an image, around its own lightness
        part, total = (values - values.mean(1, keepdims=True) for values in (part, total))
    else:
        part, total = part - part[0], total - total[0]
    if factor == "hue":  # magenta, red and yellow, so no two are 180 degrees apart
        part, total = ((degrees + 180) % 360 - 180 for degrees in (part, total))
    np.testing.assert_allclose(part, 0.25 * total, atol=1e-9)
    equal = narrow_draw(factor, 1, pool)
    np.testing.assert_allclose(equal[columns], defaults[columns], atol=1e-9)


@pytest.mark.parametrize(
    ("factor", "number", "centre"),
    [
        ("position", 0, [0.5, 13 / 42]),  # bottom-center, center-left, top-left
        ("hue", 1, [0]),  # magenta, yellow, red
        ("hue", 2, [300]),  # red, blue, magenta
        ("lightness", 0, [2.5 / 11, 6.5 / 11]),  # brighter, darker, dark
        ("scale", 1, [(1.2 + 1.4 + (1 / 1.05 + 1.05) / 2) / 3]),  # larger, large, normal
    ],
)
def test_classes_without_a_spread_are_alike(factor, number, centre, pool):
    result = narrow_draw(factor, 0, pool, number)[list(SPREAD_COLUMNS[factor])]
    np.testing.assert_allclose(result, np.tile(centre, (len(result), 1)), atol=1e-9)
    assert result.max().max() < 360


def test_the_centre_is_that_of_the_classes_that_a_study_uses(pool):
    """Here two, not the dataset sample's three."""
    study = changed_study("zgo", roles={"target": 2, "cue": 2}, spread={"cue": 0})
    binding = bind(study, "shape-scale", DIGITS.factors)
    selection = [numbered_sample(1, DIGITS)]
    result = draw_recipes(study, binding, selection, COUNTS, DIGITS, pool).to_pandas()
    used = [REGIONS["scale"][name][0] for name in result["scale"].unique()]
    assert len(used) == 2 and np.allclose(result["scale_factor"], np.mean(used))


def test_spreads_of_two_factors_count_whatever_their_order(pool):
    """Texture's contrast is that of lightness's colours: 0 stays 0."""
    result = []
    for roles in (("target", "cue"), ("cue", "target")):
        spread = {role: {"target": 0.0, "cue": 0.5}[role] for role in roles}
        study = changed_study("zgo", "zgo", spread=spread)
        binding = bind(study, "texture-lightness", DIGITS.factors)
        result.append(draw_recipes(study, binding, [dataset_sample(1)], COUNTS, DIGITS, pool))
    assert result[0].equals(result[1])
    np.testing.assert_allclose(result[0]["lightness_1"], result[0]["lightness_2"], atol=1e-9)


def test_shape_has_no_spread(pool):
    with refused("zgo: spread: the scene .* has none for shape, only for .*hue"):
        narrow_draw("shape", 0.5, pool)


def test_file_round_trip_and_damage(tmp_path, pool):
    recipes = recipes_of("zgo", "hue-shape", pool)
    path = tmp_path / "recipes.parquet"
    facts = {"study": "zgo", "binding": "hue-shape", "scene": "digits"}
    facts |= {"roles": {"target": "hue", "cue": "shape"}, "definition": {}}
    write_recipes(path, recipes, facts)
    rows, record = read_recipes(path)
    val = select_recipes(rows, 0, "val", path)
    assert val.equals(recipes.filter(pc.field("split") == "val"))
    assert record["study"] == "zgo" and record["code_version"]
    path.write_bytes(path.read_bytes()[:-100])
    with refused("recipes.parquet: damaged or not a Parquet file"):
        read_recipes(path)


@pytest.mark.parametrize(
    ("study", "binding", "counts"),
    [
        ("cgo-2", "shape-hue", COUNTS),
        ("o2o-medium", "hue-shape", COUNTS),
        ("whac-95", "position-scale-lightness", {"train": 4374, "val": 540, "test": 1000}),
    ],
)
def test_every_cell_gets_its_exact_share(pool, study, binding, counts):
    """Rounded up or down."""
    frame, definition = draw(study, binding, pool, counts=counts), load_study(study)
    keys, sample = ["group"] + ["environment"] * ("environment" in frame), dataset_sample(0)
    for role, factor in zip(definition.bound, binding.split("-"), strict=True):
        names = sample.chosen(factor, definition.roles[role], DIGITS.factors[factor])
        keys.append(f"{role}_class")
        frame[keys[-1]] = frame[factor].map(names.index)
    for part, count in counts.items():
        split = part if part in ("train", "val") else "test"
        cells, rows = definition.cells(split, sample.added_cue), frame[frame["split"] == split]
        if part in definition.groups:
            cells, rows = (values[values["group"] == part] for values in (cells, rows))
        elif split == "test":
            cells["weight"] *= cells["group"].map(definition.group_weights)
        expected, result = cells.groupby(keys)["weight"].sum(), rows.groupby(keys).size()
        assert result.sum() == count and set(result.index) == set(expected.index)
        assert ((result - count * expected / expected.sum()).abs() < 1).all()


def test_hues_move_to_the_middle_of_their_arc_wherever_it_lies():
    for choice, hues in (
        (["red", "yellow", "green"], [0, 60, 120]),
        (["magenta", "red"], [300, 0]),
    ):
        centre = hues[1] if len(hues) == 3 else 330
        moved = narrowed("hue", choice, np.array(hues, float)[:, None], 0.5)[:, 0]
        expected = [(centre + ((hue - centre + 180) % 360 - 180) / 2) % 360 for hue in hues]
        assert moved.tolist() == pytest.approx(expected)
