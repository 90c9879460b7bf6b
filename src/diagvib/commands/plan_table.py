"""A plan as a table for people."""

from collections.abc import Callable

from rich.filesize import decimal

from diagvib.commands.plan_speeds import epochs_from, epochs_of
from diagvib.foundation.progress import print_facts
from diagvib.settings.keys import Configuration
from diagvib.studies.rows import TARGET


def print_plan(plan: dict, config: Configuration) -> None:
    title = f"Plan: root {config.root}, sources {config.sources}, device {plan['device']}"
    print_facts(title, _contents(plan, config) | _times(plan, config) | _measurements(plan))


def _contents(plan: dict, config: Configuration) -> dict[str, str]:
    """What is made, and how much of it."""
    size, total, pairs = config.image_size, sum(plan["disk"].values()), plan["jobs"]["draw"]
    rows = {
        "datasets": f"{plan['datasets']:,} ({pairs:,} pair{'s' * (pairs != 1)} of study and binding)",
        "images": f"{plan['images']:,} of {size} x {size} pixels"
        + ", without photos that are not prepared yet" * bool(plan["photos_not_known"]),
        "runs": f"{plan['runs']:,} ({_listed(plan['runs_per_baseline'])})",
        "epochs": _epochs(config),
        "jobs": _listed(plan["jobs"]),
        "disk": f"{decimal(total)} ({_listed(plan['disk'], decimal)}), and as much for DVC's copy",
    }
    if groups := _partial_groups(config):
        rows["test groups"] = f"{', '.join(groups)}; chance differs from that of the other groups"
    if unknown := _not_in_sums(plan, config):
        rows["not known"] = f"{', and '.join(unknown)}; not in these sums"
    return rows


def _partial_groups(config: Configuration) -> list[str]:
    """The test groups in which a study has only some of the target's classes."""
    partial = []
    for study in map(config.study, config.studies):
        tested = {group: set() for group in study.groups}
        for row in study.rows_of("test"):
            tested[row.group] |= {cell[0] for cell in study.row_cells(row, (1, 2, 0))}
        classes = study.roles[TARGET]
        partial += [
            f"{group} of {study.name} has {len(labels)} of {classes} target classes"
            for group, labels in tested.items()
            if len(labels) < classes
        ]
    return partial


def _epochs(config: Configuration) -> str:
    """How many epochs each baseline has, at most, and where the number comes from."""
    names: dict[str, list[str]] = {}
    for baseline in config.baselines:
        number = epochs_of(config, baseline.settings)
        text = f"{number:,} ({epochs_from(config, baseline)})"
        names.setdefault(text, []).append(baseline.name)
    of_names = [f"{', '.join(baselines)} {text}" for text, baselines in names.items()]
    return ", ".join(of_names if len(names) > 1 else names)


def _not_in_sums(plan: dict, config: Configuration) -> list[str]:
    """What takes space or time that is not known."""
    unknown = []
    if names := plan["weights_not_known"]:
        unknown.append(f"weights of {', '.join(names)} (own code or frozen networks)")
    if names := plan["published_not_known"]:
        unknown.append(f"published weights of {', '.join(names)}")
    if "encode" in plan["jobs"]:
        unknown.append("features of frozen networks")
    if names := plan["photos_not_known"]:
        unknown.append(f"photos of {', '.join(names)}, which are not prepared yet")
    if config.tuned_first:
        unknown.append("tuning, which comes first")
    return unknown


def _times(plan: dict, config: Configuration) -> dict[str, str]:
    """Every stage, all together, and on several GPUs."""
    known = {stage: seconds for stage, seconds in plan["seconds"].items() if seconds is not None}
    rows = {
        stage: duration(known[stage]) + _note(plan, stage) * bool(known[stage])
        if stage in known
        else _unknown(plan, config, stage)
        for stage in plan["seconds"]
    }
    if not known.keys() - {"render"}:  # rendering alone says nothing about the whole
        return rows
    note = _pixels_note(plan) * any(known[stage] for stage in known.keys() - plan["timed"])
    by_operations = len(plan["by_operations"])
    scaled_too = f", {by_operations} of them scaled by operations" * bool(by_operations)
    without = f", without {', '.join(plan['not_measured'])}" * bool(plan["not_measured"])
    rows["in all"] = duration(sum(known.values())) + note + scaled_too + without
    if plan["gpus"] > 1:
        rows[f"on {plan['gpus']} GPUs"] = f"about {duration(plan['wall_seconds'])}{note}{without}"
    return rows


def _note(plan: dict, stage: str) -> str:
    """How a stage's time was found, unless it was measured like this."""
    if stage not in plan["timed"]:
        reference = plan["by_operations"].get(stage)
        return _pixels_note(plan) + f", scaled by operations from {reference}" * bool(reference)
    processes_note = " by one process" * (plan["device"] == "cuda")
    note = f", timed on this machine in {plan['timed'][stage]} steps{processes_note}"
    if copies := plan["repeats"].get(stage):
        note += f", at most: epochs with copies are up to {copies:.1f} times as long"
    return note


def _pixels_note(plan: dict) -> str:
    size, untried = plan["scaled_from"], " (not tried on a GPU)" * (plan["device"] == "cuda")
    return f", scaled by pixels{untried} from images of {size} x {size}" * bool(size)


def _unknown(plan: dict, config: Configuration, stage: str) -> str:
    """Why a stage's time is not known."""
    if problems := plan["problems"].get(stage):
        return "; ".join(problems)
    studies = {study for name, study, _ in config.train_jobs if stage == f"train {name}"}
    if studies.intersection(plan["photos_not_known"]):
        return "known when its photos are prepared"
    remedy = "; --time does it" * (bool(studies) and not plan["timed"])
    return f"not measured with these settings{remedy}"


def _measurements(plan: dict) -> dict[str, str]:
    """What the times follow from: the setups of the rates, each with its stages, and their files."""
    stages: dict[str, list[str]] = {}
    for stage, setup in plan["setups"].items():
        if setup and plan["seconds"][stage]:
            stages.setdefault(setup, []).append(stage.removeprefix("train "))
    if plan["device"] == "cuda" and plan["seconds"]["render"]:
        stages |= {"a CPU": ["render"]}
    setups = "; ".join(f"{setup}: {', '.join(names)}" for setup, names in stages.items())
    sources = ", ".join(plan["rates_from"]) or (
        "nothing measured yet: run `python benchmarks/render.py` and `python benchmarks/train.py "
        f"--device {plan['device']}`, or name a result file of theirs with --rates"
    )
    return ({"measured with": setups} if setups else {}) | {"rates from": sources}


def _listed(counts: dict[str, int], form: Callable = "{:,}".format) -> str:
    return ", ".join(f"{name} {form(count)}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Seconds in a form for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
