"""The configuration: read, validated, resolved."""

import os
import re
from contextlib import suppress
from pathlib import Path
from shlex import quote

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name, within
from diagvib.foundation.files import definition_path, named_in, parse_yaml, read_yaml
from diagvib.foundation.validation import read_valid, validated
from diagvib.scenes import PUBLISHED_TEXTURES, check_textures, load_scene
from diagvib.settings.baseline_checks import check_baseline, check_selection
from diagvib.settings.baselines import baseline_names, load_settings
from diagvib.settings.keys import (
    BaselineChoice,
    Configuration,
    ResolvedBaseline,
    ResolvedConfiguration,
    Tuning,
)
from diagvib.settings.layout import folder_name
from diagvib.settings.ranges import check_names as check_trial_names
from diagvib.settings.ranges import read_ranges, search_space
from diagvib.studies.binding import bind, bind_its_own
from diagvib.studies.known_studies import known_studies
from diagvib.studies.rows import TARGET
from diagvib.studies.scarcity import check_counts, check_names
from diagvib.studies.study import Study, load_studies

# Keys that name files, or perhaps folders.
_FILES = ("studies_from", "baselines_from", "textures")
# The folder of published roots; Snakemake's records of a root, the last of its files to be pulled.
PUBLISHED, PROVENANCE = "published", "provenance.json"
_SCALAR = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|null|true|false", re.I)


def default_path() -> Path:
    return definition_path("config.yaml")


def load_config(
    path: str | Path | None = None, overrides: list[str] | None = None
) -> ResolvedConfiguration:
    """A configuration file (default: the paper's, `config/config.yaml`) with `key=value` overrides,
    resolved. DiagvibError naming the file, or --set, and the key for anything unknown."""
    files = [str(path)] if path else [] if overrides else [str(default_path())]
    files += [f"--set {override}" for override in overrides or ()]
    return resolve(overridden(path or default_path(), overrides), one_line(" ".join(files)))


def command_for(root: str | Path, command: str) -> str:
    """A command, for messages, with the configuration that makes a root: one that is there, in the
    current folder or in config/, with its sets of photos; of a published root that was not pulled,
    the command that pulls it."""
    if is_not_pulled(root):
        return f"`diagvib pull {quote(str(root))}`"
    option = "--configfile" if command.startswith("snakemake") else "--config"
    if Path(root).resolve() == Path.cwd():
        return f"`{command}`"
    folders = Path(root), Path("config"), Path(), *sorted(Path("config").glob("photos/*"))
    for file in (file for folder in folders for file in sorted(folder.glob("*.yaml"))):
        with suppress(DiagvibError):
            configured_root = read_valid(dict, file).get("root")
            if (
                isinstance(configured_root, str)
                and Path(configured_root).resolve() == Path(root).resolve()
            ):
                return f"`{command} {option} {quote(str(file))}`"
    return f"`{command} {option} FILE`, where FILE is the configuration with root: {root}"


def is_published(root: str | Path) -> bool:
    """Whether a root comes with the repository (`commands.published`)."""
    return str(Path(root).parent) == PUBLISHED


def is_not_pulled(root: str | Path) -> bool:
    """Whether a root is published, but not, or not wholly, here."""
    return is_published(root) and not Path(root, PROVENANCE).exists()


def overridden(path: str | Path, overrides: list[str] | None) -> dict:
    """The keys of a configuration file with `key=value` overrides.

    A dot in a key reaches inside: `training.max_epochs=3`. A mapping is merged with the file's, as
    by Snakemake's `--config`.
    """
    config = with_paths(read_valid(dict, path), Path(path))
    for override in overrides or ():
        config = _merged(_override(override), config)
    return config


def without_baseline_keys(values: dict) -> dict:
    """A configuration's keys for a baseline that is not among its own: without `mine`, and without a
    random search, whose trials and ranges may be those of its baselines."""
    values, tuning = {**values}, values.get("tuning")
    values.pop("mine", None)
    if isinstance(tuning, dict) and tuning.get("random_search"):
        grid = read_yaml(default_path())["tuning"]
        values["tuning"] = {**grid, "factors": grid["factors"][:1]}  # others may have few classes
    return values


def with_paths(config: dict, path: Path) -> dict:
    """A configuration file's keys, with the paths of the files that it names: from the current
    folder, for those below it, as in a clone elsewhere."""
    if path.absolute().is_relative_to(Path.cwd()):
        path = Path(os.path.relpath(path))
    file_lists = {key: config[key] for key in _FILES if isinstance(config.get(key), list)}
    return config | {
        key: [_named_in(path, name) if isinstance(name, str) else name for name in names]
        for key, names in file_lists.items()
    }


def _named_in(path: Path, name: str) -> str:
    return name if name in PUBLISHED_TEXTURES else named_in(path, name, Path.exists)


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


def completed(values: dict, location: str) -> Configuration:
    """The keys of a configuration, valid but not resolved, with the defaults of config/config.yaml."""
    return validated(Configuration, _merged(values, read_yaml(default_path())), location)


def resolve(values: dict, location: str) -> ResolvedConfiguration:
    """Validate, fill in defaults from config/config.yaml, expand `all`, and check every name.

    location: the file named in messages. DiagvibError for the first problem found.
    """
    config = completed(values, location)
    with within(location):
        _ = known_studies(dict(config)).contrasts  # which are computed only after all runs
        names = _real_names(config, config.studies, "studies")
        tuning = _resolved_tuning(config)
        config = config.model_copy(update={"studies": names, "tuning": tuning})
        if set(config.devices) == {"cpu"} and config.device == "auto":
            config = config.model_copy(update={"device": "cpu"})
        studies = [config.study(name) for name in config.studies]
        _check_scenes([*studies, config.study(tuning.study)])
        check_textures(config.textures, config.scenes)
        _check_seeds(config)
        _check_counts(config, studies)
        with within("bindings"):
            _check_bindings(config, config.bindings, studies)
        with within("baselines"):
            baselines = [_resolved(entry, config) for entry in config.baselines]
        names = [entry.name for entry in baselines]
        if config.mine and config.mine not in names:
            raise unknown_name("baseline", config.mine, names, "mine")
        baselines.sort(key=lambda entry: entry.name == config.mine)
        resolved = ResolvedConfiguration.model_construct(**{**dict(config), "baselines": baselines})
        _check_tuning(resolved, resolved.tuning)
    return resolved


def _resolved_tuning(config: Configuration) -> Tuning:
    """The section `tuning` with its study's real name, and with ranges instead of the name of a set."""
    tuning, search = config.tuning, config.tuning.random_search
    (study,) = _real_names(config, [tuning.study], "tuning.study")
    if search:
        names = baseline_names(config.baselines_from)
        with within("tuning.random_search.ranges"):
            ranges = read_ranges(search.ranges, names)
        search = search.model_copy(update={"ranges": ranges})
    return tuning.model_copy(update={"study": study, "random_search": search})


def _merged(values: object, below: object) -> object:
    """A value, with those from below for the keys that it lacks, also in nested sections."""
    if not isinstance(values, dict) or not isinstance(below, dict):
        return values
    return {**below, **{key: _merged(value, below.get(key)) for key, value in values.items()}}


def _real_names(config: Configuration, names: list[str], location: str) -> list[str]:
    """The names of studies that may be given by their aliases."""
    with within(location):
        real_names = [config.study(name).name for name in names]
        for name, real_name in zip(names, real_names, strict=True):
            if real_name != name and real_names.count(real_name) > 1:
                raise DiagvibError(
                    f"{name} is another name for {real_name}, so this study is listed twice; list it once"
                )
    return real_names


def _check_scenes(studies: list[Study]) -> None:
    """Every scene can be used, and has a folder of its own."""
    folders: dict[str, Study] = {}
    for study in studies:
        with within(f"study {study.name}"):
            load_scene(study.scene)
        folder = folder_name(study.scene)
        if {*folder} & {*"{}"}:
            raise DiagvibError(
                f"study {study.name}: scene: {study.scene}: rename the file; Snakemake cannot use a "
                "name with '{' or '}'"
            )
        first_study = folders.setdefault(folder.casefold(), study)
        if first_study.scene != study.scene:
            raise DiagvibError(
                f"studies {first_study.name} and {study.name}: their scenes {first_study.scene} and "
                f"{study.scene} would share the folder {folder}; rename one"
            )


def _check_seeds(config: Configuration) -> None:
    """Only datasets that are samples are trained on with several seeds each."""
    for name in config.scenes:
        if config.seeds > 1 and load_scene(name).replicates == "seeds":
            raise DiagvibError(
                f"seeds: {name} has one dataset, on which `samples` counts the seeds; set "
                f"samples: {config.runs_per_job} and leave this key out"
            )


def _check_counts(config: Configuration, studies: list[Study]) -> None:
    """Every study has a number of test images for each of its groups, or a total for all of them,
    `test`."""
    counts, groups_together = config.counts, []
    check_names(counts, load_studies(config.studies_from))
    searched = [config.study(config.tuning.study)] if config.tuning.random_search else []
    drawn_studies = [study for study in [*studies, *searched] if not study.as_published]
    for study in drawn_studies:
        uncounted = [group for group in study.groups if group not in counts]
        if uncounted and ("test" not in counts or len(uncounted) < len(study.groups)):
            remedy = f"add counts.{uncounted[0]}"
            if len(uncounted) == len(study.groups):
                remedy += ", or give only counts.test, one number for all groups"
            raise DiagvibError(
                f"counts: the group {uncounted[0]} of study {study.name} has no number of images; {remedy}"
            )
        groups_together += uncounted
        check_counts(study, counts)
    if "test" in counts and drawn_studies and not groups_together:
        raise DiagvibError(
            "counts.test: every group of the studies already has its own number, given or by default, such "
            f"as counts.{studies[0].groups[0]}; set these instead"
        )


def _check_bindings(config: Configuration, names: list[str] | str, studies: list[Study]) -> None:
    """Each name binds the factors of a study, and each study has at least one of the bindings."""
    for name in names if names != "all" else []:
        _check_binding(name, studies)
    for study in studies:
        if not config.study_bindings(study.name, names):
            raise DiagvibError(
                f"none of them fits study {study.name}, which binds {', '.join(study.bound)} "
                f"to factors of the scene {study.scene}; add one"
            )


def _check_binding(name: str, studies: list[Study]) -> None:
    """The name is a binding of a study with cues, or a target of one without; of any study if they
    all have, or all lack, cues. DiagvibError: the problem with the first of these studies."""
    has_cues = "-" in name
    candidates = [study for study in studies if bool(study.cues) == has_cues] or studies
    problems = []
    for study in candidates:
        try:
            bind_its_own(study, name, load_scene(study.scene).factors)
            return
        except DiagvibError as error:
            problems.append(error)
    raise problems[0]


def _resolved(entry: str | BaselineChoice, config: Configuration) -> ResolvedBaseline:
    """A baseline of the configuration in full."""
    entry = BaselineChoice(name=entry) if isinstance(entry, str) else entry
    settings = load_settings(entry.name, config.baselines_from)
    with within(entry.name):
        studies = _real_names(config, entry.studies or config.studies, "studies")
        bindings = entry.bindings or config.bindings
        for key, selection in (("studies", studies), ("bindings", bindings)):
            configured = getattr(config, key)
            unconfigured = sorted({*selection} - {*configured}) if configured != "all" else []
            if unconfigured:
                raise DiagvibError(
                    f"{key}: {unconfigured[0]} is not among the configuration's {key}"
                )
        with within("bindings"):
            definitions = [config.study(name) for name in studies]
            _check_bindings(config, entry.bindings or "all", definitions)
        changed_keys = {"max_epochs", "batch_size", "settings"}
        settings |= entry.model_dump(include=changed_keys, exclude_none=True)
        source = settings.get("optimiser_of")
        if source and "optimiser_of" in load_settings(source, config.baselines_from):
            raise DiagvibError(
                f"optimiser_of: {source} takes its own optimiser from another; name that one"
            )
        check_baseline(settings, config, studies)
        check_selection(settings.get("selection", ""), definitions)
    return ResolvedBaseline(name=entry.name, studies=studies, bindings=bindings, settings=settings)


def with_baseline(
    config: ResolvedConfiguration, stage: str, baseline: str | None
) -> ResolvedConfiguration:
    """A configuration that has the baseline of a stage's job: tune and encode take any, train those
    of the configuration alone. baseline: None for jobs without one; for encode, perhaps the folder of a
    network of the configuration. DiagvibError for one that is unknown or does not fit."""
    if stage not in ("encode", "train", "tune") or (
        stage == "encode" and baseline in config.networks
    ):
        return config
    settings_of = {entry.name: entry.settings for entry in config.baselines}
    if baseline not in settings_of:
        settings = load_settings(baseline, config.baselines_from)
        if stage == "train":
            raise DiagvibError(
                f"{baseline} is not among the configuration's baselines, {', '.join(settings_of)}; add "
                f"it there, or with --set 'baselines=[{baseline}]'"
            )
        with within(f"baseline {baseline}"):
            check_baseline(settings, config, [])
        settings_of[baseline] = settings
        entry = ResolvedBaseline(name=baseline, studies=[], bindings=[], settings=settings)
        config = config.model_copy(update={"baselines": [*config.baselines, entry]})
    if stage == "tune":
        study = config.study(config.tuning.study)
        with within(f"tuning of {baseline}"):
            check_baseline(settings_of[baseline], config, [study.name])
            check_selection(settings_of[baseline].get("selection", ""), [study])
    return config


def _check_tuning(config: ResolvedConfiguration, tuning: Tuning) -> None:
    """DiagvibError for samples that do not exist, a study that does not fit, an unknown factor or
    binding, or ranges that a baseline cannot have."""
    study = config.study(tuning.study)
    scene, count = load_scene(study.scene), config.dataset_count
    settings = {baseline.name: baseline.settings for baseline in config.baselines}
    for name in config.tuned_first:
        settings.setdefault(name, load_settings(name, config.baselines_from))
        if study.scene not in config.scenes:
            raise DiagvibError(
                f"tuning.study: {study.name} shows {study.scene}, but {name} is tuned for {config.scenes[0]}; name "
                "one of the configuration's studies, with random_search"
            )
    factors = scene.factors
    if scene.replicates == "seeds":
        count = 1
    for number in tuning.samples:
        if number >= count:
            numbered = f"`samples: {config.samples}`, which are numbered from 0"
            raise DiagvibError(
                f"tuning.samples: {number} is not among the dataset samples of "
                + (numbered if count == config.samples else f"{study.name}, which has only 0")
            )
    if search := tuning.random_search:
        for name in search.bindings:
            with within("tuning.random_search.bindings"):
                bind(study, name, factors)
        if not isinstance(search.trials, int):
            with within("tuning.random_search.trials"):
                check_trial_names(search.trials, baseline_names(config.baselines_from))
        for name in config.tuned:
            search.trials_of(name, settings[name]["method"]["name"])
            with within(f"tuning.random_search: {name}"):
                check_baseline(settings[name], config, [study.name])
            search_space(settings[name], search.ranges, "tuning.random_search.ranges", name)
        return
    if study.cues:
        raise DiagvibError(
            f"tuning.study: {study.name} binds cues; name a study that binds only a target, or use "
            "random_search"
        )
    for factor in tuning.factors:
        if factor not in factors:
            raise unknown_name("factor", factor, factors, "tuning.factors")
        classes = study.roles[TARGET]
        if len(factors[factor]) < classes:
            candidates = [name for name in tuning.factors if len(factors.get(name, ())) >= classes]
            raise DiagvibError(
                f"tuning.factors: study {study.name}: target has {classes} classes, but {factor} has only "
                f"{len(factors[factor])}; leave it out, as by tuning: {{factors: [{', '.join(candidates)}]}}"
            )
