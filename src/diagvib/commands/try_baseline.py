"""`diagvib try`: what would fail in a baseline's runs on a study, how long they take, and what the
baseline is given."""

from pathlib import Path

from diagvib.commands.dry_run import DryRun, with_present_tuning
from diagvib.commands.plan_sizes import split_sizes
from diagvib.commands.plan_speeds import epochs_from, epochs_of
from diagvib.commands.plan_table import duration
from diagvib.commands.plan_times import at_once
from diagvib.foundation.errors import one_line
from diagvib.foundation.progress import print_facts
from diagvib.methods.registry import declaration
from diagvib.scenes.scene import ABILITIES
from diagvib.settings.baselines import load_settings, tuning_needed
from diagvib.settings.keys import ResolvedBaseline, ResolvedConfiguration
from diagvib.settings.resolve import (
    completed,
    default_path,
    overridden,
    resolve,
    without_baseline_keys,
)


def with_one_baseline(
    path: Path | None, overrides: list[str] | None, baseline: str, study: str, binding: str | None
) -> ResolvedConfiguration:
    """A configuration with this baseline and study alone; of its bindings all that fit, or the one
    given. DiagvibError for what a resolved configuration refuses, as a study without the labels that
    the method needs."""
    file = path or default_path()
    values = without_baseline_keys(overridden(file, overrides))
    config = completed(values, one_line(file))
    entries = {entry.name: entry for entry in config.baselines if not isinstance(entry, str)}
    keys, entry = {"max_epochs", "batch_size", "settings"}, entries.get(baseline)
    changes = entry.model_dump(include=keys, exclude_none=True) if entry else {}
    values |= {
        "baselines": [{"name": baseline, **changes}],
        "studies": [study],
        "bindings": [binding] if binding else config.bindings if study in config.studies else "all",
    }
    return resolve(values, one_line(file))


def print_trial(config: ResolvedConfiguration, dataset: tuple[str, str], dry: DryRun) -> None:
    """What a dry run has shown, as a table for people; then a line for each problem."""
    (baseline,), (study, binding) = config.baselines, dataset
    facts = {"given": _given(baseline, dataset), "settings": _settings(config, baseline)}
    title = f"Tried: {baseline.name} on {study} {binding}"
    print_facts(title, facts | _speeds(config, dry))
    for problem in dry.problems:
        print(f"would fail: {problem}")
    for doubt in dry.doubts:
        print(f"would be doubtful: {doubt}")
    if not dry.problems:
        print("every hook was called, and nothing failed")


def _given(baseline: ResolvedBaseline, dataset: tuple[str, str]) -> str:
    """The labels and abilities that training and selection use."""
    method, (target, *cues) = baseline.settings["method"], dataset[1].split("-")
    supervision, rule = method["supervision"], baseline.settings.get("selection") or "val_loss"
    if supervision.startswith("cue-"):
        cues_used = cues[int(supervision[4:]) - 1 :][:1]
    else:
        cues_used = cues if supervision == "cues" else []
    labels = [f"the labels of {target}", *(f"of {cue}" for cue in cues_used)]
    if supervision == "cue_types":
        labels.append(f"that {', '.join(cues)} are cues")
    if supervision == "environments":
        labels.append("environments")
    labels += [f"a scene that can {ABILITIES[need]}" for need in declaration(method["name"]).needs]
    groups = "_cue_" in rule or rule == "val_worst_group"
    inputs = {"val_environment_accuracy": ", with environments"} | (
        {rule: f", with labels of {', '.join(cues)}"} if groups else {}
    )
    return f"{', '.join(labels)}; epochs are selected by {rule}{inputs.get(rule, '')}"


def _settings(config: ResolvedConfiguration, baseline: ResolvedBaseline) -> str:
    tuned_first = tuning_needed(baseline.settings, baseline.name)
    settings, missing = with_present_tuning(config, baseline)
    batch, training = settings["batch_size"], config.training
    of_file = load_settings(baseline.name, config.baselines_from)
    location = "its own" if batch == of_file["batch_size"] else "its entry in the configuration"
    if tuned_first:
        location = f"before {', '.join(missing)} is tuned" if missing else "as tuned"
    patience = "" if training.patience is None else f", patience {training.patience}"
    return (
        f"at most {epochs_of(config, settings):,} epochs ({epochs_from(config, baseline)}){patience}, "
        f"batches of {batch:,} ({location})"
        + "; tuning comes first, and may change settings and time"
        * bool(missing)
    )


def _speeds(config: ResolvedConfiguration, dry: DryRun) -> dict[str, str]:
    """Images, rates, and the time of a job and of all jobs."""
    rates, rows = dry.rates, {}
    if dry.sources:
        reason = " stand-ins, which are as fast: the root has no sources yet" * dry.stand_ins
        rows["images"] = (
            f"a few of {config.image_size} x {config.image_size}, {dry.sources}{reason}"
        )
    several = len(rates.phases) > 1
    if rates.phases:
        rows["training"] = ", ".join(
            f"{phase.name} " * several + _speed(phase.images_per_second) for phase in rates.phases
        )
    for kind, speed in (
        ("prediction", rates.prediction),
        ("encoding", rates.encoding),
        ("rendering", dry.rendering),
    ):
        if speed:
            rows[kind] = _speed(speed)
    return rows | (_times(config, dry) if rates.prediction else {})


def _times(config: ResolvedConfiguration, dry: DryRun) -> dict[str, str]:
    rates, (study,) = dry.rates, config.studies
    images = dry.sizes.get(study) or split_sizes(config, study)
    if not images["train"]:
        return {"job": "known when its photos are prepared"}
    total, runs = config.dataset_count * sum(images.values()), config.runs_per_job
    seconds = runs * rates.run_seconds(images, config.training.track_test)
    if rates.encoding:
        seconds += total / rates.encoding / at_once(config, dry.device)
    elif dry.rendering and config.images == "render":
        seconds += total / dry.rendering
    epochs = ", ".join(
        f"{phase.name} {phase.epochs:,}"
        + f" (with copies, at most {phase.share:.1f} times as long)" * (phase.share > 1)
        for phase in rates.phases
    )
    rows = {
        "job": f"{duration(seconds)}: {runs:,} run{'s' * (runs > 1)} on {images['train']:,} images, epochs: {epochs}"
    }
    if (jobs := len(config.train_jobs)) > 1:
        parallel = at_once(config, dry.device)
        rows["all bindings"] = (
            f"{duration(jobs * seconds / parallel)}: {jobs:,} such jobs, {parallel} at once"
        )
    return rows


def _speed(images_per_second: float) -> str:
    return f"{images_per_second:,.0f} images/s"
