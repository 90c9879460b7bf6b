"""The plan: numbers from the configuration, times from measurements, and nothing invented where there is none."""

import json

from diagvib.config import load_config
from diagvib.files import definition_path
from diagvib.plan import duration, estimate, measured_rates


def result(kind: str, device: str, date: str, **rates: float) -> str:
    rows = [{"what": what.replace("_", " "), "device": device, "threads": 1, "images_per_second": rate}
            for what, rate in rates.items()]
    return json.dumps({"kind": kind, "date": date, "rows": rows})


def test_the_papers_numbers():
    plan = estimate(load_config(definition_path("config.yaml")))
    assert plan["datasets"] == 1230
    assert plan["jobs"] == {"draw": 246, "render": 246, "train": 492}
    assert plan["images"] == 1200 * 72_488 + 30 * 62_488
    assert plan["runs_per_baseline"] == {"small_cnn": 1230, "resnet18": 1230}


def test_rendering_on_the_fly_needs_no_disk_for_images():
    config = load_config(definition_path("config.yaml"), ["images=render"])
    assert estimate(config)["disk"]["images"] == 0
    assert estimate(config)["jobs"]["render"] == 0


def test_the_newest_measurement_of_a_device_counts(tmp_path):
    (tmp_path / "a.json").write_text(result("render", "cpu", "2026-01-01", render_to_Parquet=1.0, only_old=2.0))
    (tmp_path / "b.json").write_text(result("render", "cpu", "2026-02-01", render_to_Parquet=5.0))
    (tmp_path / "c.json").write_text(result("render", "cuda", "2026-03-01", render_to_Parquet=9.0))
    (tmp_path / "d.json").write_text(result("train", "cpu", "2025-01-01", train_small=3.0))
    assert measured_rates("cpu", tmp_path) == ({"render to Parquet": 5.0, "train small": 3.0}, ["b.json", "d.json"])
    assert measured_rates("cuda", tmp_path) == ({"render to Parquet": 9.0}, ["c.json"])
    assert measured_rates("cpu", tmp_path / "none") == ({}, [])


def test_no_time_is_invented(monkeypatch):
    monkeypatch.setattr("diagvib.plan.measured_rates", lambda device: ({}, []))
    assert set(estimate(load_config(definition_path("demo.yaml")))["seconds"].values()) == {None}


def test_times_follow_from_rates(monkeypatch):
    monkeypatch.setattr("diagvib.plan.measured_rates", lambda device: (
        {"render to Parquet": 100.0, "train small_cnn": 10.0, "predict small_cnn": 20.0}, ["x.json"]))
    config = load_config(definition_path("demo.yaml"), [
        "studies=[zgo]", "pairs=[shape-hue]", "counts={train: 100, val: 20, id: 40, ood: 60}", "training.max_epochs=3"])
    assert estimate(config)["seconds"] == {"render": 2.2, "train small_cnn": 3 * (100 / 10 + 20 / 20) + 100 / 20}


def test_durations_are_said_as_people_do():
    assert [duration(s) for s in (12, 600, 36_000)] == ["12 s", "10 min", "10.0 h"]
