"""Entries of the leaderboard as other collections of results take them."""

import hashlib
import json
import re
import uuid
from calendar import timegm
from collections.abc import Callable
from pathlib import Path
from time import strptime

import yaml

from diagvib import __version__
from diagvib.foundation.files import write_json, write_text
from diagvib.results.metric_sets import METRIC_SETS
from diagvib.sharing.submit import Entry, Number, write_entry

# https://github.com/evaleval/every_eval_ever, every_eval_ever/schemas/eval.schema.json
_VERSION = "0.3.0"


def write_every_eval_ever(entry: Entry, out: Path) -> Path:
    """Write a record of Every Eval Ever, data/diagvib/{by}/{baseline}/{uuid}.json below `out`; the
    same entry gives the same file. The schema's names of models have the form developer/model.
    Metrics without bounds, which it needs, are left out."""
    by = re.sub(r"[^\w.-]+", "-", entry.by).strip("-.")
    made = str(timegm(strptime(entry.date, "%Y-%m-%d")))
    told = {key: getattr(entry, key) for key in ("model", "method", "supervision", "selection")}
    told |= {"settings": json.dumps(entry.settings, sort_keys=True), "link": entry.link}
    record = {
        "schema_version": _VERSION,
        "evaluation_id": f"diagvib_{entry.study}/{by}/{entry.baseline}/{made}",
        "retrieved_timestamp": made,
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
                **told,
            },
        },
        "evaluation_results": [
            _result(entry, one) for one in entry.metrics if not _among("unbounded", one)
        ],
    }
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).digest()
    name = uuid.UUID(bytes=digest[:16], version=4)  # the only kind of name that is accepted
    path = out / "data" / "diagvib" / by / entry.baseline / f"{name}.json"
    write_json(path, record)
    return path


def _among(key: str, one: Number) -> bool:
    """Whether a metric is in this list of some set of metrics."""
    return any(one.metric in getattr(metric_set, key) for metric_set in METRIC_SETS.values())


def _result(entry: Entry, one: Number) -> dict:
    change = _among("differences", one) or _among("others", one)
    uncertainty: dict = {"num_samples": one.n}
    if one.low is not None:
        ends = {"lower": one.low, "upper": one.high, "confidence_level": 0.95}
        method = (
            "Student's t over dataset samples or seeds; for accuracies near 0 and 1, extended to what runs unlike "
            "those drawn may change"
        )
        uncertainty["confidence_interval"] = {**ends, "method": method}
    return {
        "evaluation_name": f"diagvib_{entry.study}",
        "source_data": {
            "dataset_name": f"diagvib {entry.study} {one.binding}".strip(),
            "source_type": "other",
            "additional_details": {"sources": ", ".join(entry.sources)},
        },
        "metric_config": {
            "metric_id": f"diagvib.{one.metric}",
            "metric_name": one.metric,
            "lower_is_better": _among("lower_is_better", one),
            "score_type": "continuous",
            "metric_unit": "proportion",
            "min_score": -1 if change else 0,
            "max_score": 1,
        },
        "score_details": {"score": one.mean, "uncertainty": uncertainty},
    }


def write_model_index(entry: Entry, out: Path) -> Path:
    """Write {out}/{study}/{baseline}.yaml: `model-index`, for the head of a model card on the Hugging
    Face Hub."""
    results = [
        {
            "task": {"type": "image-classification"},
            "dataset": {
                "name": f"diagvib {entry.study} {one.binding}".strip(),
                "type": f"diagvib-{entry.study}",
                "split": "test",
            },
            "metrics": [{"type": one.metric, "value": one.mean}],
            **({"source": {"name": entry.by, "url": entry.link}} if entry.link else {}),
        }
        for one in entry.metrics
    ]
    path = out / entry.study / f"{entry.baseline}.yaml"
    content = {"model-index": [{"name": entry.baseline, "results": results}]}
    write_text(path, yaml.safe_dump(content, sort_keys=False))
    return path


FORMATS: dict[str, Callable[[Entry, Path], Path]] = {
    "leaderboard": write_entry,
    "every-eval-ever": write_every_eval_ever,
    "model-index": write_model_index,
}
