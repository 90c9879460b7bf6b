"""The nine studies' cells as the paper defines them, and the dataset samples."""

import pytest
import yaml

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.schemas import validate
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.studies.study import dataset_sample, load_study, parse_study, study_cells, study_definitions

DIAGONAL = {(0, 0), (1, 1), (2, 2)}
EVERY = {(t, c) for t in range(3) for c in range(3)}
ADDED = [1, 2, 1]
# study -> (training cells with their probability, tested `ood` cells), for added_cue [1, 2, 1]
PAPER = {
    "zso": (dict.fromkeys(EVERY, 1 / 9), set()),
    "zgo": (dict.fromkeys(DIAGONAL, 1 / 3), EVERY - DIAGONAL),
    "cgo-1": (dict.fromkeys(DIAGONAL | {(0, 1)}, 1 / 4), EVERY - DIAGONAL - {(0, 1)}),
    "cgo-2": (dict.fromkeys(DIAGONAL | {(0, 1), (1, 2)}, 1 / 5), EVERY - DIAGONAL - {(0, 1), (1, 2)}),
    "cgo-3": (dict.fromkeys(DIAGONAL | {(0, 1), (1, 2), (2, 1)}, 1 / 6), EVERY - DIAGONAL - {(0, 1), (1, 2), (2, 1)}),
    "chgo": ({(0, 0): 1 / 3, (1, 1): 1 / 6, (1, 2): 1 / 6, (2, 1): 1 / 6, (2, 2): 1 / 6}, {(0, 1), (0, 2)}),
    **{f"fgo-{f}": ({cell: (1 - f / 100) / 3 if cell in DIAGONAL else f / 600 for cell in EVERY}, EVERY - DIAGONAL)
       for f in (5, 10, 20)},
}


def as_dict(cells) -> dict[tuple[int, int], float]:
    return {(row.target_class, row.cue_class): row.weight for row in cells.itertuples()}


def test_there_are_nine_studies():
    assert set(study_definitions()) == set(PAPER)


@pytest.mark.parametrize("study", PAPER)
def test_cells_are_the_papers(study):
    trained, held_out = PAPER[study]
    for split in ("train", "val"):
        assert as_dict(study_cells(study, split, ADDED)) == pytest.approx(trained)
    ood = study_cells(study, "ood", ADDED)
    assert set(as_dict(ood)) == held_out
    assert as_dict(ood) == pytest.approx(dict.fromkeys(held_out, 1 / max(len(held_out), 1)))


@pytest.mark.parametrize("study", PAPER)
def test_id_group_is_tested_as_it_was_trained(study):
    trained = study_cells(study, "train", ADDED)
    trained = trained[trained["group"] == "id"]
    expected = {cell: weight / trained["weight"].sum() for cell, weight in as_dict(trained).items()}
    assert as_dict(study_cells(study, "id", ADDED)) == pytest.approx(expected)


@pytest.mark.parametrize("number", range(5))
def test_published_samples(number, mirror):
    entry = yaml.safe_load((mirror / "reference" / "dataset_samples.yaml").read_text())[number]
    sample = dataset_sample(number)
    assert sample.added_cue == tuple(entry["cgo_added_cue_class"])
    assert sample.classes == {factor: tuple(str(c) for c in entry[factor]) for factor in FACTORS}


def test_further_samples_are_drawn_from_their_number():
    assert dataset_sample(17) == dataset_sample(17)
    assert len({str(dataset_sample(n).classes) for n in range(20)}) == 20
    for number in range(5, 40):
        sample = dataset_sample(number)
        for factor in FACTORS:
            assert len(set(sample.classes[factor])) == 3
            assert set(sample.classes[factor]) <= set(classes(factor))
        assert all(added != target for target, added in enumerate(sample.added_cue))


def test_cgo_needs_the_added_cue():
    with pytest.raises(DiagvibError, match="give added_cue"):
        study_cells("cgo-1", "train")


def test_unknown_study_suggests_the_nearest():
    with pytest.raises(DiagvibError, match="unknown study 'cgo2'; did you mean cgo-2"):
        load_study("cgo2")


def study_from(text: str):
    definitions = validate(yaml.safe_load(text), "studies", "studies.yaml")
    name, definition = next(iter(definitions.items()))
    return parse_study(name, definition)


def test_cells_must_fit_the_roles():
    with pytest.raises(DiagvibError, match=r"study x: rows.0: cell \[0\] has 1 class indices; 2 roles"):
        study_from("x: {title: x, meaning: x, roles: [target, cue], "
                   "rows: [{splits: [train], group: id, cells: [[0]]}]}")


def test_unknown_keys_in_a_study_are_errors():
    with pytest.raises(DiagvibError, match="unknown key 'x.rows.0.wieght'; did you mean x.rows.0.weight"):
        study_from("x: {title: x, meaning: x, roles: [target, cue], "
                   "rows: [{splits: [train], group: id, wieght: 1, cells: [[0, 0]]}]}")
