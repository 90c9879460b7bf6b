"""Dataset samples and seeds as sources of variation: components, what shows an effect, and the joint
statement with several seeds."""

import json
import re
from itertools import product
from pathlib import Path

import components as components_script
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from conftest import REPOSITORY
from diagvib.cli import app
from diagvib.commands import detect
from diagvib.papers.diagvib6.agreement import variance_ratio
from diagvib.results.cells import RUN_KEYS
from diagvib.results.metrics import faavg, famin
from diagvib.results.read_runs import Collected
from diagvib.results.selection_price import COLUMNS, IMAGES, price_sentence, selection_prices
from diagvib.results.uncertainty import estimate, half_width, sample_interval
from diagvib.results.variation import components, variation_rows
from diagvib.studies.known_studies import SHIPPED


def runs(accuracies: np.ndarray, bindings=("shape-hue",)) -> pd.DataFrame:
    """float[samples, seeds], the same for each binding."""
    rows = [
        ("m", "zgo", binding, "shape", "hue", sample, seed, value)
        for binding, ((sample, seed), value) in product(bindings, np.ndenumerate(accuracies))
    ]
    return pd.DataFrame(rows, columns=[*RUN_KEYS, "ood_accuracy"])


def test_components_are_those_of_the_analysis_of_variance():
    values = np.array([[0.2, 0.4], [0.5, 0.5], [0.9, 0.7]])
    sources = components(values)
    within = (0.02 + 0 + 0.02) / 3
    assert sources["seeds"].value == pytest.approx(within**0.5)
    means = np.array([0.3, 0.5, 0.8])
    assert sources["samples"].value == pytest.approx((means.var(ddof=1) - within / 2) ** 0.5)
    assert sources["run"].value == pytest.approx((means.var(ddof=1) + within / 2) ** 0.5)
    assert np.isnan(components(values[:2])["run"].low), "two samples have no interval"
    assert np.isnan(components(values[:, :1])["seeds"].value)
    equal = components(np.full((3, 2), 0.9))["run"]
    assert equal.value == 0 and np.isnan(equal.high), "equal values say nothing of others"


@pytest.mark.parametrize(("samples", "seeds"), [(0.04, 0.02), (0.01, 0.04)])
def test_intervals_of_components_contain_the_truth(samples, seeds):
    rng, shape = np.random.default_rng(0), (4000, 4, 3)
    values = 0.5 + rng.normal(0, samples, (*shape[:2], 1)) + rng.normal(0, seeds, shape)
    truth = {"samples": samples, "seeds": seeds, "run": np.hypot(samples, seeds)}
    for source, (_, low, high) in components(values).items():
        assert ((low <= truth[source]) & (truth[source] <= high)).mean() > 0.94, source


def test_seeds_are_averaged_within_a_sample_and_add_no_observation():
    accuracies = np.array([[[0.2, 0.6], [0.4, 0.4]], [[0.5, 0.9], [0.7, 0.3]]])
    assert faavg(accuracies).samples.tolist() == pytest.approx([0.4, 0.6])
    assert famin(accuracies).samples.tolist() == pytest.approx([0.3, 0.4]), "of each seed's worst"
    mean, stderr, n = estimate(accuracies[:, :, 0])
    assert (mean, n) == (pytest.approx(0.45), 2) and stderr == pytest.approx(0.15)
    accuracies[0, 1, 0] = np.nan
    assert faavg(accuracies).n == 1, "a sample counts with all its seeds"


def test_rows_of_variation_have_one_for_each_binding_and_their_mean():
    values = np.array([[0.2, 0.4], [0.5, 0.5], [0.9, 0.7]])
    rows = pd.DataFrame(variation_rows(runs(values, ("shape-hue", "shape-scale"))))
    assert rows["binding"].tolist() == ["shape-hue", "shape-scale", ""]
    assert set(rows["n"]) == {3} and set(rows["seeds"]) == {2}
    incomplete = runs(values)
    incomplete.loc[1, "ood_accuracy"] = np.nan
    assert [row["n"] for row in variation_rows(incomplete)] == [2]
    assert not list(variation_rows(runs(values[:, :1])))


def test_the_joint_statement_knows_how_much_seeds_average_out():
    rng, shape = np.random.default_rng(0), (400, 3)
    values = 0.5 + rng.normal(0, 0.03, (400, 1)) + rng.normal(0, 0.04, shape)
    expected = (9 + 16 / 3) / (9 + 16)
    frame = runs(values).assign(id_accuracy=0.0)
    assert variance_ratio(frame) == pytest.approx(expected, abs=0.05)
    assert variance_ratio(frame[frame["seed"] == 0]) == 1
    other_groups = frame.drop(columns=["id_accuracy", "ood_accuracy"])
    assert variance_ratio(other_groups.assign(common_accuracy=0.5)) == 1, "a study with two cues"


def test_power_is_that_of_the_interval():
    rng, samples, effect, deviation = np.random.default_rng(0), 5, 0.05, 0.03
    effects = rng.normal(effect, deviation, (20_000, samples))
    shift = effects.mean(1) / (effects.std(1, ddof=1) / samples**0.5)
    simulated = (abs(shift) > half_width(samples - 1)).mean()
    assert detect.power(effect, deviation**2, samples) == pytest.approx(simulated, abs=0.01)
    needed = detect.samples_needed(effect, deviation**2)
    assert detect.power(effect, deviation**2, needed) >= 0.8
    assert detect.power(effect, deviation**2, needed - 1) < 0.8
    assert detect.samples_needed(0.001, 0.1) is None and detect.samples_needed(0.1, 0) == 3
    smallest = detect.smallest_effect(deviation**2, needed)
    assert smallest <= effect and detect.smallest_effect(0.01, 2) is None


def test_the_price_of_selection_is_what_the_recorded_epochs_say():
    """Where the cue agrees, each epoch is better; where it misleads, each is worse."""
    frame = runs(np.full((1, 1), 0.1)).assign(id_accuracy=0.9)
    epochs = pd.DataFrame({"id_accuracy": [0.6, 0.8, 0.9], "ood_accuracy": [0.5, 0.2, 0.1]})
    epochs = epochs.assign(selectable=True).set_axis([0, 0, 0])
    cells = [
        {**frame.loc[0, RUN_KEYS], "group": group, "target_class": "a", "cue_class": cue}
        | {"n": 9, "correct": 1, "trained": trained}
        for group, cue, trained in (("id", "x", 950), ("ood", "y", 50))
    ]
    collected = Collected(frame, [], epochs, pd.DataFrame(cells))
    means = selection_prices(collected, {}).set_index("rule")["mean"]
    assert (means["oracle"], means["as_run"]) == (0.5, 0.1)
    assert means["worst_100"] == pytest.approx(0.5, abs=0.001)
    assert means["iid_100"] < 0.15 < means["iid_5"], "few images hardly choose"
    assert means["balanced_100"] == pytest.approx(0.4, abs=0.1), "0.55 in the first, 0.5 then"


def test_the_price_of_selection_is_of_samples_with_all_their_runs():
    frame = runs(np.full((2, 1), 0.1), ("shape-hue", "shape-scale")).assign(id_accuracy=0.9)
    frame.loc[frame["binding"] == "shape-scale", "ood_accuracy"] = 0.5
    history, cells = [], []
    for run, row in frame[:3].iterrows():  # the last run is missing
        epoch = {"id_accuracy": 0.9, "ood_accuracy": row["ood_accuracy"], "selectable": True}
        history.append(pd.DataFrame(epoch, [run]))
        for group in ("id", "ood"):
            cell = {"group": group, "target_class": "a", "cue_class": group, "trained": 50}
            cells.append({**row[RUN_KEYS], **cell, "n": 9, "correct": 1})
    frame.loc[3, ["id_accuracy", "ood_accuracy"]] = np.nan
    prices = selection_prices(
        Collected(frame, [], pd.concat(history), pd.DataFrame(cells)), {}
    ).query("rule == 'as_run'")
    assert prices[["binding", "n", "expected"]].to_numpy().tolist() == [
        ["shape-hue", 2, 2],
        ["shape-scale", 1, 2],
        ["", 1, 2],
    ]
    assert prices["mean"].tolist() == pytest.approx([0.1, 0.5, 0.3])


def test_simulated_coverage_is_what_the_page_says():
    """benchmarks/simulated_seeds.py."""
    result = json.loads((REPOSITORY / "benchmarks/results/seeds-cpu-2026-11-29.json").read_text())
    rows = pd.DataFrame(result["rows"])
    page = (REPOSITORY / "benchmarks/README.md").read_text()
    for name, words in (
        ("ours", "ours"),
        ("mixed", "mixed model, restricted maximum likelihood"),
        ("all_runs", "every run as a sample of its own"),
    ):
        cells = [
            f"{100 * part[f'coverage_{name}'].mean():.1f} ({100 * part[f'coverage_{name}'].min():.1f}); "
            f"{100 * part[f'width_{name}'].median():.1f}"
            for _, part in rows.groupby("samples")
        ]
        assert f"| {words} | {' | '.join(cells)} |" in page
    assert rows.groupby(["samples", "noise", "world"])["coverage_ours"].mean().min() > 0.93


@pytest.mark.parametrize("samples", [16, 24])
def test_power_near_0_is_that_of_the_tables_rule(samples):
    """Which allows for samples unlike those that were drawn."""
    rng, spread = np.random.default_rng(0), 0.02
    base = rng.normal(0.06, 0.01, (2_000, samples)).clip(0, 1)
    better = (base + rng.normal(0.05, spread, base.shape)).clip(0, 1)
    lows = [sample_interval(*pair)[0] for pair in zip(better, base, strict=True)]
    power = detect.power(0.05, spread**2, samples, 0.06)
    assert power == pytest.approx((np.array(lows) > 0).mean(), abs=0.03)
    assert (power > 0.8) == (samples == 24) and detect.power(0.05, spread**2, samples) > 0.99


def test_less_variance_never_needs_more_samples():
    for samples in (3, 4, 5, 10, 25, 60, 200):
        powers = [detect.power(0.2, d**2, samples) for d in np.linspace(0.3, 0.001, 400)]
        assert np.diff(powers).min() > -1e-9 and powers[-1] == 1
    needed = [detect.samples_needed(0.2, d**2) for d in np.linspace(0.1, 0.01, 200)]
    assert max(np.diff(needed)) <= 0 and needed[-1] == 3


def test_the_page_says_how_many_samples_show_an_effect():
    page = (REPOSITORY / "docs/chance.md").read_text()
    columns = [detect.needed_by_deviation(effect) for effect in (0.05, 0.1, 0.2)]
    for deviation in detect.DEVIATIONS:
        cells = [detect.count_text(column[deviation]) for column in columns]
        assert f"| {100 * deviation:g} | {' | '.join(cells)} |" in page


def test_a_plan_goes_by_components_that_were_measured(monkeypatch, tmp_path):
    """Of a method, and of its difference from the first, which pairs share."""
    rng, shape = np.random.default_rng(0), (3, 3)
    of_samples, values = np.array([[-0.1], [0], [0.1]]), []
    for name, gain in (("m", 0), ("other", 0.1)):
        accuracies = 0.5 + gain + of_samples + rng.normal(0, 0.02, shape)
        values.append(runs(accuracies).assign(baseline=name, id_accuracy=np.nan, status="ok"))
    pd.concat(values).to_csv(tmp_path / "runs.csv", index=False)
    monkeypatch.setattr(components_script, "PAGE", tmp_path / "chance.md")
    (tmp_path / "chance.md").write_text("before\n<!-- detect -->\n<!-- end -->\nafter\n")
    monkeypatch.setattr(detect, "definition_path", lambda name: tmp_path / name)
    detect.read_components.cache_clear()
    components_script.main(
        Path("config/seeds/a.yaml"), tmp_path / "runs.csv", tmp_path / "components.csv"
    )
    options = ["plan", "--detect", "5", "--set", "samples=10", "--set", "seeds=3"]
    result = json.loads(CliRunner().invoke(app, [*options, "--json"]).output)
    rows = {row["number"]: row for row in result["measured"]}
    assert list(rows) == ["m", "other", "other - m"] and result["by_deviation"]["0.05"] == 10
    assert rows["m"]["sd_samples"] > 0.05 > rows["other - m"]["sd_samples"]
    assert rows["other - m"]["samples_1"] >= rows["other - m"]["samples_3"]
    assert rows["m"]["samples_1"] > 2 * rows["other - m"]["samples_1"]
    assert rows["m"]["shown"] > rows["other - m"]["shown"] > 0
    page = (tmp_path / "chance.md").read_text()
    assert (
        page.startswith("before\n") and page.endswith("after\n") and "| other - m | zgo |" in page
    )
    table = CliRunner().invoke(app, options, env={"COLUMNS": "250"}).output
    assert re.search(r" 10 x 3 *\n.* 1 / 3 / 5 seeds +show *\n", table)
    detect.read_components.cache_clear()


@pytest.mark.parametrize(
    ("iid", "sentence"),
    [(0.55, "in FGO-20: with balanced ones"), (0.3001, "choose equally good epochs")],
)
def test_the_largest_dependence_on_validation_images_may_have_either_sign(iid, sentence):
    keys = {"model": "m", "method": "erm", "supervision": "none", "selection": "val_loss"}
    keys |= {"binding": "shape-hue", "target": "shape", "cue": "hue", "baseline": "net"}
    means = {("zgo", "balanced"): 0.2, ("zgo", "iid"): 0.2}
    means |= {("fgo-20", "balanced"): 0.3, ("fgo-20", "iid"): iid}
    rows = [
        keys | {"study": study, "rule": f"{kind}_{IMAGES[-1]}", "mean": mean, "n": 3, "expected": 3}
        for (study, kind), mean in means.items()
    ]
    assert sentence in price_sentence(pd.DataFrame(rows).reindex(columns=COLUMNS), SHIPPED)
