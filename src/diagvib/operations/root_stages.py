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
from diagvib.operations.records import PROVENANCE
from diagvib.settings.baselines import load_settings
from diagvib.settings.configuration import Configuration, ResolvedBaseline


def config_of(root: str) -> Path:
    return Path(root) / "config.yaml"


def configuration_text(config: Configuration) -> str:
    """A resolved configuration as YAML that resolves to it, without the folder in which this
    machine keeps its sources."""
    baselines = [_chosen(entry, config) for entry in config.baselines]
    return _yaml({**config.model_dump(mode="json"), "mirror": None, "baselines": baselines})


def _chosen(entry: ResolvedBaseline, config: Configuration) -> dict:
    """A baseline as a configuration names it; its settings are in config/baselines."""
    chosen = {"name": entry.name}
    for key in ("studies", "bindings"):
        if getattr(entry, key) != getattr(config, key):
            chosen[key] = getattr(entry, key)
    known = load_settings(entry.name, config.baselines_from)
    for key in ("max_epochs", "batch_size"):
        if entry.settings.get(key) != known.get(key):
            chosen[key] = entry.settings[key]
    return chosen


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
        + _yaml({"stages": stages, "plots": made["plots"]}),
    )
    write_text(Path(root) / ".gitignore", f"/data/\n/results/\n/logs/\n/{PROVENANCE}\n")


def _of_root(stage: dict, root: str, config: Configuration) -> dict:
    """A stage of dvc.yaml for a root: run from the same folder, on the root's files."""
    text, inside = json.dumps(stage), json.dumps(f"{root}/").rstrip('"')
    for ours, of_root in (
        ('"data/', f"{inside}data/"),
        ('"results/', f"{inside}results/"),
        ('".snakemake/metadata"', f'{inside}{PROVENANCE}"'),
        ('"config/config.yaml"', f'{inside}config.yaml"'),
    ):
        text = text.replace(ours, of_root)
    own = json.loads(text)
    command, _, targets = own["cmd"].partition(" all")
    command += f" all --configfile {quote(str(config_of(root)))}"
    own["cmd"] = f"{command} --{targets}" if targets else command
    own["deps"] += [*config.studies_from, *config.baselines_from]
    own["outs"] += own.pop("metrics", [])
    own["outs"] = [{path: {"persist": True}} for out in own["outs"] for path in out]
    return {"wdir": os.path.relpath(".", root), **own}


def _yaml(value: object) -> str:
    # Through JSON, so that a list that is in two places is written twice, not as a YAML alias.
    return yaml.safe_dump(
        json.loads(json.dumps(value)),
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=120,
    )
