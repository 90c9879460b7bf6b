"""The plan: numbers from the configuration, times from measurements, and no time where there is no
measurement."""

import csv
import json
from pathlib import Path

import multiply_adds
import pytest

from conftest import refused
from diagvib.commands import plan as plan_module
from diagvib.commands.plan import estimate
from diagvib.commands.plan_sizes import (
    IMAGE_BYTES,
    OTHER_RUN_BYTES,
    PREDICTION_BYTES,
    RECIPE_BYTES,
)
from diagvib.commands.plan_table import duration, print_plan
from diagvib.commands.rates import newest_files, read_rates
from diagvib.foundation.files import definition_path
from diagvib.scenes import load_scene
from diagvib.settings.baselines import load_settings
from diagvib.settings.keys import Configuration
from diagvib.settings.resolve import load_config

# Two datasets of 180 images, two samples of each; four epochs.
SMALL = [
    "studies=[zgo]",
    "bindings=[shape-hue, hue-shape]",
    "samples=2",
    "counts={train: 100, val: 20, id: 20, ood: 40}",
    "training.max_epochs=4",
    "baselines=[small_cnn]",
]
# Seconds of a train job of SMALL at 10 images/s, and 20 in prediction.
JOB = 2 * (4 * (100 / 10 + 20 / 20) + 60 / 20)


def small_config(*overrides: str) -> Configuration:
    return load_config(overrides=[*SMALL, *overrides])


def row(subject_text: str, rate: float, device: str = "cuda", **options: object) -> dict:
    return {
        "what": subject_text,
        "device": device,
        "threads": 1,
        "images_per_second": rate,
        **options,
    }


def rates(train: float, *device: str, **options: object) -> list[dict]:
    """Of small_cnn, which predicts twice as fast as it trains."""
    speeds = {"train": train, "predict": 2 * train}
    return [row(f"{step} small_cnn", rate, *device, **options) for step, rate in speeds.items()]


def result_file(path: Path, *rows: dict, kind: str = "train", **more: str) -> Path:
    machine = {"cpu": "Some", "cores": 4, "gpu": "A GPU"}
    path.write_text(json.dumps({"kind": kind, "machine": machine, "rows": rows, **more}))
    return path


@pytest.fixture
def measured(tmp_path) -> Path:
    """A result file with rates for small_cnn alone."""
    return result_file(tmp_path / "a.json", *rates(10))


def printed(plan: dict, config: Configuration, capsys) -> str:
    """The table as one line, without its frame."""
    print_plan(plan, config)
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_the_papers_numbers():
    plan = estimate(load_config())
    assert plan["datasets"] == 1230
    assert plan["jobs"] == {"draw": 246, "render": 246, "encode": 246, "train": 2214}
    assert plan["images"] == 1200 * 72_488 + 30 * 62_488
    assert [*plan["runs_per_baseline"].values()] == [1230] * 9


def test_rendering_on_the_fly_needs_no_disk_for_images():
    plan = estimate(small_config("images=render"))
    assert plan["disk"]["images"] == plan["jobs"]["render"] == plan["seconds"]["render"] == 0
    assert "weights" not in plan["disk"]


def test_only_scenes_that_are_downloaded_need_disk_for_sources():
    photos = load_config("config/photos/waterbirds/config.yaml", ["baselines=[small_cnn]"])
    assert estimate(photos)["disk"]["sources"] == 0
    draws = estimate(small_config("sources=embedded"))["disk"]["sources"]
    assert 0 < 50 * draws < estimate(small_config())["disk"]["sources"]


def test_kept_weights_take_their_size_but_a_plan_does_not_import_a_users_model(capsys):
    """It could not: there is none of this name."""
    config = small_config("keep_weights=true", "baselines=[resnet18, small_cnn]")
    config.baselines[1].settings["model"]["name"] = "no_such_module:make"
    plan = estimate(config)
    resnet18 = 11_181_642  # parameters with ten classes; running means are 0.1 % more
    assert plan["disk"]["weights"] / (4 * 4) == pytest.approx(resnet18, rel=0.002)
    assert "weights of small_cnn (own code or frozen networks)" in printed(plan, config, capsys)


def test_the_newest_measurement_of_a_device_counts(tmp_path):
    for name, *rows in (
        ("render-cpu-2026-01-01", row("render", 1, "cpu"), row("old", 2, "cpu")),
        ("render-cpu-2026-02-01", row("render", 5, "cpu")),
        ("train-cuda-2026-03-01", row("render", 9)),
        ("workflow-cpu-2026-04-01", {"what": "run", "device": "cpu", "seconds": 1}),
    ):
        result_file(tmp_path / f"{name}.json", *rows, kind=name.partition("-")[0])
    cpu = read_rates("cpu", newest_files("cpu", tmp_path))
    assert cpu.sources == ["render-cpu-2026-02-01.json (4 cores of Some)"]
    assert cpu.best("render").images_per_second == 5 and cpu.best("old") is None
    cuda = read_rates("cuda", newest_files("cuda", tmp_path))
    assert [row.images_per_second for row in cuda.rows] == [5, 9]


def test_times_follow_from_rates(measured, tmp_path):
    render = result_file(tmp_path / "b.json", row("render to Parquet", 90, "cpu"), kind="render")
    plan = estimate(small_config(), "cuda", 2, [render, measured])
    seconds = {"render": 2 * 2 * 180 / 90, "train small_cnn": 2 * JOB}
    assert plan["seconds"] == seconds
    assert plan["wall_seconds"] == seconds["render"] + JOB, "a CPU renders"
    assert plan["setups"] == {"train small_cnn": ""}
    with refused("--gpus 2.*--device cuda"):
        estimate(small_config(), "cpu", gpus=2)
    with refused(r"a.json: no rates for cpu; its rows are for cuda"):
        read_rates("cpu", [measured])
    (tmp_path / "mine.yaml").write_text("samples: 1\n")
    with refused(r"not readable as JSON \(.*\); name a result file"):
        read_rates("cpu", [tmp_path / "mine.yaml"])


@pytest.fixture
def shared(tmp_path) -> list[Path]:
    """Rates of small_cnn with 1, 5 and 15 processes: all together are 3 and 6 times as fast. With
    a service of the machine, 5 train more slowly and predict faster."""
    files = []
    for name, factor, processes, more in (
        ("alone", 1, 1, {}),
        ("five", 3, 5, {}),
        ("five-served", 2, 5, {"conditions": "a service was on"}),
        ("fifteen", 6, 15, {"conditions": "a service was on"}),
    ):
        predicted = 20 * factor * (1 + bool(more))
        rows = [
            row("train small_cnn", 10 * factor, processes=processes),
            row("predict small_cnn", predicted, processes=processes),
        ]
        files.append(result_file(tmp_path / f"{name}.json", *rows, **more))
    return files


ALL_SHARED = "bindings=[shape-hue, hue-shape, shape-scale, hue-scale, scale-hue, scale-shape]"


def test_rates_are_of_no_more_processes_than_a_gpu_gets(shared, capsys):
    """A job has five runs."""
    job = 5 * JOB / 2
    served = 5 * (4 * (100 / 60 + 20 / 240) + 60 / 240)  # with 15 processes
    config = small_config("samples=5", ALL_SHARED)
    plan = estimate(config, "cuda", 2, shared)
    assert plan["seconds"]["train small_cnn"] == pytest.approx(6 * served)
    assert plan["wall_seconds"] == pytest.approx(6 * served / 2)
    output = printed(plan, config, capsys)
    setup = "measured with 15 processes (a service was on, which the workflow leaves to you): "
    assert setup + "small_cnn" in output and "on 2 GPUs about" in output
    plan = estimate(config, "cuda", 3, shared)
    assert plan["wall_seconds"] == pytest.approx(6 * job / 3 / 3), "two jobs are ten processes"
    assert plan["setups"] == {"train small_cnn": "5 processes"}
    in_turn = estimate(small_config("samples=5", ALL_SHARED, "processes=1"), "cuda", 6, shared)
    assert in_turn["wall_seconds"] == pytest.approx(job)
    assert in_turn["setups"] == {"train small_cnn": "one process"}


def test_a_job_is_not_divided_among_gpus(shared, measured):
    one_job = small_config("samples=5", "bindings=[hue-shape]")
    for gpus in (1, 8):
        plan = estimate(one_job, "cuda", gpus, shared)
        assert plan["wall_seconds"] == pytest.approx(5 * JOB / 2 / 3)
    single, pair = (rates(10 * n, "cpu", processes=n) for n in (1, 2))
    file = result_file(measured, *single, *pair)
    plan = estimate(one_job, "cpu", rate_files=[file])
    assert plan["wall_seconds"] == plan["seconds"]["train small_cnn"] == 5 * JOB / 2


def test_a_frozen_network_encodes_in_one_process_a_gpu(shared):
    frozen = small_config("samples=5", "baselines=[resnet50_in]")
    assert estimate(frozen, "cuda", 1, shared)["setups"] == {"train resnet50_in": "one process"}


@pytest.mark.parametrize(
    ("override", "additional"),
    [
        ("training.track_test=true", 4 * 60 / 20),
        ("baselines=[{name: small_cnn, max_epochs: 6}]", 2 * (100 / 10 + 20 / 20)),
    ],
)
def test_tests_after_every_epoch_and_a_baselines_own_epochs_count(measured, override, additional):
    """additional: seconds of a run."""
    config = small_config(override)
    result = estimate(config, "cuda", rate_files=[measured])["seconds"]["train small_cnn"]
    assert result == pytest.approx(2 * (JOB + 2 * additional))


def test_every_phase_counts(tmp_path):
    rows = [row("train vae encode", 10), row("train vae classify", 50), row("predict vae", 20)]
    file = result_file(tmp_path / "a.json", *rows)
    result = estimate(small_config("baselines=[vae]"), "cuda", rate_files=[file])["seconds"]
    assert result["train vae"] == pytest.approx(2 * (JOB + 2 * 4 * (100 / 50 + 1)))


def test_a_rate_of_other_settings_is_none(tmp_path):
    rows = [
        row("train small_cnn", 10, batch_size=32, precision="bf16"),
        row("train small_cnn", 99, batch_size=256, precision="bf16"),
        row("train small_cnn", 99, batch_size=32, precision="fp32"),
        row("predict small_cnn", 20),
        row("train small_cnn", 10, "cpu", precision="fp32"),  # has no bf16
        row("predict small_cnn", 20, "cpu"),
    ]
    file = result_file(tmp_path / "a.json", *rows)
    config = small_config()
    for device in ("cuda", "cpu"):
        result = estimate(config, device, rate_files=[file])["seconds"]
        assert result == {"render": None, "train small_cnn": 2 * JOB}
    config.baselines[0].settings["batch_size"] = 64
    plan = estimate(config, "cuda", rate_files=[file])
    assert plan["not_measured"] == ["render", "train small_cnn"]


def test_times_are_scaled_by_pixels_and_say_so(tmp_path, capsys):
    rows = [*rates(10, "cpu", precision="bf16"), *rates(10, "cuda", precision="bf16")]
    file, config = result_file(tmp_path / "a.json", *rows), small_config("image_size=64")
    plan = estimate(config, "cuda", rate_files=[file])
    assert plan["seconds"]["train small_cnn"] == 2 * JOB / 4
    assert "47 s, scaled by pixels (not tried on a GPU) from" in printed(plan, config, capsys)
    plan = estimate(config, "cpu", rate_files=[file])
    assert plan["seconds"]["train small_cnn"] == 2 * JOB / 4 and plan["scaled_from"] == 128
    message = "47 s, scaled by pixels from images of 128 x 128"
    assert printed(plan, config, capsys).count(message) == 2  # of the baseline and in all
    plan = estimate(small_config(), "cpu", rate_files=[file])
    assert "scaled" not in printed(plan, small_config(), capsys)
    config.baselines[0].settings["model"] = small_config().baselines[0].settings["model"] | {
        "name": "resnet18",
        "input": {"size": 64},
    }
    plan = estimate(config, "cpu", rate_files=[file])
    assert plan["seconds"]["train small_cnn"] == 2 * JOB


def test_the_table_names_what_was_not_measured(measured, capsys):
    """debian needs its training images to take a step."""
    config = small_config("baselines=[small_cnn, debian]")
    output = printed(estimate(config, "cuda", 2, [measured]), config, capsys)
    assert "train debian not measured with these settings" in output
    assert "in all 3 min, without render, train debian" in output
    assert "on 2 GPUs about 2 min" in output


def test_steps_of_what_was_not_measured_are_timed_on_request(capsys):
    """debian needs its training images to take a step; jtt has phases and copies of images."""
    config = small_config("baselines=[debian, jtt]", "sources=embedded", "image_size=64")
    plan = estimate(config, "cpu", rate_files=[], timed=True)
    steps, repeats = plan["timed"], plan["repeats"]
    assert not plan["not_measured"] and {*steps} == {"train debian", "train jtt"}
    assert 1 < repeats["train jtt"] <= 101 and len(repeats) == 1
    output = printed(plan, config, capsys)
    assert f"timed on this machine in {steps['train debian']} steps" in output
    assert f"copies are up to {repeats['train jtt']:.1f} times as long" in output


def test_what_was_not_timed_is_scaled_by_operations_from_what_was(measured, capsys):
    """A step has as many operations as PyTorch counts: 3.476e9 of resnet18, 7.59e7 of small_cnn. Of
    a frozen network, each image is seen once."""
    config = small_config("baselines=[small_cnn, resnet18, resnet50_in]")
    plan = estimate(config, "cuda", rate_files=[measured])
    step, forward = 3.476 / 0.0759, 1.184 / 0.02855
    expected = 2 * 2 * (4 * (100 / 10 * step + 20 / 20 * forward) + 60 / 20 * forward)
    assert plan["seconds"]["train resnet18"] == pytest.approx(expected, rel=0.01)
    features = 2 * 2 * 180 / 20 * 2.669 / 0.02855
    assert plan["seconds"]["train resnet50_in"] == pytest.approx(features, rel=0.01)
    output = printed(plan, config, capsys)
    assert output.count("scaled by operations from small_cnn") == 2
    assert "2 of them scaled by operations" in output


def test_a_filled_gpu_is_not_judged_by_a_process_alone(measured, tmp_path):
    """Nor is a smaller step taken faster than any that was measured."""
    filled = [row(f"{step} resnet18", 100, processes=15) for step in ("train", "predict")]
    files = [measured, result_file(tmp_path / "filled.json", *filled)]
    config = small_config("samples=5", ALL_SHARED, "baselines=[resnet18, vae]")
    plan = estimate(config, "cuda", 1, files)
    assert plan["by_operations"] == {"train vae": "resnet18"}
    assert plan["seconds"]["train vae"] == pytest.approx(plan["seconds"]["train resnet18"])


def test_the_table_of_operations_is_of_the_baselines_as_they_are():
    with multiply_adds.TABLE.open(newline="") as file:
        rows = {row["baseline"]: row for row in csv.DictReader(file)}
    assert [*rows] == [*multiply_adds.NAMES]
    for name, table_row in rows.items():
        assert table_row["settings"] == multiply_adds.settings_digest(load_settings(name)), name
    for name in ("small_cnn", "alexnet"):
        values = {key: str(value) for key, value in multiply_adds.row(name).items()}
        assert rows[name] == {"weights": "", "bytes": "", **values}


def test_a_step_that_needs_more_than_a_batch_has_no_count():
    """masktune's cannot be taken without computing it either, unlike factor_vae's."""
    assert multiply_adds.count(load_settings("masktune"), 64) == {}
    assert multiply_adds.count(load_settings("factor_vae"), 64)["train"] > 0


def test_published_weights_take_their_size_once(capsys):
    frozen = small_config("baselines=[resnet50_in]")
    weights = estimate(frozen)["disk"]["published weights"]
    assert weights == pytest.approx(102_530_333, rel=1e-4), "resnet50-0676ba61.pth"
    other_config = small_config("baselines=[resnet50_in]")
    other_config.baselines[0].settings["model"]["name"] = "resnet101"
    output = printed(estimate(other_config), other_config, capsys)
    assert "published weights of resnet101 IMAGENET1K_V1, and features of frozen networks" in output


def test_no_time_is_invented(monkeypatch, capsys):
    """On a machine without any measurements."""
    monkeypatch.setattr(plan_module, "newest_files", lambda device: [])
    config = small_config("images=render")
    plan = estimate(config, "cuda", gpus=8)
    assert plan["seconds"] == {"render": 0, "train small_cnn": None}
    output = printed(plan, config, capsys)
    assert "train small_cnn not measured" in output and "train.py --device cuda`" in output
    assert "in all" not in output and "on 8 GPUs" not in output


def test_disk_follows_from_sizes_and_numbers():
    """Two samples of two datasets of 180 images, of which 60 are tested."""
    disk, half = (estimate(small_config(f"image_size={size}"))["disk"] for size in (128, 64))
    assert disk["images"] == 4 * 180 * IMAGE_BYTES == 2 * half["images"]
    assert disk["recipes"] == 4 * 180 * RECIPE_BYTES
    assert disk["results"] == 4 * (60 * PREDICTION_BYTES + OTHER_RUN_BYTES)
    cars = load_config("config/urbancars.yaml", ["baselines=[small_cnn]"])
    assert estimate(cars)["disk"]["sources"] == 10_000 * load_scene("cars").source_bytes_per_image


def test_durations_are_told_in_their_units():
    case = [duration(seconds) for seconds in (59.6, 91, 5399, 5401, 90_000, 3.6e7)]
    assert case == ["60 s", "2 min", "90 min", "1.5 h", "25.0 h", "10,000.0 h"]


def test_features_of_frozen_networks_are_said_not_to_be_in_the_sums(tmp_path, capsys):
    config = load_config(definition_path("frozen.yaml"))
    output = printed(estimate(config), config, capsys)
    assert "features of frozen networks; not in these sums" in output


def test_groups_without_some_of_the_classes_are_named(tmp_path, capsys):
    """With two classes of the cue, the third of the target has none that is the same."""
    (tmp_path / "mine.yaml").write_text(
        "title: Mine\nstudies:\n  uneven:\n    title: Uneven\n    meaning: of two textures\n"
        "    roles: {target: 3, cue: 2}\n    rows:\n"
        "      - {splits: [train, val, test], group: id, weight: 0.5, cells: {cue: same}}\n"
        "      - {splits: [train, val, test], group: ood, weight: 0.5, cells: {cue: other}}\n"
    )
    own = f"studies_from=['{tmp_path / 'mine.yaml'}']"
    config = small_config("studies=[uneven, zgo]", own)
    output = printed(estimate(config), config, capsys)
    assert "test groups id of uneven has 2 of 3 target classes; chance differs" in output
    config = small_config()
    assert "test groups" not in printed(estimate(config), config, capsys)
