"""The configuration: read, validated, resolved; and the part of it that each stage depends on."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import create_model

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import definition_path, parse_yaml, read_yaml
from diagvib.foundation.validation import Strict, validated
from diagvib.scenes import load_scene
from diagvib.settings.baselines import (
    EncoderSettings,
    baseline_names,
    encoder_settings,
    load_settings,
    read_baseline,
)
from diagvib.settings.configuration import BaselineChoice, Configuration, Root
from diagvib.settings.grid import (
    check_method,
    dataset_count,
    folder_name,
    networks,
    own_names,
    study_bindings,
    study_of,
)
from diagvib.settings.tuning import check_tuning, of_baseline, searched_studies
from diagvib.studies.binding import bind, read_binding
from diagvib.studies.dataset_sample import DatasetSample, dataset_sample
from diagvib.studies.rows import SPLITS
from diagvib.studies.scarcity import check_counts
from diagvib.studies.study import Study, load_studies

# The part of the configuration that each stage may know. A job gets this and no more, and is rerun
# when it changes.
_TABLE_KEYS = (
    "sources",
    "studies",
    "studies_from",
    "bindings",
    "samples",
    "counts",
    "image_size",
    "images",
    "baselines",
    "training",
)
STAGE_KEYS = {
    "fetch": ("sources",),
    "prepare": ("sources",),
    "draw": ("samples", "counts"),
    "render": ("samples", "image_size"),
    "encode": ("samples", "images", "image_size"),
    "train": ("samples", "images", "image_size", "training"),
    "tune": ("images", "image_size", "training", "tuning"),
    "tabulate": _TABLE_KEYS,
    "plot": _TABLE_KEYS,
}
# What a stage gets in addition.
_FURTHER = {
    "draw": {"study", "dataset_samples"},
    "render": {"scene"},
    "encode": {"scene", "encoder"},
    "train": {"scene", "baseline"},
    "tune": {"scene", "baseline"},
}

_SCALAR = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?|null|true|false")


def default_path() -> Path:
    return definition_path("config.yaml")


def load_config(path: str | Path | None = None, overrides: list[str] | None = None) -> dict:
    """A configuration file (default: the paper's, `config/config.yaml`) with `key=value` overrides,
    resolved.

    A dot in a key reaches inside: `training.max_epochs=3`. A mapping is merged with the file's, as
    by Snakemake's `--config`. DiagvibError naming the file, or --set, and the key for anything
    unknown.
    """
    path = Path(path) if path else default_path()
    given = config = _mapping(read_yaml(path), path)
    if not overrides:
        return resolve(given, str(path))
    for override in overrides:
        config = _merged(_override(override), config)
    try:
        return resolve(config, one_line(" ".join(f"--set {each}" for each in overrides), 120))
    except DiagvibError:
        resolve(given, str(path))  # the file's own mistakes are named first
        raise


def _mapping(value: object, path: str | Path) -> dict:
    if not isinstance(value, dict):
        raise DiagvibError(f"{path}: must be a mapping of keys to values")
    return value


def _override(override: str) -> dict:
    key, equals, text = override.partition("=")
    if not equals:
        raise DiagvibError(f"--set {override}: write it as key=value, e.g. --set samples=1")
    value = parse_yaml(text, f"--set {one_line(override, 120)}")
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return value


def typed(value):
    """A configuration from Snakemake's `--config`, which passes numbers inside brackets and braces
    as text."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (
        parse_yaml(value, value) if isinstance(value, str) and _SCALAR.fullmatch(value) else value
    )


def resolve(config: dict, where: str) -> dict:
    """Validate, fill in defaults from config/config.yaml, expand `all`, and check every name.

    where: the file named in messages. DiagvibError for the first problem found.
    """
    checked = validated(Configuration, _merged(config, read_yaml(default_path())), where)
    config = checked.model_dump()
    config["root"] = check_root(config["root"], where)
    studies = load_studies(config["studies_from"])
    config["studies"] = own_names(config["studies"], config, f"{where}: studies")
    (config["tuning"]["study"],) = own_names(
        [config["tuning"]["study"]], config, f"{where}: tuning.study"
    )
    _check_scenes(
        [studies[name] for name in (*config["studies"], config["tuning"]["study"])], where
    )
    dataset_count(config, where)
    _check_counts(config, studies, where)
    _check_bindings(config, config["bindings"], config["studies"], f"{where}: bindings")
    config["baselines"] = [_baseline_entry(b, config, where) for b in checked.baselines]
    check_tuning(config, f"{where}: tuning")
    return config


def _merged(given: object, below: object) -> object:
    """A value, with those from below for the keys that it lacks, also in nested sections."""
    if not isinstance(given, dict) or not isinstance(below, dict):
        return given
    return {**below, **{key: _merged(value, below.get(key)) for key, value in given.items()}}


def check_root(root: str | Path, where: str) -> str:
    """A root as records name it: `a` for `./a/`. DiagvibError naming `where` unless it is, or can
    be, a folder."""
    validated(Root, str(root), f"{where}: root")
    try:
        standing = next(
            p for p in (Path(root), *Path(root).absolute().parents) if p.exists() or p.is_symlink()
        )
    except OSError as error:
        raise DiagvibError(
            f"{where}: root: {root}: {error.strerror}; name a folder for data/ and results/"
        ) from None
    if not standing.is_dir():
        raise DiagvibError(
            f"{where}: root: {standing} is a file or broken link; name a folder for data/ and results/"
        )
    return str(Path(root))


def _check_names(kind: str, names: Sequence[str], known: Sequence[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known, where)


def _check_scenes(studies: Sequence[Study], where: str) -> None:
    """Every scene can be used, and has a folder of its own."""
    folders: dict[str, Study] = {}
    for study in studies:
        try:
            load_scene(study.scene)
        except DiagvibError as error:
            raise DiagvibError(f"{where}: study {study.name}: {error}") from None
        first = folders.setdefault(folder_name(study.scene).casefold(), study)
        if first.scene != study.scene:
            raise DiagvibError(
                f"{where}: studies {first.name} and {study.name}: their scenes {first.scene} and "
                f"{study.scene} would share the folder {folder_name(study.scene)}; rename one class"
            )


def _check_counts(config: dict, studies: dict[str, Study], where: str) -> None:
    """Every study has a number of test images for each of its groups, or a total for all of them,
    `test`."""
    counts, together = config["counts"], []
    groups = list(dict.fromkeys(group for study in studies.values() for group in study.groups))
    _check_names(
        "key",
        [f"counts.{key}" for key in counts],
        [f"counts.{key}" for key in (*SPLITS, *groups)],
        where,
    )
    for name in dict.fromkeys([*config["studies"], *searched_studies(config)]):
        absent = [group for group in studies[name].groups if group not in counts]
        named = [group for group in studies[name].groups if group in counts]
        if absent and "test" not in counts:
            raise DiagvibError(
                f"{where}: counts: the group {absent[0]} of study {name} has no number of images; add "
                f"counts.{absent[0]}"
                + ("" if named else ", or counts.test, one number for all groups")
            )
        if absent and named:
            raise DiagvibError(
                f"{where}: counts: both counts.{named[0]} and counts.test are given for study {name}; "
                "give a number for each of its groups, or counts.test for all of them"
            )
        together += [name] if absent else []
        try:
            check_counts(studies[name], counts)
        except DiagvibError as error:
            raise DiagvibError(f"{where}: {error}") from None
    if "test" in counts and not together:
        raise DiagvibError(
            f"{where}: counts.test: every group of the studies already has its own number, such as "
            f"counts.{studies[config['studies'][0]].groups[0]}; leave out one of the two"
        )


def _check_bindings(
    config: dict, names: list[str] | str, studies: Sequence[str], where: str
) -> None:
    """Each name is a binding of one of the studies that have cues, and each study has at least one
    of the bindings."""
    found = [study_of(config, study) for study in studies]
    judges = [study for study in found if study.cues] or found
    for name in names if names != "all" else []:
        problems = [problem for study in judges if (problem := _binding_problem(study, name))]
        if len(problems) == len(judges):
            raise DiagvibError(f"{where}: {problems[0]}")
    for study in found:
        try:
            served = study_bindings(config, study.name, names)
        except DiagvibError as error:
            raise DiagvibError(f"{where}: {error}") from None
        if not served:
            raise DiagvibError(
                f"{where}: none of them fits study {study.name}, which binds {', '.join(study.bound)} "
                f"to factors of the scene {study.scene}; add one"
            )


def _binding_problem(study: Study, name: str) -> str | None:
    """Why a name is not a binding of a study; None if it is. A study without cues takes any for its
    target."""
    factors = load_scene(study.scene).factors
    try:
        if not read_binding(name, factors).cues:
            return (
                f"'{name}' names no cue factor; write e.g. {name}-{next(f for f in factors if f != name)} (studies "
                "without cues use only the target factor)"
            )
        if study.cues:
            bind(study, name, factors)
    except DiagvibError as error:
        return str(error)
    return None


def _baseline_entry(entry: str | BaselineChoice, config: dict, where: str) -> dict:
    """One baseline of the configuration in full: name, studies, bindings, settings."""
    entry = BaselineChoice(name=entry) if isinstance(entry, str) else entry
    where = f"{where}: baselines"
    _check_names("baseline", [entry.name], baseline_names(config["baselines_from"]), where)
    own = entry.studies and own_names(entry.studies, config, f"{where}: {entry.name}: studies")
    studies, bindings = own or config["studies"], entry.bindings or config["bindings"]
    for key, chosen in (("studies", own), ("bindings", entry.bindings)):
        absent = sorted(set(chosen or []) - set(config[key])) if config[key] != "all" else []
        if absent:
            raise DiagvibError(
                f"{where}: {entry.name}: {key}: {absent[0]} is not among the configuration's {key}"
            )
    _check_bindings(config, entry.bindings or "all", studies, f"{where}: {entry.name}: bindings")
    settings = load_settings(entry.name, config["baselines_from"])
    check_method(settings["method"], config, studies, f"{where}: {entry.name}")
    _check_patience(settings, config, f"{where}: {entry.name}")
    if entry.max_epochs is not None:
        settings["max_epochs"] = entry.max_epochs
    return {"name": entry.name, "studies": studies, "bindings": bindings, "settings": settings}


def _check_patience(settings: dict, config: dict, where: str) -> None:
    patience = config["training"]["patience"]
    if patience is not None and settings.get("selection") == "last":
        raise DiagvibError(
            f"{where}: training.patience: {patience} never stops a training with selection: last, which "
            "keeps the last epoch whatever it is; set training.patience: null, or leave this baseline "
            "out"
        )


def stage_settings(
    config: dict, stage: str, study: str | None = None, baseline: str | None = None
) -> dict:
    """The part of a resolved configuration that one job depends on, as plain data: its
    `--settings`.

    draw adds the study's definition and the dataset samples; render, encode and train add the
    scene; encode the frozen network of a baseline; train and tune the baseline's settings. tune
    takes any defined baseline, train those of the configuration.
    """
    settings = {key: config[key] for key in STAGE_KEYS[stage]}
    if stage in ("draw", "render", "encode"):
        settings["samples"] = dataset_count(config)
    if stage == "tune":
        study = config["tuning"]["study"]
    definition = study_of(config, study) if study is not None else None
    if stage == "draw":
        # Texts for readers do not affect results.
        settings["study"] = definition.model_dump(
            exclude={"name", "title", "meaning", "opportunity"}
        )
        settings["dataset_samples"] = _dataset_samples(definition, settings.pop("samples"))
    if "scene" in _FURTHER.get(stage, ()):
        settings["scene"] = definition.scene
    if stage == "encode":
        found = _baseline_settings(config, stage, baseline)
        settings["encoder"] = encoder_settings(found)
        if settings["encoder"] is None:
            raise DiagvibError(f"{baseline}: its network is not frozen, so it needs no features")
    if stage in ("train", "tune"):
        settings["baseline"] = _baseline_settings(config, stage, baseline)
    if stage == "tune":
        settings["tuning"] = of_baseline(config["tuning"], settings["baseline"]["method"]["name"])
    # In the form in which a job gets it, so that a command run by hand makes the same bytes.
    return json.loads(json.dumps(settings, sort_keys=True))


def _dataset_samples(study: Study, count: int) -> list[dict]:
    scene = load_scene(study.scene)
    samples = (
        dataset_sample(number, scene.factors, scene.published_samples) for number in range(count)
    )
    return [sample.model_dump(mode="json") for sample in samples]


def _baseline_settings(config: dict, stage: str, baseline: str) -> dict:
    known = {entry["name"]: entry["settings"] for entry in config["baselines"]}
    if stage == "encode":
        baseline = networks(config).get(baseline, baseline)
    if (
        stage == "train"
        and baseline not in known
        and baseline in baseline_names(config["baselines_from"])
    ):
        raise DiagvibError(
            f"{baseline} is not among the configuration's baselines, {', '.join(known)}; add it there, "
            f"or with --set 'baselines=[{baseline}]'"
        )
    if stage == "tune" and baseline not in known:
        known[baseline] = load_settings(baseline, config["baselines_from"])
        _check_patience(known[baseline], config, f"baseline {baseline}")
    _check_names("baseline", [baseline], known, "the configuration's baselines")
    # The origin of the values is for readers; rewording it does not affect results.
    return {key: value for key, value in known[baseline].items() if key != "origin"}


def read_settings(text: str, stage: str) -> dict:
    """One job's settings from JSON, as `stage_settings` gives them. DiagvibError naming the wrong
    key."""
    where = "--settings"
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DiagvibError(f"{where}: not valid JSON: {one_line(error)}") from None
    own = set(STAGE_KEYS[stage]) - ({"samples"} if stage == "draw" else set())
    further = _FURTHER.get(stage, set())
    if not isinstance(settings, dict) or own | further != settings.keys():
        raise DiagvibError(
            f"{where}: must be a JSON object with the keys {', '.join(sorted(own | further))}"
        )
    fields = {
        key: (Configuration.model_fields[key].annotation, Configuration.model_fields[key])
        for key in own - {"baselines"}
    }
    model = create_model("Settings", __base__=Strict, **fields)
    checked = validated(model, {key: settings[key] for key in fields}, where).model_dump()
    if "dataset_samples" in settings:
        validated(list[DatasetSample], settings["dataset_samples"], f"{where}: dataset_samples")
    if "scene" in settings:
        validated(str, settings["scene"], f"{where}: scene")
    if "encoder" in settings:
        validated(EncoderSettings, settings["encoder"], f"{where}: encoder")
    if "baseline" in settings:
        checked["baseline"] = read_baseline(settings["baseline"], where)
    return json.loads(
        json.dumps({**settings, **checked}, sort_keys=True)
    )  # ordered as by `stage_settings`
