"""The files of a run."""

import json
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa

from diagvib.foundation.files import write_json, write_table, write_text
from diagvib.foundation.slots import slot_record
from diagvib.images.files import Images
from diagvib.methods.method import Method
from diagvib.provenance.code import git_state
from diagvib.provenance.finished import RUN_RECORD, file_digests
from diagvib.settings.layout import WEIGHTS_FILE, Run
from diagvib.training.accuracy import group_metrics
from diagvib.training.checkpoints import save_tensors
from diagvib.training.job import Job
from diagvib.training.trainer import Fitted


def write_results(
    run: Run,
    fitted: Fitted,
    test: Images,
    predictions: pd.DataFrame,
    trained_counts: dict[str, int],
    measured_facts: dict,
    out: Path,
) -> dict:
    """Write everything about a run that depends only on its names; returns the metrics.
    predictions: of the test images, as columns; trained_counts: combination of classes -> training
    images; measured_facts: further entries of the metrics."""
    predicted = predictions.pop("prediction").to_numpy()
    facts = run.names | {
        key: test.metadata[key] for key in ("roles", "scene", "sources", "comparable")
    }
    facts["trained"] = trained_counts
    placed = [name for name in ("group", "environment") if name in test.table.column_names]
    table = test.table.select([*placed, *test.factors])
    table = table.append_column("prediction", pa.array(predicted, pa.string()))
    for name in predictions:
        table = table.append_column(name, pa.array(predictions[name]))
    metrics = {
        **facts,
        "target": run.target,
        "cue": "-".join(run.cues) or None,
        "groups": group_metrics(table, run.target, predicted),
        "selected_epoch": fitted.selected_epoch,
        "epochs": len(fitted.history),
        "val_loss": fitted.val_loss,
        **measured_facts,
    }
    write_table(out / "predictions.parquet", table, facts)
    write_text(out / "history.jsonl", "".join(json.dumps(row) + "\n" for row in fitted.history))
    write_json(out / "metrics.json", metrics)
    return metrics


def write_weights(method: Method, configured: bool, out: Path) -> None:
    """Write a method's weights, as a state dict; or remove those of an earlier training."""
    if configured:
        weights = {name: value.cpu().clone() for name, value in method.state_dict().items()}
        save_tensors(out / WEIGHTS_FILE, weights)
    else:
        (out / WEIGHTS_FILE).unlink(missing_ok=True)


def write_record(job: Job, provenance: dict, measured_facts: dict, out: Path) -> None:
    """Write run.json, the last file of a run."""
    write_json(
        out / RUN_RECORD,
        {
            **provenance,
            "seed": job.protocol.seed,
            **job.conditions(),
            "git": git_state(),
            "date": date.today().isoformat(),
            **slot_record(),
            "files": file_digests(out),
            **measured_facts,
        },
    )
