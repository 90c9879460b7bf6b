"""benchmarks/combinations.py: combinations of backgrounds as studies, ranked by the accuracy of ERM."""

import pandas as pd
import pytest
import yaml
from combinations import configuration, drawn_studies, main

from diagvib.settings.resolve import load_config
from diagvib.studies.study import parse_study
from toy import run_here


def cells(study: dict, environment: str) -> list[list[list[int]]]:
    return [row["cells"] for row in study["rows"] if row["environment"] == environment]


def test_combinations_are_of_the_papers_two_kinds():
    studies = drawn_studies(30, 0)
    assert studies == drawn_studies(30, 0) != drawn_studies(30, 1)
    assert len({str(study["rows"]) for study in studies.values()}) == 30
    for name, study in studies.items():
        parse_study(name, study)
        (tested,), trained = cells(study, "test"), cells(study, "env-1") + cells(study, "env-2")
        if name.startswith("one-to-one"):
            subject, shared, *second_environment = trained
            assert (
                second_environment == [subject, shared] and len({place for _, place in shared}) == 1
            )
            places = [place for _, place in subject]
            assert len({*places, shared[0][1]}) == 5 and {place for _, place in tested} == {*places}
            assert not any(cell in tested for cell in subject)
        else:
            one_place, exchanged = trained
            assert {place for _, place in one_place} == {place for _, place in exchanged}
            assert not any(cell in exchanged + tested for cell in one_place) and len(tested) == 8


def test_the_table_lists_the_hardest_first(tmp_path):
    main(out=tmp_path, number=2, rank=None, embedded=True, seed=0)
    counts = "counts={train: 136, val: 68, id: 68, ood: 128}"
    run_here(tmp_path / "config.yaml", counts, "training.max_epochs=1", root=tmp_path)
    main(out=tmp_path, number=2, rank=tmp_path, embedded=True, seed=0)
    table = pd.read_csv(tmp_path / "combinations.csv")
    assert table["accuracy"].is_monotonic_increasing and {*table["study"]} == {*drawn_studies(2, 0)}
    assert (
        table["trained on"].str.fullmatch(r"bulldog: \w+, \w+; corgi: .*labrador: \w+, \w+").all()
    )


@pytest.mark.parametrize("embedded", [False, True])
def test_the_configuration_is_valid(tmp_path, embedded):
    studies = drawn_studies(4, 0)
    (tmp_path / "studies.yaml").write_text(
        yaml.safe_dump({"title": "t", "studies": studies}, sort_keys=False)
    )
    values = configuration(tmp_path, studies, embedded)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**values, "mirror": None}))
    assert len(load_config(tmp_path / "config.yaml").train_jobs) == 4
