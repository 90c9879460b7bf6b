"""The claims that `make claims` makes again."""

import sys

import pandas as pd
import pytest
import typer

from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import claims

from diagvib.settings.config import load_config

MADE = claims.read_claims()


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["root"])
def test_each_command_makes_the_root_that_is_read(made):
    config = load_config(REPOSITORY / made["command"].split("--configfile ")[1])
    assert config.root == made["root"]
    for claim in made["claims"]:
        assert claim["of"].get("study", config.studies[0]) in config.studies
        names = [baseline.name for baseline in config.baselines]
        assert claim["of"].get("baseline", names[0]) in names


@pytest.mark.parametrize(("mean", "code"), [(0.96, 0), (0.93, 1), (None, 1)])
def test_a_claim_that_does_not_hold_ends_with_1(mean, code, tmp_path, monkeypatch, capsys):
    tables = tmp_path / "outputs/demo/results/tables"
    tables.mkdir(parents=True)
    rows = [] if mean is None else [{"study": "zso", "metric": "faavg", "mean": mean}]
    metrics = pd.DataFrame([*rows, {"study": "zgo", "metric": "faavg", "mean": 0.97}])
    metrics.to_csv(tables / "metrics.csv")
    made = {**MADE[0], "claims": MADE[0]["claims"][:1]}
    monkeypatch.setattr(claims, "REPOSITORY", tmp_path)
    monkeypatch.setattr(claims, "read_claims", lambda: [made])
    monkeypatch.setattr(claims.subprocess, "run", lambda *_, **__: None)  # as after the command
    with pytest.raises(typer.Exit) as ended:
        claims.main(15)
    assert ended.value.exit_code == code
    assert ("BROKEN" in capsys.readouterr().out) == bool(code)
