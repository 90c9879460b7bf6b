"""The studies' cells as the papers define them, studies of one's own, bindings and dataset
samples."""

import json
from pathlib import Path

import pytest
import yaml

from conftest import refused
from diagvib.papers.diagvib6.shortcut import METRIC_TITLES
from diagvib.scenes import load_scene
from diagvib.scenes.digits.factors import FACTORS
from diagvib.settings.resolve import load_config
from diagvib.studies import study_cells
from diagvib.studies.binding import all_bindings, bind, chosen_bindings, spreads
from diagvib.studies.dataset_sample import DatasetSample, dataset_sample
from diagvib.studies.known_studies import SHIPPED, KnownStudies, known_studies
from diagvib.studies.study import load_studies, load_study, parse_study
from synthetic_studies import changed_study, definition_of, own_study

DIGITS = load_scene("digits")
DIAGONAL = {(0, 0), (1, 1), (2, 2)}
ALL_CELLS = {(t, c) for t in range(3) for c in range(3)}
ADDED = [1, 2, 1]
# study -> (training cells with their probability, tested `ood` cells), for added_cue [1, 2, 1]
PAPER = {
    "zso": (dict.fromkeys(ALL_CELLS, 1 / 9), set()),
    "zgo": (dict.fromkeys(DIAGONAL, 1 / 3), ALL_CELLS - DIAGONAL),
    "cgo-1": (dict.fromkeys(DIAGONAL | {(0, 1)}, 1 / 4), ALL_CELLS - DIAGONAL - {(0, 1)}),
    "cgo-2": (
        dict.fromkeys(DIAGONAL | {(0, 1), (1, 2)}, 1 / 5),
        ALL_CELLS - DIAGONAL - {(0, 1), (1, 2)},
    ),
    "cgo-3": (
        dict.fromkeys(DIAGONAL | {(0, 1), (1, 2), (2, 1)}, 1 / 6),
        ALL_CELLS - DIAGONAL - {(0, 1), (1, 2), (2, 1)},
    ),
    "chgo": (
        {(0, 0): 1 / 3, (1, 1): 1 / 6, (1, 2): 1 / 6, (2, 1): 1 / 6, (2, 2): 1 / 6},
        {(0, 1), (0, 2)},
    ),
    **{
        f"fgo-{f}": (
            {cell: (1 - f / 100) / 3 if cell in DIAGONAL else f / 600 for cell in ALL_CELLS},
            ALL_CELLS - DIAGONAL,
        )
        for f in (0.5, 1, 2, 5, 10, 20, 50)
    },
}

# Study of two cues -> training share where both agree, cue 1 misleads, cue 2 misleads, both
# mislead. For an independent cue with three classes, one agrees.
TRAINED = {
    "whac-95": (0.9025, 0.0475, 0.0475, 0.0025),
    "whac-100": (1, 0, 0, 0),
    "cue-1-95": (0.95 / 3, 0.05 / 3, 0.95 * 2 / 3, 0.05 * 2 / 3),
    "cue-2-95": (0.95 / 3, 0.95 * 2 / 3, 0.05 / 3, 0.05 * 2 / 3),
}
QUADRANTS = {
    "common": (True, True),
    "no-cue-1": (False, True),
    "no-cue-2": (True, False),
    "neither": (False, False),
}


def sample_of(number: int) -> DatasetSample:
    return dataset_sample(number, DIGITS)


def as_dict(cells) -> dict[tuple[int, int], float]:
    return {(row.target_class, row.cue_class): row.weight for row in cells.itertuples()}


@pytest.mark.parametrize("study", PAPER)
def test_cells_are_the_papers_and_id_is_tested_as_it_was_trained(study):
    trained, held_out = PAPER[study]
    for split in ("train", "val"):
        assert as_dict(study_cells(study, split, ADDED)) == pytest.approx(trained)
    ood = as_dict(study_cells(study, "ood", ADDED))
    assert ood == pytest.approx(dict.fromkeys(held_out, 1 / max(len(held_out), 1)))
    rows = study_cells(study, "train", ADDED).query("group == 'id'")
    expected = {cell: weight / rows["weight"].sum() for cell, weight in as_dict(rows).items()}
    assert as_dict(study_cells(study, "id", ADDED)) == pytest.approx(expected)


def test_published_samples(mirror):
    published = yaml.safe_load((mirror / "reference" / "dataset_samples.yaml").read_text())
    for number, entry in enumerate(published[:5]):
        sample = sample_of(number)
        assert sample.added_cue == tuple(entry["cgo_added_cue_class"])
        assert sample.classes == {f: tuple(str(c) for c in entry[f]) for f in FACTORS}


def test_further_samples_are_drawn_from_their_number():
    assert sample_of(17) == sample_of(17)
    assert len({str(sample_of(n).classes) for n in range(20)}) == 20
    assert all(
        added != target for n in range(40) for target, added in enumerate(sample_of(n).added_cue)
    )
    hues = DIGITS.factors["hue"]
    choice = [sample_of(number).chosen("hue", 4, hues) for number in range(20)]
    assert choice == [sample_of(number).chosen("hue", 4, hues) for number in range(20)]
    assert all(len(set(names)) == 4 and set(names) <= set(hues) for names in choice)
    assert len(set(choice)) > 5
    lightness = [f"lightness {name}" for name in hues]
    alternatives = [sample_of(number).chosen("lightness", 4, lightness) for number in range(20)]
    assert [tuple(f"lightness {name}" for name in names) for names in choice] != alternatives


def test_what_cannot_be_meant_is_named():
    with refused("give added_cue"):
        study_cells("cgo-1", "train")
    with refused("unknown study 'cgo2'; did you mean cgo-2"):
        load_study("cgo2")


MINE = {"title": "Mine", "meaning": "m", "metrics": "accuracy"}
CALLS = {"splits": ["train", "val"], "group": "seen"}
TWO_CUES = {
    **MINE,
    "roles": {"target": 2, "first": 2, "second": 3},
    "rows": [
        {**CALLS, "weight": 0.9, "cells": {"first": "same", "second": "same"}},
        {**CALLS, "weight": 0.1, "cells": {"first": "other"}},
        {"splits": ["test"], "group": "one", "cells": {"first": "same", "second": "other"}},
        {"splits": ["test"], "group": "both", "cells": {"first": "other", "second": "other"}},
    ],
}
ENVIRONMENTS = {
    **MINE,
    "roles": {"target": 2, "cue": 2},
    "rows": [
        {**CALLS, "weight": 3.0, "environment": "a", "cells": {"cue": "same"}},
        {**CALLS, "weight": 1.0, "environment": "b", "cells": {"cue": "same"}},
        {**CALLS, "weight": 2.0, "environment": "b", "cells": {"cue": "other"}},
        {"splits": ["test"], "group": "crossed", "environment": "c", "cells": {"cue": "other"}},
    ],
}


def write_studies(path: Path, **studies: dict) -> None:
    path.write_text(yaml.safe_dump({"title": "Mine", "studies": studies}, sort_keys=False))


def test_two_cues_by_relation():
    study = parse_study("two", TWO_CUES)
    assert (study.cues, study.groups) == (("first", "second"), ("one", "both"))
    assert study.environments == ("main",)
    train = study.cells("train").set_index(["target_class", "first_class", "second_class"])
    agree = {(0, 0, 0): 0.45, (1, 1, 1): 0.45}
    crossed = {(t, 1 - t, c): 0.1 / 6 for t in (0, 1) for c in (0, 1, 2)}
    assert train["weight"].to_dict() == pytest.approx(agree | crossed)
    test = study.cells("test").groupby("group")["weight"]
    assert test.size().to_dict() == {"one": 4, "both": 4}
    assert test.sum().to_list() == pytest.approx([1, 1])


def test_an_environments_share_is_the_sum_of_its_rows_weights():
    study = parse_study("environments", ENVIRONMENTS)
    assert study.environments == ("a", "b") and study.names_environments
    train = study.cells("train")
    agrees = train["cue_class"] == train["target_class"]
    shares = train["weight"].groupby([train["environment"], agrees]).sum().to_dict()
    assert shares == pytest.approx({("a", True): 1 / 2, ("b", True): 1 / 6, ("b", False): 1 / 3})
    assert set(study.cells("test")["environment"]) == {"c"}


def test_a_row_that_relates_the_target_to_itself_is_refused():
    rows = [{**TWO_CUES["rows"][0], "cells": {"target": 0}}]
    with refused(r"cells.target: relations say.*list cells, such as \[\[0, 0, 0\]\]"):
        parse_study("two", {**TWO_CUES, "rows": rows})


def test_bindings_of_a_study():
    two = parse_study("two", TWO_CUES)
    assert bind(two, "shape-hue-texture", DIGITS.factors).cues == ("hue", "texture")
    # Its cues have different numbers of classes, so their order matters.
    assert len(all_bindings(two, DIGITS.factors)) == 6 * 5 * 4
    equals = parse_study("two", {**TWO_CUES, "roles": {"target": 2, "first": 3, "second": 3}})
    assert len(all_bindings(equals, DIGITS.factors)) == 60
    unlike = parse_study("two", {**TWO_CUES, "roles": equals.roles, "spread": {"first": 0.5}})
    assert len(all_bindings(unlike, DIGITS.factors)) == 120
    assert [b.name for b in all_bindings(load_study("zso"), DIGITS.factors)] == list(FACTORS)
    assert len(all_bindings(load_study("zgo"), DIGITS.factors)) == 30
    maximum = len(DIGITS.factors["lightness"])
    for classes, fits in ((maximum, True), (maximum + 1, False)):
        study = parse_study(
            "two", {**TWO_CUES, "roles": {"target": classes, "first": 2, "second": 2}}
        )
        assert (
            "lightness-hue-shape" in [b.name for b in all_bindings(study, DIGITS.factors)]
        ) == fits
        if not fits:
            with refused(
                f"target has {maximum + 1} classes, but lightness has only {maximum}",
            ):
                bind(study, "lightness-hue-shape", DIGITS.factors)
    names = ["shape-hue", "hue-shape", "shape-hue-texture", "colour-corner"]
    for study, case in ((load_study("zgo"), names[:2]), (load_study("zso"), ["hue", "shape"])):
        assert [b.name for b in chosen_bindings(study, names, DIGITS.factors)] == case


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shape", "'shape' names 1 factors for 3 roles"),
        ("shape-hue-hue", "names a factor twice"),
        ("shape-hu-scale", "unknown factor 'hu'; did you mean hue"),
    ],
)
def test_a_binding_that_does_not_fit_is_named(name, says):
    with refused(says):
        bind(parse_study("two", TWO_CUES), name, DIGITS.factors)


def test_studies_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_studies(tmp_path / "mine.yaml", two=TWO_CUES)
    assert list(load_studies(["mine.yaml"])) == [*load_studies(), "two"]
    assert load_study("two", ["mine.yaml"]) == parse_study("two", TWO_CUES)
    write_studies(tmp_path / "again.yaml", zgo=TWO_CUES)
    with refused("again.yaml: studies.zgo: another study has this name"):
        load_studies(["mine.yaml", "again.yaml"])


def test_a_group_whose_results_would_bear_another_things_name_is_refused():
    for group in ("val_environment", "plain", "adjusted", "train_like"):
        rows = [*TWO_CUES["rows"]]
        rows[2] = {**rows[2], "group": group}
        with refused(f"rows.2.group: {group}_accuracy is the name of"):
            parse_study("two", {**TWO_CUES, "rows": rows})


def test_a_study_given_as_json_is_the_study():
    for name, study in load_studies().items():
        text = json.dumps(study.model_dump(exclude={"name"}), sort_keys=True)
        assert parse_study(name, json.loads(text)) == study


def narrow(**spread: float) -> dict:
    return definition_of("zgo") | {"spread": spread}


def test_a_spread_belongs_to_a_bound_role_whose_factor_has_one():
    study = parse_study("mine", narrow(cue=0.5))
    assert spreads(study, bind(study, "shape-hue", DIGITS.factors)) == {"hue": 0.5}
    assert spreads(load_study("zgo"), bind(study, "shape-hue", DIGITS.factors)) == {}
    with refused("mine: spread.hue: .* bound roles: target, cue"):
        parse_study("mine", narrow(hue=0.5))
    with refused("mine: spread.cue: must be less than or equal to 1"):
        parse_study("mine", narrow(cue=1.5))


def test_bindings_without_a_spread_are_left_out(tmp_path):
    mine = tmp_path / "mine.yaml"
    write_studies(mine, narrow=narrow(cue=0.5))
    config = load_config(None, [f"studies_from=[{mine}]", "studies=[zgo, narrow]"])
    case = [binding for study, binding in config.datasets if study == "narrow"]
    assert len(case) == 25 and not any(binding.endswith("-shape") for binding in case)
    selection = [f"studies_from=[{mine}]", "studies=[narrow]", "bindings=[hue-shape]"]
    with refused("none of them fits study narrow"):
        load_config(None, selection)


@pytest.mark.parametrize("study", TRAINED)
def test_two_cues_are_trained_as_they_correlate_and_tested_balanced(study):
    definition = load_study(study)
    assert definition.groups == tuple(QUADRANTS)
    for split in ("train", "test"):
        cells = definition.cells(split)
        agree = [cells[f"{cue}_class"] == cells["target_class"] for cue in definition.cues]
        for (group, relation), share in zip(QUADRANTS.items(), TRAINED[study], strict=True):
            inside = cells[(agree[0] == relation[0]) & (agree[1] == relation[1])]
            assert (inside["group"] == group).all() and inside["weight"].nunique() <= 1
            if split == "train":
                assert inside["weight"].sum() == pytest.approx(share, abs=1e-12)
    assert definition.cells("val")["weight"].to_list() == pytest.approx([1 / 27] * 27)
    weights = [definition.group_weights[group] for group in QUADRANTS]
    assert weights == pytest.approx([sum(weights) * n / 27 for n in (3, 6, 6, 12)])


def test_a_group_counts_as_often_as_all_its_rows():
    calls, misled = definition_of("zgo")["rows"]
    rows = [{**calls, "weight": 2.0}, {**misled, "cells": [[0, 1]]}, {**misled, "cells": [[1, 0]]}]
    assert changed_study("zgo", rows=rows).group_weights == {"id": 2, "ood": 2}


def test_gaps_need_two_cues_and_the_four_groups_of_their_cells():
    rows = definition_of("urbancars")["rows"]
    other_values = {"common": "no-cue-1", "no-cue-1": "common"}
    swapped = [{**row, "group": other_values.get(row["group"], row["group"])} for row in rows]
    for changed, says in (
        (
            {"bound": ["target", "cue-1"]},
            "roles: the metrics `gaps` need 2 bound roles besides the target, not 1",
        ),
        (
            {"rows": rows[:-1]},
            "no row of the split test has the group neither, which the metrics `gaps` need",
        ),
        (
            {"rows": swapped},
            r"rows.4.cells: \[0, 0, 0\] is tested in the group no-cue-1, .* need it in common",
        ),
    ):
        with refused(says):
            changed_study("urbancars", **changed)


def test_chance_is_that_of_the_classes_that_rows_use():
    """Of a study that declares three and uses two, for example."""
    cells = {"splits": ["train", "val", "test"], "group": "id", "cells": [[0, 0], [2, 2]]}
    mine = own_study([cells], roles={"target": 3, "cue": 3})
    assert KnownStudies(definitions=(mine,)).chance("mine") == 1 / 2
    for name, study in SHIPPED.studies.items():
        assert SHIPPED.chance(name) == 1 / study.roles["target"]


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (("gain", "improvement_over_zgo"), "contrasts.contrast-1.metric: another .* improvement_o"),
        (("gain", "gain"), "contrasts.contrast-1.metric: another metric is called gain; choose"),
        *((("gain", name), f"metric is called {name}; choose another") for name in METRIC_TITLES),
    ],
)
def test_a_contrast_has_a_name_of_its_own(tmp_path, metrics, says):
    study = {**load_study("zgo").model_dump(exclude={"name"}, exclude_none=True)}
    pair = {"study": "mine", "reference": "again", "title": "c"}
    contrasts = {f"contrast-{n}": {**pair, "metric": name} for n, name in enumerate(metrics)}
    file = {"title": "t", "studies": {"mine": study, "again": study}, "contrasts": contrasts}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(file))
    with refused(says):
        load_config(None, [f"studies_from=[{path}]", "studies=[mine, again]"])
    del file["contrasts"]["contrast-1"]
    path.write_text(yaml.safe_dump(file))
    assert [*known_studies({"studies_from": [str(path)]}).contrasts][1:] == ["gain"]


def test_studies_of_one_title_have_their_names_beside_it(tmp_path):
    """Otherwise a table would mix them up."""
    zgo = load_study("zgo").model_dump(mode="json", exclude={"name"})
    write_studies(tmp_path / "mine.yaml", again=zgo)
    settings = {"studies_from": [str(tmp_path / "mine.yaml")], "studies": ["zgo", "again", "zso"]}
    titles = [known_studies(settings).title(name) for name in settings["studies"]]
    assert titles == ["ZGO (zgo)", "ZGO (again)", "ZSO"]
    assert known_studies({**settings, "studies": ["again"]}).title("again") == "ZGO"
