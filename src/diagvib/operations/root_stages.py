"""Generate a dvc.yaml for a root of results other than the current folder.

Three files in the root, all for git: config.yaml, the configuration that made what is there,
complete; dvc.yaml, whose stages call `snakemake` with it; and .gitignore, which leaves everything
else to DVC.
"""

import json
import os
from pathlib import Path
from shlex import quote

import yaml

from diagvib.foundation.files import read_yaml, write_text
from diagvib.operations.dvc import stages_of
from diagvib.operations.provenance import PROVENANCE
from diagvib.operations.records import RECORDS
from diagvib.settings.configuration import Configuration, ResolvedBaseline

_CONFIG = "config/config.yaml"


def config_of(root: str) -> Path:
    return Path(root) / "config.yaml"


def configuration_text(config: Configuration) -> str:
    """A resolved configuration as YAML that resolves to it, without the folder in which this
    machine keeps its sources."""
    return _yaml(
        {
            **config.model_dump(mode="json"),
            "mirror": None,
            "baselines": [_chosen(entry, config) for entry in config.baselines],
        }
    )


def _chosen(entry: ResolvedBaseline, config: Configuration) -> str | dict:
    """What a configuration says of a baseline, whose settings are in config/baselines."""
    narrowed = {
        key: getattr(entry, key)
        for key in ("studies", "bindings")
        if getattr(entry, key) != getattr(config, key)
    }
    epochs = {key: entry.settings[key] for key in ("max_epochs",) if key in entry.settings}
    return {"name": entry.name, **narrowed, **epochs} if narrowed or epochs else entry.name


def write_root_stages(root: str, config: Configuration) -> None:
    """config: resolved, of this root."""
    made = read_yaml(stages_of("."))
    stages = {name: _of_root(stage, root, config) for name, stage in made["stages"].items()}
    write_text(
        config_of(root),
        "# The configuration that made what is in this folder; written by the workflow.\n"
        + configuration_text(config),
    )
    write_text(
        stages_of(root),
        "# What DVC records of this folder; written by the workflow (docs/data.md).\n"
        + _yaml({"stages": stages, "plots": made.get("plots", [])}),
    )
    write_text(Path(root) / ".gitignore", f"/data/\n/results/\n/logs/\n/{PROVENANCE}\n")


def _of_root(stage: dict, root: str, config: Configuration) -> dict:
    """A stage of dvc.yaml for a root: run from the same folder, on the root's files."""
    command, _, targets = stage["cmd"].partition(" all")
    own = {
        "wdir": os.path.relpath(".", root),
        "cmd": f"{command} all --configfile {quote(str(config_of(root)))}"
        + (f" --{targets}" if targets else ""),
    }
    further = [*config.studies_from, *config.baselines_from]
    own["deps"] = [*(_path(path, root) for path in stage.get("deps", [])), *further]
    if "params" in stage:
        own["params"] = [
            {
                str(config_of(root)) if path == _CONFIG else path: keys
                for path, keys in entry.items()
            }
            for entry in stage["params"]
        ]
    outs = [*stage.get("outs", []), *stage.get("metrics", [])]
    own["outs"] = [{_path(next(iter(out)), root): {"persist": True}} for out in outs]
    return own


def _path(path: str, root: str) -> str:
    if path.startswith(("data/", "results/")):
        return f"{root}/{path}"
    return f"{root}/{PROVENANCE}" if path.startswith(str(RECORDS)) else path


def _yaml(value: object) -> str:
    # Through JSON, so that a list that is in two places is written twice, not as a YAML alias.
    return yaml.safe_dump(
        json.loads(json.dumps(value)),
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=120,
    )
