"""Generate a dvc.yaml for a root of results other than the current folder.

Three files in the root, all for git: config.yaml, the configuration that made what is there,
complete; dvc.yaml, whose one stage calls `snakemake` with it; and .gitignore, which leaves
everything else to DVC.
"""

import json
import os
from itertools import product
from pathlib import Path
from shlex import quote

import yaml

from diagvib.foundation.files import read_yaml, write_text
from diagvib.provenance.code import stage_code
from diagvib.settings.baselines import load_settings
from diagvib.settings.configuration import BaselineChoice, Configuration, ResolvedBaseline
from diagvib.settings.grid import Layout
from diagvib.workflow.dvc import outs_of, stages_of
from diagvib.workflow.records import PROVENANCE


def config_of(root: str) -> Path:
    """The configuration that a root is recorded with."""
    return Path("config/config.yaml" if root == "." else f"{root}/config.yaml")


def configuration_text(config: Configuration) -> str:
    """A resolved configuration as YAML that resolves to it, without the folder in which this
    machine keeps its sources."""
    baselines = [_chosen(entry, config) for entry in config.baselines]
    return _yaml({**config.model_dump(mode="json"), "mirror": None, "baselines": baselines})


def _chosen(entry: ResolvedBaseline, config: Configuration) -> dict:
    """A baseline as a configuration names it; its other settings are in config/baselines."""
    known = {**entry.settings, **dict(entry)}
    usual = load_settings(entry.name, config.baselines_from)
    return {
        key: known[key]
        for key in BaselineChoice.model_fields
        if known.get(key) not in (None, getattr(config, key, None), usual.get(key))
    }


def write_root_stages(root: str, config: Configuration) -> None:
    """config: resolved, of this root. Its stage depends on the code and definitions that the stages
    of the current folder's dvc.yaml depend on, and on the user's own below the current folder."""
    made = read_yaml(stages_of("."))
    used = {str(config_of(root)), *config.studies_from, *config.baselines_from}
    for known in made["stages"].values():
        files = (file for entry in known.get("params", []) for file in entry)
        used |= {path for path in known["deps"] if path.startswith(("config/", "rules/", "src/"))}
        used |= {file for file in files if file != str(config_of("."))}
    pairs = ((study, one.name) for study in config.studies for one in config.baselines)
    codes = [stage_code(config, "train", study=study, baseline=name) for study, name in pairs]
    for study, name in product(config.studies, config.networks.values()):
        codes.append(stage_code(config, "encode", study=study, baseline=name))
    files = {path for code in [*codes, stage_code(config, "plot")] for path in code.files.values()}
    below = {os.path.relpath(path) for path in files if path.absolute().is_relative_to(Path.cwd())}
    used |= {path for path in below if not path.startswith(("src/", "config/", ".venv/"))}
    used.add("config/baselines")
    outs = [*outs_of("."), Layout(".").metrics]
    stage = {
        "wdir": os.path.relpath(".", root),
        "cmd": f"snakemake --cores all --configfile {quote(str(config_of(root)))}",
        "deps": sorted(used),
        "outs": [{f"{root}/{path}": {"persist": True}} for path in outs],
    }
    about = "# The configuration that made what is in this folder; written by the workflow.\n"
    write_text(config_of(root), about + configuration_text(config))
    about = "# What DVC records of this folder; written by the workflow (docs/data.md).\n"
    write_text(stages_of(root), about + _yaml({"stages": {"all": stage}, "plots": made["plots"]}))
    write_text(Path(root) / ".gitignore", f"/data/\n/results/\n/logs/\n/{PROVENANCE}\n")


def _yaml(value: object) -> str:
    # Through JSON, so that a list that is in two places is written twice, not as a YAML alias.
    return yaml.safe_dump(
        json.loads(json.dumps(value)),
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=120,
    )
