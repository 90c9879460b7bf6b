"""The claims that `make claims` holds to tables, and makes again."""

import re
import shlex
from math import log10

import claims
import pandas as pd
import pytest
import typer

from conftest import REPOSITORY
from diagvib.settings.resolve import load_config

ENTRIES = claims.read_claims()
COMMITTED = [entry for entry in ENTRIES if "committed" in entry]


def command(output: dict) -> str:
    return output["command"]


def changed(claim: dict) -> dict:
    """A claim whose number is one less in its last digit."""
    number, rounding = claims.stated(claim)
    decimals = max(0, round(-log10(2 * rounding)))
    less = f"{number - 2 * rounding:,.{decimals}f}"
    return {**claim, "says": re.sub("{.*}", f"{{{less}}}", claim["says"])}


def test_the_pages_and_the_committed_tables_agree(capsys):
    with pytest.raises(typer.Exit) as ended:
        claims.main(0)
    assert ended.value.exit_code == 0, capsys.readouterr().out


def test_a_number_changed_on_its_page_is_missed():
    for output in ENTRIES:
        assert not any(claims.is_on_page(changed(claim)) for claim in output["claims"])


@pytest.mark.parametrize("display", ["13 points", "-3 points", "3.9", "3,900", "37"])
def test_a_longer_number_on_the_page_is_another(monkeypatch, tmp_path, display):
    (tmp_path / "page.md").write_text(f"It gains {display}.\nIn 3 points")
    monkeypatch.setattr(claims, "REPOSITORY", tmp_path)
    says = "{3} points." if "points" in display else "It gains {3}"
    assert not claims.is_on_page({"page": "page.md", "says": says})
    assert claims.is_on_page({"page": "page.md", "says": "In {3} points"})


@pytest.mark.parametrize("output", COMMITTED, ids=command)
def test_a_number_that_its_table_does_not_have_is_broken(output):
    mistakes = {**output, "claims": [changed(claim) for claim in output["claims"]]}
    assert len(claims.broken(mistakes, output["committed"], new=False)) == len(output["claims"])


@pytest.mark.parametrize("output", [output for output in ENTRIES if "makes" in output], ids=command)
def test_each_command_makes_the_tables_that_are_read(output):
    words = shlex.split(output["command"])
    path = REPOSITORY / words[words.index("--configfile") + 1]
    config = load_config(path, [word for word in words if "=" in word])
    assert output["makes"] == f"{config.root}/results/tables"
    names = [baseline.name for baseline in config.baselines]
    for claim in output["claims"]:
        for rows in (claim.get("of", {}), claim.get("minus", {})):
            rows = {**claim.get("where", {}), **rows}
            assert rows.get("study", config.studies[0]) in config.studies
            assert rows.get("baseline", names[0]) in names
        assert claim["within"] > 0


@pytest.mark.parametrize(("mean", "code"), [(0.96, 0), (0.91, 1)])
def test_a_new_run_with_another_number_ends_with_1(mean, code, tmp_path, monkeypatch, capsys):
    output = ENTRIES[0]
    claim = next(claim for claim in output["claims"] if claim["of"] == {"study": "zso"})
    claim = {**claim, "page": "page.md"}
    (tmp_path / "page.md").write_text(claims.sentence(claim))
    tables = tmp_path / output["makes"]
    tables.mkdir(parents=True)
    metrics = pd.DataFrame({"study": ["zso", "zgo"], "metric": "faavg", "mean": [mean, 0.97]})
    metrics.to_csv(tables / "metrics.csv")
    monkeypatch.setattr(claims, "REPOSITORY", tmp_path)
    monkeypatch.setattr(claims, "read_claims", lambda: [{**output, "claims": [claim]}])
    monkeypatch.setattr(claims.subprocess, "run", lambda *_, **__: None)  # as after the command
    with pytest.raises(typer.Exit) as ended:
        claims.main(15)
    assert ended.value.exit_code == code
    assert ("BROKEN" in capsys.readouterr().out) == bool(code)
