"""Generate a dvc.yaml for a root of results other than the current folder.

Three files in the root, all for git: config.yaml, the configuration that made what is there,
complete; dvc.yaml, whose one stage calls `snakemake` with it; and .gitignore, which leaves
everything else to DVC.
"""

import json
import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from shlex import quote

import yaml

from diagvib.foundation.files import read_yaml, write_text
from diagvib.provenance.code import stage_code
from diagvib.scenes import PUBLISHED_TEXTURES
from diagvib.settings.baselines import load_settings
from diagvib.settings.keys import BaselineChoice, Configuration, ResolvedBaseline
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import PROVENANCE, PUBLISHED, is_published
from diagvib.workflow.dvc import outs_of, stages_of

# Made anew, the same, from sources and definitions: a published root is without them. Embedded
# sources are small when prepared, and have textures whose bytes could depend on the processor.
_DRAWN = {"data/raw", "data/recipes", "data/images"}


def config_of(root: str) -> Path:
    """The configuration that a root is recorded with."""
    return Path("config/config.yaml" if root == "." else f"{root}/config.yaml")


def configuration_text(config: Configuration) -> str:
    """A resolved configuration as YAML that resolves to it, without the folder in which this
    machine keeps its sources."""
    baselines = [_chosen(entry, config) for entry in config.baselines]
    # Also the keys of dvc.yaml that are left out at their defaults.
    values = config.model_dump(mode="json")
    values |= {"textures": config.textures, "seeds": config.seeds, "mine": config.mine}
    return _yaml({**values, "mirror": None, "baselines": baselines})


def _chosen(entry: ResolvedBaseline, config: Configuration) -> dict:
    """A baseline as a configuration names it; its other settings are in config/baselines."""
    settings = {**dict(entry), "settings": None, **entry.settings}
    defaults = load_settings(entry.name, config.baselines_from)
    return {
        key: settings[key]
        for key in BaselineChoice.model_fields
        if settings.get(key) not in (None, getattr(config, key, None), defaults.get(key))
    }


def in_repository() -> bool:
    """Whether the current folder is a copy of the repository; otherwise the package has its files."""
    return Path("rules/common.smk").exists()


def write_root_stages(root: str, config: Configuration) -> None:
    """config: resolved, of this root. Its stage depends on the code and definitions that the stages
    of the repository's dvc.yaml depend on, if the current folder has them, and on the user's own below
    the current folder."""
    main_file = read_yaml(stages_of("."))
    dependencies = {*config.studies_from, *config.baselines_from}
    dependencies |= {*config.textures} - {*PUBLISHED_TEXTURES}
    if in_repository():
        dependencies |= _main_dependencies(main_file["stages"].values())
    files = code_files(config)
    dependencies |= {path for path in files if not path.startswith(("src/", "config/"))}
    command = "snakemake --cores all --configfile" if in_repository() else "diagvib run"
    stage = {
        "wdir": os.path.relpath(".", root),
        "cmd": f"{command} {quote(str(config_of(root)))}",
        "deps": sorted(dependencies),
        "params": [{str(config_of(root)): None}],  # all of its keys
        **_outs(root, config.sources),
    }
    if stages_of(root).exists():
        stage = _with_options(stage, read_yaml(stages_of(root))["stages"].get("all", {}))
    comment = "# The configuration that made what is in this folder; written by the workflow.\n"
    write_text(config_of(root), comment + configuration_text(config))
    comment = (
        "# What DVC records of this folder; written by the workflow (docs/data.md), which keeps `frozen`\n"
        "# and options of outs, such as `push: false`.\n"
    )
    # The curves of a route only where the root has its studies.
    plots = [
        plot
        for plot in main_file["plots"]
        if Path(root, plot if isinstance(plot, str) else next(iter(plot))).exists()
    ]
    content = {"stages": {"all": stage}, **({"plots": plots} if plots else {})}
    write_text(stages_of(root), comment + _yaml(content))


def _with_options(stage: dict, predecessor: dict) -> dict:
    """A stage with the options that a user gave its predecessor: `frozen`; and of outs, such as
    `push: false`."""
    options = {
        path: flags
        for out in [*predecessor.get("outs", []), *predecessor.get("metrics", [])]
        if isinstance(out, dict)
        for path, flags in out.items()
    }
    for kind in ("outs", "metrics"):
        stage[kind] = [
            {path: options.get(path, {}) | defaults for path, defaults in out.items()}
            for out in stage[kind]
        ]
    return stage | {
        key: predecessor[key] for key in ("frozen", "desc", "meta") if key in predecessor
    }


def code_files(config: Configuration) -> set[str]:
    """The files below the current folder with the code of a configuration's runs and figures, as
    relative paths; without those of installed packages."""
    baselines = {
        "train": [baseline.name for baseline in config.baselines],
        "encode": config.networks.values(),
    }
    codes = [stage_code(config, "plot")]
    for stage, names in baselines.items():
        for study, name in product(config.studies, names):
            codes.append(stage_code(config, stage, study=study, baseline=name))
    files = {path for code in codes for path in code.files.values()}
    below = {os.path.relpath(path) for path in files if path.absolute().is_relative_to(Path.cwd())}
    return {path for path in below if not {*Path(path).parts} & {".venv", "site-packages"}}


def _main_dependencies(main_stages: Iterable[dict]) -> set[str]:
    """The code and definitions that stages of the repository's dvc.yaml depend on."""
    files = {
        file for stage in main_stages for entry in stage.get("params", []) for file in entry
    } - {str(config_of("."))}
    paths = {path for stage in main_stages for path in stage["deps"]}
    folders = ("config/", "rules/", "src/")
    return {"config/baselines", *files, *(path for path in paths if path.startswith(folders))}


def _outs(root: str, sources: str) -> dict[str, list[dict]]:
    """What DVC keeps of a root. Of a published one, its metrics are in git, and what can be drawn
    again is nowhere."""
    outs, metrics = outs_of("."), str(Layout(root).metrics)
    if not is_published(root):
        entries = [{f"{root}/{path}": {"persist": True}} for path in outs]
        return {"outs": entries, "metrics": [{metrics: {"persist": True}}]}
    drawn = _DRAWN if sources == "embedded" else _DRAWN | {"data/prepared"}
    stored = [path for path in outs if str(path) not in drawn]
    return {
        "outs": [{f"{root}/{path}": {"persist": True, "remote": PUBLISHED}} for path in stored],
        "metrics": [{metrics: {"cache": False, "persist": True}}],
    }


def write_ignored(root: str) -> None:
    """Have git ignore all but the root's three files and dvc.lock, and a published root's
    metrics."""
    results = "/results/*\n!/results/metrics/" if is_published(root) else "/results/"
    write_text(Path(root) / ".gitignore", f"/data/\n{results}\n/logs/\n/{PROVENANCE}\n")


def _yaml(value: object) -> str:
    # Through JSON, so that a list that is in two places is written twice, not as a YAML alias.
    return yaml.safe_dump(
        json.loads(json.dumps(value)),
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=120,
    )
