"""The benchmark scripts write files that others can read; no figure is judged here."""

from datetime import date
from pathlib import Path

import pytest
import train
from gpu_jobs import read_lines

from diagvib.commands.rates import newest_files, read_rates
from diagvib.foundation.files import read_json


def written(folder: Path, kind: str) -> dict:
    (path,) = folder.iterdir()
    assert path.name == f"{kind}-cpu-{date.today().isoformat()}.json"
    return read_json(path)


@pytest.fixture
def one_process(monkeypatch):
    """Everything in this process, and once."""
    monkeypatch.setattr(train, "at_once", lambda function, n, *arguments: [function(*arguments)])
    monkeypatch.setattr(train, "machine", lambda: {"cores": 1})


def test_training_is_measured_as_the_plan_reads_it(one_process, tmp_path):
    train.main(["small_cnn"], "cpu", [8, 4], images=16, out=tmp_path)
    rows, rates = (
        written(tmp_path, "train")["rows"],
        read_rates("cpu", newest_files("cpu", tmp_path)),
    )
    assert {(row["what"], row["batch_size"]) for row in rows} == {
        (subject_text, size)
        for subject_text in ("train small_cnn", "predict small_cnn")
        for size in (8, 4)
    }
    assert rates.best("train small_cnn", batch_size=8).batch_size == 8


def test_every_listed_run_of_the_protocol_is_one_and_differs_as_the_list_says():
    lines = read_lines(Path(train.__file__).with_name("protocol_runs.txt"))
    runs = [(line.root, run) for line in lines for run in line.runs(())]
    assert len({(root, run.name) for root, run in runs}) == len(runs) >= 50
    assert {run.sample for _, run in runs[:20]} == {*range(5)}  # the first whole cells
    roots = {line.root: line.config(()) for line in lines}
    precisions = {root: config.training.precision for root, config in roots.items()}
    assert precisions == {"protocol": "bf16", "seeds": "bf16", "fp32": "fp32"}
