"""Entries of the leaderboard as other collections of results take them."""

import hashlib
import json
import re
import uuid
from calendar import timegm
from collections.abc import Callable
from pathlib import Path
from time import strptime

from diagvib import __version__
from diagvib.commands.submit import Entry, Number, write_entry
from diagvib.foundation.files import write_json, write_yaml
from diagvib.results.metric_sets.registry import METRIC_SETS

# https://github.com/evaleval/every_eval_ever, every_eval_ever/schemas/eval.schema.json
_VERSION = "0.3.0"


def write_every_eval_ever(entry: Entry, out: Path) -> Path:
    """Write a record of Every Eval Ever, data/diagvib/{by}/{baseline}/{uuid}.json below `out`; the
    same entry gives the same file. The schema's names of models have the form developer/model.
    Metrics without bounds, which it needs, are left out."""
    by = re.sub(r"[^\w.-]+", "-", entry.by).strip("-.")
    timestamp = str(timegm(strptime(entry.date, "%Y-%m-%d")))
    description = {
        key: getattr(entry, key) for key in ("model", "method", "supervision", "selection")
    }
    description |= {"settings": json.dumps(entry.settings, sort_keys=True), "link": entry.link}
    record = {
        "schema_version": _VERSION,
        "evaluation_id": f"diagvib_{entry.study}/{by}/{entry.baseline}/{timestamp}",
        "retrieved_timestamp": timestamp,
        "source_metadata": {
            "source_name": "diagvib leaderboard",
            "source_type": "evaluation_run",
            "source_organization_name": entry.by,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "diagvib", "version": __version__},
        "model_info": {
            "name": entry.baseline,
            "id": f"{by}/{entry.baseline}",
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
                **description,
            },
        },
        "evaluation_results": [
            _result(entry, metric) for metric in entry.metrics if not _among("unbounded", metric)
        ],
    }
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).digest()
    name = uuid.UUID(bytes=digest[:16], version=4)  # the only kind of name that is accepted
    path = out / "data" / "diagvib" / by / entry.baseline / f"{name}.json"
    write_json(path, record)
    return path


def _among(key: str, number: Number) -> bool:
    """Whether a metric is in this list of some set of metrics."""
    return any(number.metric in getattr(metric_set, key) for metric_set in METRIC_SETS.values())


def _result(entry: Entry, number: Number) -> dict:
    change = _among("differences", number) or _among("bounds", number)
    uncertainty: dict = {"num_samples": number.n}
    if number.low is not None:
        ends = {"lower": number.low, "upper": number.high, "confidence_level": 0.95}
        method = (
            "Student's t over dataset samples or seeds; for accuracies near 0 and 1, extended to what runs unlike "
            "those drawn may change"
        )
        uncertainty["confidence_interval"] = {**ends, "method": method}
    return {
        "evaluation_name": f"diagvib_{entry.study}",
        "source_data": {
            "dataset_name": f"diagvib {entry.study} {number.binding}".strip(),
            "source_type": "other",
            "additional_details": {"sources": ", ".join(entry.sources)},
        },
        "metric_config": {
            "metric_id": f"diagvib.{number.metric}",
            "metric_name": number.metric,
            "lower_is_better": _among("lower_is_better", number),
            "score_type": "continuous",
            "metric_unit": "proportion",
            "min_score": -1 if change else 0,
            "max_score": 1,
        },
        "score_details": {"score": number.mean, "uncertainty": uncertainty},
    }


def write_model_index(entry: Entry, out: Path) -> Path:
    """Write {out}/{study}/{baseline}.yaml: `model-index`, for the head of a model card on the Hugging
    Face Hub."""
    results = [
        {
            "task": {"type": "image-classification"},
            "dataset": {
                "name": f"diagvib {entry.study} {number.binding}".strip(),
                "type": f"diagvib-{entry.study}",
                "split": "test",
            },
            "metrics": [{"type": number.metric, "value": number.mean}],
            **({"source": {"name": entry.by, "url": entry.link}} if entry.link else {}),
        }
        for number in entry.metrics
    ]
    path = out / entry.study / f"{entry.baseline}.yaml"
    write_yaml(path, {"model-index": [{"name": entry.baseline, "results": results}]})
    return path


FORMATS: dict[str, Callable[[Entry, Path], Path]] = {
    "leaderboard": write_entry,
    "every-eval-ever": write_every_eval_ever,
    "model-index": write_model_index,
}
