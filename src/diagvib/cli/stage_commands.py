"""A command for each stage, which Snakemake calls: its arguments are those of the stage's function."""

import inspect
import sys
from functools import wraps
from pathlib import Path
from typing import Annotated

from diagvib import stages
from diagvib.cli.application import STAGES, Config, Override, Root, register
from diagvib.foundation.errors import DeviceFailed, DiagvibError
from diagvib.foundation.plug_ins import small_memory_refused
from diagvib.foundation.slots import (
    Device,
    end_with_workflow,
    note_failure,
    slot_devices,
    take_slot,
)
from diagvib.foundation.validation import Name, validated
from diagvib.scenes import load_scene
from diagvib.settings import keys
from diagvib.settings.jobs import JobSettings, read_settings, stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config, with_baseline
from diagvib.stages import argument, option
from diagvib.studies.binding import bind

Settings = Annotated[
    Path | None, option("JSON file with this stage's settings, instead of a configuration.")
]
GpuShare = Annotated[
    int | None,
    option(
        "Percent of the least used device to take, once they are free; 0: none.", min=0, max=100
    ),
]
Devices = Annotated[
    str | None,
    option("Devices to choose from, such as cuda:0,cuda:3; default: the configuration's."),
]
SceneName = Annotated[
    str | None,
    argument("Default: all scenes of the configuration's studies.", "[SCENE]", show_default=False),
]
BaselineNames = Annotated[
    list[str],
    argument(
        "Baselines from config/baselines, or from the configuration's `baselines_from`.",
        "BASELINE...",
    ),
]


# Names of a job after which folders are named, so that none may lead elsewhere.
_FOLDERS = ("study", "binding", "baseline", "network")


def _stage(stage: str, example: str, **several: object) -> None:
    """Register a stage's function as a command. Instead of layout and job, it takes a configuration
    (by hand) or a file with one job's settings (by Snakemake), and a root. several: the type of an
    argument by which a command takes several jobs."""

    @wraps(getattr(stages, stage), ("__name__", "__doc__"))
    def command(
        *,
        config: Config = None,
        override: Override = None,
        settings: Settings = None,
        root: Root = None,
        gpu_share: GpuShare = None,
        devices: Devices = None,
        **arguments: object,
    ) -> None:
        end_with_workflow()
        if settings is not None and (config or override):
            raise DiagvibError(
                "--settings replaces a configuration; give it alone, or use --config and --set"
            )
        resolved = load_config(config, override) if settings is None else None
        root = validated(keys.Root, root or (resolved.root if resolved else "."), "--root")
        job_arguments = _jobs(resolved, arguments) if several else [arguments]
        slot = None
        if gpu_share:
            device = arguments["device"] or (resolved.device if resolved else "auto")
            slot = _take_slot(gpu_share, devices, resolved, device, stage)
        try:
            if slot and slot.machine:
                _run_elsewhere(slot.machine, stage, Layout(root), settings, job_arguments[0])
            else:
                run_stage(stage, Layout(root), resolved, settings, *job_arguments)
        except DeviceFailed:
            if slot:
                note_failure(slot)
            raise

    _, _, *arguments = inspect.signature(getattr(stages, stage), eval_str=True).parameters.values()
    *shared, _ = inspect.signature(command, follow_wrapped=False).parameters.values()
    if "device" not in [argument.name for argument in arguments]:
        shared = [option for option in shared if option.name not in ("gpu_share", "devices")]
    options = [_option(argument, several) for argument in arguments]
    command.__signature__ = inspect.Signature([*options, *shared])
    register(STAGES, f"{stage} {example}".strip())(command)


def _take_slot(
    share: int, devices: str | None, config: keys.Configuration | None, device: str, stage: str
) -> Device | None:
    """Before anything loads torch, which sees this device alone; of no GPU for the device cpu, and of
    no other machine for images, which are drawn here."""
    names = devices.split(",") if devices else config.devices if config else "all"
    names = validated(keys.Devices, names, "--devices")
    slots = slot_devices(None if names == "all" else names)
    available = [
        slot
        for slot in slots
        if (device != "cpu" or not slot.address) and (stage != "render" or not slot.machine)
    ]
    return take_slot(share, available) if available else None


def _run_elsewhere(
    machine: str, stage: str, layout: Layout, settings: Path | None, arguments: dict
) -> None:
    """Run a job, as Snakemake gives it, on another machine, on whose devices it takes a slot."""
    from diagvib.workflow.machines import run_on

    if settings is None:
        raise DiagvibError(f"devices: {machine}: only jobs with --settings run on other machines")
    line = sys.argv[1:]
    position = line.index("--devices")
    del line[position : position + 2]
    names = {key: arguments[key] for key in _FOLDERS if key in arguments}
    run_on(machine, layout, read_settings(settings, stage), names, settings, line)


@register(STAGES, "receive s3://bucket/folder")
def receive(
    store: Annotated[str, argument("The address that the sender has in DIAGVIB_STORE.", "STORE")],
) -> None:
    """Run the job that another machine sends by way of a store."""
    from diagvib.workflow.machines import receive

    sys.exit(receive(store))


def _option(argument: inspect.Parameter, several: dict[str, object]) -> inspect.Parameter:
    """An argument of a stage's function as an argument of its command, whose default comes from the
    configuration."""
    required = argument.default is argument.empty and argument.name != "scene"
    return argument.replace(
        kind=argument.KEYWORD_ONLY,
        annotation=several.get(argument.name, argument.annotation),
        default=argument.empty if required else None,
    )


def _jobs(config: keys.Configuration | None, arguments: dict) -> list[dict]:
    """The arguments of the job of each scene (the given one, or all of the configuration), or of each
    baseline."""
    if "baseline" in arguments:
        if len(arguments["baseline"]) > 1 and config is None:
            raise DiagvibError("--settings holds the settings of one baseline; name exactly one")
        return [{**arguments, "baseline": name} for name in arguments["baseline"]]
    if arguments["scene"] is None and config is None:
        raise DiagvibError("--settings does not name a scene; give one as an argument")
    scenes = config.scenes if arguments["scene"] is None else [arguments["scene"]]
    return [{**arguments, "scene": name} for name in scenes]


def run_stage(
    stage: str,
    layout: Layout,
    config: keys.Configuration | None,
    settings: Path | None,
    *jobs: dict,
) -> None:
    """Run jobs with these arguments, once the settings of all are read."""
    for job, options in [_job(stage, config, settings, arguments) for arguments in jobs]:
        names = [name for key, name in options.items() if key in ("scene", *_FOLDERS)]
        with small_memory_refused(" ".join([stage, *names])):
            getattr(stages, stage)(layout, job, **options)


def _job(
    stage: str, config: keys.Configuration | None, settings: Path | None, arguments: dict
) -> tuple[JobSettings, dict]:
    """A job's settings, and the other arguments of the stage's function. Options that are None have
    the configuration's values, or the defaults of that function."""
    names = {key: arguments[key] for key in _FOLDERS if key in arguments}
    validated(dict[str, Name], names, "argument")
    if config is None:
        job = read_settings(settings, stage)
    else:
        if "study" in arguments:  # may be an alias
            study = config.study(arguments["study"])
            arguments["study"] = study.name
            bind(study, arguments["binding"], load_scene(study.scene).factors)
        baseline = arguments.get("baseline") or arguments.get("network")
        config_of_job = with_baseline(config, stage, baseline)
        job = stage_settings(config_of_job, stage, arguments.get("study"), baseline)
        arguments = {
            key: getattr(config, key, None) if value is None else value
            for key, value in arguments.items()
        }
    return job, {key: value for key, value in arguments.items() if value is not None}


_DEMO = "--config config/demo.yaml"
_stage("fetch", _DEMO, scene=SceneName)
_stage("prepare", _DEMO, scene=SceneName)
_stage("weights", "resnet50 IMAGENET1K_V1")
_stage("draw", f"zgo shape-hue {_DEMO}")
_stage("render", f"zgo shape-hue {_DEMO}")
_stage("encode", "lite0 zgo shape-hue --config config/frozen.yaml")
_stage("train", f"small_cnn zgo shape-hue {_DEMO}")
_stage("tune", "small_cnn --config config/laptop.yaml", baseline=BaselineNames)
_stage("tabulate", _DEMO)
_stage("plot", _DEMO)
