"""The configuration: read, validated, resolved; and the part of it that each stage depends on."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import definition_path, parse_yaml, read_yaml
from diagvib.foundation.schemas import validate
from diagvib.scenes.digits.factors import all_bindings, parse_binding
from diagvib.settings.baselines import baseline_names, load_settings
from diagvib.studies.study import check_dataset_samples, dataset_sample, study_definitions

# What each stage may know of the configuration. A job is given this and no more, and is run again when it changes.
STAGE_KEYS = {
    "fetch": ("sources",),
    "prepare": ("sources",),
    "draw": ("samples", "counts"),
    "render": ("samples", "image_size"),
    "train": ("samples", "images", "image_size", "training"),
    "tune": ("images", "image_size", "training", "tuning"),
    "tabulate": ("sources", "studies", "bindings", "samples", "counts", "image_size", "baselines", "training"),
    "plot": ("sources", "studies", "bindings", "samples", "counts", "image_size", "baselines", "training"),
}

_SCALAR = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?|null|true|false")


def load_config(path: str | Path | None = None, overrides: list[str] | None = None) -> dict:
    """A configuration file (default: the paper's, `config/config.yaml`) with `key=value` overrides, resolved.

    A dot in a key reaches inside: `training.max_epochs=3`. DiagvibError naming file and key for anything unknown.
    """
    path = Path(path) if path else definition_path("config.yaml")
    config = read_yaml(path)
    if not isinstance(config, dict):
        raise DiagvibError(f"{path}: a mapping of keys to values expected")
    for override in overrides or []:
        _override(config, override)
    return resolve(config, str(path))


def _override(config: dict, override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise DiagvibError(f"--set {override}: write it as key=value, e.g. --set samples=1")
    *parents, last = key.strip().split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
        if not isinstance(config, dict):
            raise DiagvibError(f"--set {override}: {parent} has no keys inside")
    config[last] = parse_yaml(value, f"--set {one_line(override, 120)}")


def typed(value):
    """A configuration from Snakemake's `--config`, which hands over numbers inside brackets and braces as text."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return parse_yaml(value, value) if isinstance(value, str) and _SCALAR.fullmatch(value) else value


def resolve(config: dict, where: str) -> dict:
    """Validate against the schema, fill in defaults, expand `all`, and check every name.

    where: the file named in messages. DiagvibError for the first thing that is wrong.
    """
    config = validate(config, "config", where)
    check_root(config["root"], where)
    _check_studies(config["studies"], f"{where}: studies")
    if config["bindings"] == "all":
        config["bindings"] = [binding.name for binding in all_bindings()]
    _check_bindings(config["bindings"], f"{where}: pairs")
    config["baselines"] = [_baseline_entry(b, config, where) for b in config["baselines"]]
    for number in config["tuning"]["samples"]:
        if number >= config["samples"]:
            raise DiagvibError(f"{where}: tuning.samples: {number} is not among the dataset samples that `samples: "
                               f"{config['samples']}` makes, which count from 0")
    names = [b["name"] for b in config["baselines"]]
    for name in names:
        if names.count(name) > 1:
            raise DiagvibError(f"{where}: baselines: {name} is listed {names.count(name)} times; list it once")
    return config


def check_root(root: str | Path, where: str) -> None:
    """DiagvibError naming `where` unless a root is a folder, or can become one."""
    validate({"root": str(root)}, "config", where)
    try:
        standing = next(path for path in (Path(root), *Path(root).absolute().parents) if path.exists())
    except OSError as error:
        raise DiagvibError(f"{where}: root: {root}: {error.strerror}; name a folder for data/ and results/") from None
    if not standing.is_dir():
        raise DiagvibError(f"{where}: root: {standing} is a file; name a folder for data/ and results/")


def _check_studies(names: list[str], where: str) -> None:
    for name in names:
        if name not in study_definitions():
            raise unknown_name("study", name, study_definitions(), where)


def _check_bindings(names: list[str], where: str) -> None:
    for name in names:
        try:
            binding = parse_binding(name)
        except DiagvibError as error:
            raise DiagvibError(f"{where}: {error}") from None
        if binding.cue is None:
            raise DiagvibError(f"{where}: '{name}' names no cue factor; write e.g. "
                               f"{next(p.name for p in all_pairs() if p.target == binding.target)} "
                               "(studies without correlation use the target factors of these pairs)")


def _baseline_entry(entry: str | dict, config: dict, where: str) -> dict:
    """One baseline of the configuration in full: name, studies, pairs, settings."""
    entry = {"name": entry} if isinstance(entry, str) else entry
    where = f"{where}: baselines"
    if entry["name"] not in baseline_names():
        raise unknown_name("baseline", entry["name"], baseline_names(), where)
    _check_studies(entry.get("studies", []), f"{where}: {entry['name']}: studies")
    _check_bindings(entry.get("bindings", []), f"{where}: {entry['name']}: pairs")
    for key in ("studies", "bindings"):
        absent = set(entry.get(key, [])) - set(config[key])
        if absent:
            raise DiagvibError(f"{where}: {entry['name']}: {key}: {sorted(absent)[0]} is not among the "
                               f"configuration's {key}")
    settings = load_settings(entry["name"])
    if "max_epochs" in entry:
        settings["max_epochs"] = entry["max_epochs"]
    return {"name": entry["name"], "studies": entry.get("studies", config["studies"]),
            "bindings": entry.get("bindings", config["bindings"]), "settings": settings}


def stage_settings(config: dict, stage: str, study: str | None = None, baseline: str | None = None) -> dict:
    """The part of a resolved configuration that one job depends on, as plain data: its `--settings`.

    draw adds the study's definition and the dataset samples; train and tune the baseline's settings. tune takes any
    baseline of config/baselines.yaml, train those of the configuration.
    """
    settings = {key: config[key] for key in STAGE_KEYS[stage]}
    if study is not None:
        _check_studies([study], stage)
    if stage == "draw":
        settings["study"] = study_definitions()[study]
        settings["dataset_samples"] = [asdict(dataset_sample(number)) for number in range(settings.pop("samples"))]
    if stage in ("train", "tune"):
        known = {entry["name"]: entry["settings"] for entry in config["baselines"]}
        if stage == "tune" and baseline not in known:
            known[baseline] = load_settings(baseline)
        if baseline not in known:
            raise unknown_name("baseline", baseline, known, "the configuration's baselines")
        # The origin of the values is for readers; changing its words changes no result.
        settings["baseline"] = {key: value for key, value in known[baseline].items() if key != "origin"}
    # As the workflow hands them over, so that a command by hand writes the same bytes.
    return json.loads(json.dumps(settings, sort_keys=True))


def read_settings(text: str, stage: str) -> dict:
    """One job's settings from JSON, as `stage_settings` gives them. DiagvibError naming the key that is not so."""
    where = "--settings"
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DiagvibError(f"{where}: not valid JSON: {one_line(error)}") from None
    keys = set(STAGE_KEYS[stage]) - ({"samples"} if stage == "draw" else set())
    keys |= {"draw": {"study", "dataset_samples"}, "train": {"baseline"}, "tune": {"baseline"}}.get(stage, set())
    if not isinstance(settings, dict) or keys != settings.keys():
        raise DiagvibError(f"{where}: a JSON object with the keys {', '.join(sorted(keys))} expected")
    checked = validate({key: value for key, value in settings.items() if key in STAGE_KEYS[stage]
                        and key != "baselines"}, "config", where)
    settings |= {key: checked[key] for key in settings if key in checked and key != "baselines"}
    try:
        for entry in settings.get("baselines", []):
            validate({"baselines": [{key: entry[key] for key in ("name", "studies", "bindings")}]}, "config", where)
            validate({entry["name"]: entry["settings"]}, "baselines", f"{where}: baselines")
        if "baseline" in settings:
            validate({"baseline": {**settings["baseline"], "origin": "a job's settings"}}, "baselines", where)
        if "study" in settings:
            settings["study"] = validate({"study": settings["study"]}, "studies", where)["study"]
        if "dataset_samples" in settings:
            check_dataset_samples([{**sample["classes"], "added_cue": sample["added_cue"]}
                                   for sample in settings["dataset_samples"]], where)
    except (KeyError, TypeError) as error:
        raise DiagvibError(f"{where}: not as a configuration gives them: {type(error).__name__} {error}") from None
    return settings
