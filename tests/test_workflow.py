"""The real workflow at toy size, in a copy of the repository: the same result always, whatever
happens on the way."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd

from toy import RUN, command, contents, count, environment, hashes, toy, write

# One study and one baseline are enough for what goes wrong on the way.
FEWER = ("--config", "studies=[zgo]", "bindings=[hue-shape]", "baselines=[small_cnn]")


def test_everything_is_made(output):
    files = hashes(output / "toy")
    assert sum(name.endswith("predictions.parquet") for name in files) == 8
    assert sum(name.endswith("test.parquet") for name in files) == 4
    assert (output / "toy/results/report.html").stat().st_size > 10_000
    assert "Nothing to be done" in toy(output)


def test_a_users_own_scene_study_model_and_method_are_in_tables_and_report(output):
    results = output / "toy/results"
    runs = pd.read_csv(results / "tables/runs.csv")
    assert set(runs["status"]) == {"ok"}
    baselines = {"small_cnn", "tiny", "focal"}
    pairs = {("two-places", "small_cnn"), *(("zgo", name) for name in baselines)}
    assert set(zip(runs["study"], runs["baseline"], strict=True)) == pairs
    page = (results / "report.html").read_text()
    assert "Two environments" in page and all(name in page for name in baselines)
    of_squares = results / "runs/small_cnn/two-places/corner-colour/0/predictions.parquet"
    predictions = pd.read_parquet(of_squares)
    columns = {"colour", "corner", "extent", "environment", "group", "prediction"}
    assert columns <= set(predictions.columns) and set(predictions["group"]) == {"new"}


def test_killed_it_continues_to_the_same_result(output, finished):
    """Killed in a training; finished with one core, where the undisturbed run had two."""
    for folder in ("results", "logs"):
        shutil.rmtree(finished / "toy" / folder)
    runs = (*FEWER, "--", "runs")
    with subprocess.Popen(
        command("--configfile", "toy.yaml", *runs),
        cwd=finished,
        process_group=0,
        env=environment(finished),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        while not list((finished / "toy/logs/train").rglob("*.log")):
            assert running.poll() is None, "ended before a training"
            time.sleep(0.05)
        time.sleep(0.3)  # into the job
        os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode
    toy(finished, "--unlock")
    assert count(toy(finished, *runs, cores=1)) == {"train": 1, "runs": 1}
    again = hashes(finished / "toy")
    assert sum(name.endswith("predictions.parquet") for name in again) == 2
    assert again.items() <= hashes(output / "toy").items()
    assert not list((finished / "toy").rglob("*.tmp"))


def test_rendering_on_the_training_device_needs_no_image_files(finished):
    """test_datasets compares the images."""
    for folder in ("data/images", "results"):
        shutil.rmtree(finished / "toy" / folder)
    assert count(toy(finished, "-n", *FEWER, "images=render", "--", "runs")) == {
        "train": 1,
        "runs": 1,
    }


def test_tuning_searches_with_the_images_that_are_there(finished):
    search = "{study: zgo, random_search: {bindings: [hue-shape], trials: 2}}"
    finished_part = count(toy(finished, *FEWER, f"tuning={search}", "--", "tuned"))
    assert finished_part == {"tune": 1, "tuned": 1}
    case = {path.name for path in (finished / "toy/results/tuning").iterdir()}
    assert case == {"small_cnn.csv", "small_cnn.yaml"}
    assert "chosen: trial" in (finished / "toy/logs/tune/small_cnn.log").read_text()


def test_more_samples_and_weights_leave_what_is_there(output, finished):
    additions = (*FEWER, "samples=3", "keep_weights=true", "--", "runs")
    toy(finished, *additions, cores=1)
    before, after = (hashes(folder / "toy") for folder in (output, finished))
    retained = {name for name in before if "runs/small_cnn/zgo" in name}
    assert retained and {name: after[name] for name in retained} == {
        name: before[name] for name in retained
    }
    weights = sorted((finished / "toy/results/runs").rglob("weights.pt"))
    assert len(weights) == 3
    weights[0].unlink()
    fewer = [value for value in additions if value != "keep_weights=true"]
    assert "Nothing to be done" in toy(finished, *fewer), "no longer asking for them"
    assert count(toy(finished, "-n", *additions)) == {"train": 1, "runs": 1}


def test_a_mistake_ends_before_anything_starts(repository):
    output = toy(repository, "--config", "bindngs=all", fails=True)
    assert output.splitlines()[-1].startswith("error: ") and "Traceback" not in output
    assert output.count("unknown key 'bindngs'; did you mean bindings") == 1
    assert not (repository / "toy").exists()


def planned(folder: Path) -> set[str]:
    """The jobs of a dry run: the stage, and for training the baseline."""
    message = toy(folder, "-n")
    jobs = re.findall(r"^Job \d+: (train \S+|\w+)", message, re.M)
    assert jobs or "Nothing to be done" in message, message
    return set(jobs) - {"everything"}


def test_a_change_of_a_users_file_runs_again_what_uses_it_and_nothing_else(finished):
    """Of zgo the two baselines whose code changes, but not small_cnn."""
    for file, old, new in (
        ("lab/methods.py", ".mean()", ".sum()"),
        ("lab/models.py", "nn.ReLU()", "nn.Tanh()"),
        ("square_studies.yaml", "weight: 2.0", "weight: 4.0"),
    ):
        text = (finished / file).read_text()
        assert old in text
        write(finished, {file: text.replace(old, new)})
    message = toy(finished, "-n")
    trained = set(re.findall(r"^Job \d+: train (\S+ on \S+)", message, re.M))
    assert trained == {"focal on zgo", "tiny on zgo", "small_cnn on two-places"}
    once = dict.fromkeys(("draw", "render", "tabulate", "plot", "all"), 1)
    assert count(message) == {"train": 3, **once}


def test_forced_is_forced_and_a_link_is_replaced(finished):
    """As to DVC's cache, by `cache.type hardlink`."""
    runs, cache = (finished / f"toy/{name}" for name in ("results/runs", "cache"))
    before = contents(shutil.copytree(runs, cache, copy_function=os.link))
    log = finished / "toy/logs/train/tiny/zgo/hue-shape.log"
    toy(finished, "--forcerun", "train", "--", f"{RUN.format('tiny')}/sha256.json")
    assert "accuracy" in log.read_text() and "kept" not in log.read_text()
    assert contents(cache) == before != contents(runs), "when it ran"
