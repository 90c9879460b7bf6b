"""The command line: one command for each stage, and others such as `plan` and `compare`."""

import gc
import inspect
import json
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from shlex import quote
from string import ascii_uppercase
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from diagvib import __version__, stages
from diagvib.commands.cutout import cutout
from diagvib.commands.generate import generate
from diagvib.commands.new_code import KINDS, write_new
from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.plug_ins import exits_refused
from diagvib.foundation.slots import slot_devices, take_slot
from diagvib.foundation.validation import Name, validated
from diagvib.scenes import load_scene
from diagvib.settings import keys
from diagvib.settings.jobs import JobSettings, read_settings, stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.stages import argument, option
from diagvib.studies.binding import bind

# What commands are for: the groups of `--help`.
TRY, LOOK, SHARE, STAGES = "Try", "Look", "Share", "Stages that Snakemake calls"


class Tasks(TyperGroup):
    """Commands by task, each with a summary that is wrapped instead of cut off."""

    def by_task(self) -> dict[str, dict[str, Any]]:
        """Task -> its commands by name."""
        return {
            task: {name: c for name, c in self.commands.items() if c.rich_help_panel == task}
            for task in (TRY, LOOK, SHARE, STAGES)
        }

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:
        for task, commands in self.by_task().items():
            with formatter.section(task):
                formatter.write_dl(
                    [(name, c.get_short_help_str(1000)) for name, c in commands.items()]
                )


app = typer.Typer(
    cls=Tasks,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measures when vision models learn shortcuts instead of the task. `snakemake --cores all` runs "
    "every stage in order. `diagvib COMMAND --help` has an example.",
    epilog="Pages: README.md and docs/ in the repository; `make docs` builds a site of them.",
)


def _command(task: str, example: str, name: str | None = None, **settings: dict) -> Callable:
    """Register a function as a command for a task. example: what follows `diagvib`."""
    line = f"Example: diagvib {example}"
    return app.command(name, rich_help_panel=task, epilog=line, **settings)


Config = Annotated[
    Path | None, option("Configuration file; default: the paper's protocol.", "--config")
]
Override = Annotated[
    list[str] | None, option("Override a key; repeatable.", "--set", metavar="KEY=VALUE")
]
Settings = Annotated[
    Path | None, option("JSON file with this stage's settings, instead of a configuration.")
]
Root = Annotated[str | None, option("Folder for data/ and results/; default: the configuration's.")]
GpuShare = Annotated[
    int | None,
    option(
        "Take so many percent of the least used device, and wait until they are free; 0: none.",
        min=0,
        max=100,
    ),
]
Devices = Annotated[
    str | None,
    option("Where to look for it, such as cuda:0,cuda:3; default: the configuration's."),
]
Classes = Annotated[
    str | None,
    option(
        "Which output or prediction means which class: OUTPUT=CLASS,..., or a .yaml or .csv file.",
    ),
]
SceneName = Annotated[
    str | None,
    argument(
        "Default: all scenes of the configuration's studies.",
        "[SCENE]",
        show_default=False,
    ),
]
BaselineNames = Annotated[
    list[str],
    argument(
        "Baselines from config/baselines, or from the configuration's `baselines_from`.",
        "BASELINE...",
    ),
]


# The exit code after Ctrl-C or SIGTERM.
_INTERRUPTED = 130
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
        if settings is not None and (config or override):
            raise DiagvibError(
                "--settings replaces a configuration; give it alone, or use --config and --set"
            )
        resolved = load_config(config, override) if settings is None else None
        root = validated(keys.Root, root or (resolved.root if resolved else "."), "--root")
        job_arguments = _jobs(resolved, arguments) if several else [arguments]
        if gpu_share:
            _take_slot(gpu_share, devices, resolved)
        run_stage(stage, Layout(root), resolved, settings, *job_arguments)

    _, _, *arguments = inspect.signature(getattr(stages, stage), eval_str=True).parameters.values()
    *shared, _ = inspect.signature(command, follow_wrapped=False).parameters.values()
    if "device" not in [argument.name for argument in arguments]:
        shared = [option for option in shared if option.name not in ("gpu_share", "devices")]
    options = [_option(argument, several) for argument in arguments]
    command.__signature__ = inspect.Signature([*options, *shared])
    _command(STAGES, f"{stage} {example}".strip())(command)


def _take_slot(share: int, devices: str | None, config: keys.Configuration | None) -> None:
    """Before anything loads torch, which sees this device alone."""
    names = devices.split(",") if devices else config.devices if config else "all"
    names = validated(keys.Devices, names, "--devices")
    if available := slot_devices(None if names == "all" else names):
        take_slot(share, available)


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
        job = stage_settings(config, stage, arguments.get("study"), baseline)
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


@_command(
    TRY,
    "run demo",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def run(
    context: typer.Context,
    config: Annotated[
        str,
        argument("A file, or the name of a configuration that comes with the package.", "CONFIG"),
    ] = "config",
) -> None:
    """Run every stage of a configuration, in any folder. Calls `snakemake`, whose options may follow,
    with the workflow that comes with the package; results go below the current folder."""
    from diagvib.commands.run import run_workflow

    options = [config, *context.args]
    name = "config" if config.startswith("-") else options.pop(0)
    raise typer.Exit(run_workflow(name, options))


@_command(LOOK, "view outputs/demo")
def view(
    root: Annotated[str, argument("The root of a configuration, such as outputs/demo.")],
    port: Annotated[int, option("Port; default: any free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, option("Also open it in the browser.")] = True,
) -> None:
    """Show test images and predictions in the browser. Serves the results folder to this machine
    alone; stop it with Ctrl-C."""
    from diagvib.commands.view import view

    view(root, port, browser)


@_command(LOOK, "compare outputs/demo published/demo --out page.html")
def compare(
    runs_a: Annotated[Path, argument("A root, such as outputs/demo, or its results.", "ROOT")],
    other_roots: Annotated[
        list[Path], argument("Other roots, each compared with the first.", "OTHER...")
    ],
    out: Annotated[Path | None, option("Also write the tables: .csv, .md or .html.")] = None,
) -> None:
    """Compare the runs of results folders, cell by cell, and what they were made with."""
    from diagvib.commands.compare import compare_results, shown, write_comparison
    from diagvib.results.reader_tables import print_table

    letters = dict(zip(ascii_uppercase[1:], other_roots, strict=False))
    if len(letters) < len(other_roots):
        raise DiagvibError(f"{other_roots[25]}: at most 25 folders can be compared with the first")
    tables = {
        letter: compare_results(runs_a, root, stages.cores()) for letter, root in letters.items()
    }
    for letter, table in tables.items():
        for shown_table in shown(table, letter):
            print_table(shown_table)
    if out:
        write_comparison(tables, out)


@_command(SHARE, "table outputs/demo --out table.tex")
def table(
    root: Annotated[Path, argument("The root of a finished configuration, such as outputs/demo.")],
    out: Annotated[
        Path | None, option("A file to write, in the format of its ending: .tex, .md or .csv.")
    ] = None,
    study: Annotated[
        list[str] | None, option("A column; repeatable. Default: all studies.")
    ] = None,
    metric: Annotated[
        str | None, option("A column of the study's metrics; default: the main one.")
    ] = None,
    spread: Annotated[
        Literal["stderr", "interval", "none"],
        option("Standard error, 95 % interval, or none."),
    ] = "stderr",
    average: Annotated[bool, option("With a column for the mean over studies.")] = True,
    label: Annotated[str, option("LaTeX's label.")] = "tab:results",
    caption: Annotated[str, option("The caption; default: the metrics.")] = "",
) -> None:
    """Make one table for a paper: methods by studies, the best in bold. Prints it, and writes LaTeX
    (which needs booktabs), Markdown or CSV."""
    from diagvib.commands.table import Choices, methods_table, write_table
    from diagvib.results.reader_tables import print_table

    choices = Choices(study or [], metric, spread, average, label, caption)
    print_table(write_table(root, choices, out) if out else methods_table(root, choices))


@_command(SHARE, "submit outputs/demo --by NAME")
def submit(
    root: Annotated[Path, argument("The root of a finished configuration, such as outputs/demo.")],
    by: Annotated[str, option("Who submits.")],
    link: Annotated[str, option("Where the method or the network is described.")] = "",
    out: Annotated[Path, option("The folder to write to.")] = Path("leaderboard"),
    form: Annotated[
        Literal["leaderboard", "every-eval-ever", "model-index"],
        option(
            "Entries, records of Every Eval Ever, or model cards' results.",
            "--format",
        ),
    ] = "leaderboard",
) -> None:
    """Write entries of the leaderboard, one for each baseline and study of a complete run."""
    from diagvib.commands.shared_results import FORMATS
    from diagvib.commands.submit import submit

    for path in submit(root, by, link, out, FORMATS[form]):
        print(path)


@_command(TRY, "evaluate resnet50 zgo fgo-20 --weights IMAGENET1K_V2")
def evaluate(
    model: Annotated[
        str,
        argument(
            "A classifier of torchvision, timm/NAME, clip/NAME-TAG, transformers/FOLDER, or your own "
            "package.module:function or FILE.py:function.",
            "MODEL",
        ),
    ],
    studies: Annotated[list[str], argument("Studies from config/studies.", "STUDY...")],
    head: Annotated[
        Literal["linear", "own"],
        option("linear: a layer is trained on its features; own: its own outputs, as they are."),
    ] = "linear",
    classes: Classes = None,
    weights: Annotated[
        str | None,
        option(
            "The name of published weights, a file, or an installed package; default: random, and "
            "with --head own the published ones.",
        ),
    ] = None,
    input_size: Annotated[
        int | None, option("Pixels per side to which images are resized; default: as they are.")
    ] = None,
    config: Annotated[
        Path | None,
        option("Configuration of everything else; default: config/frozen.yaml.", "--config"),
    ] = None,
    override: Override = None,
    root: Annotated[
        str | None,
        option(
            "Folder for data/ and results/; default: --config's, or outputs/evaluate/MODEL-WEIGHTS-SIZE.",
        ),
    ] = None,
    cores: Annotated[int | None, option("CPU cores; default: all.", min=1)] = None,
) -> None:
    """Train linear layers on the features of a frozen network, in every binding of some studies. Or,
    with `--head own`, measure a fitted classifier as it is. Writes a configuration to the root, runs
    the workflow with it and prints the tables."""
    from diagvib.commands import evaluate as command
    from diagvib.commands.fitted import fitted_baseline, write_fitted

    if classes and head != "own":
        raise DiagvibError("--classes: this is for --head own; a new layer has the study's classes")
    if head == "own":
        entry, write = fitted_baseline(model, weights, input_size, classes), write_fitted
    else:
        entry = command.frozen_baseline(model, weights, input_size)
        write = command.write_configuration
    command.run_and_print(*write(entry, studies, config, override, root), stages.cores(cores))


@_command(TRY, "score predictions.csv --config mine.yaml")
def score(
    predictions: Annotated[
        Path,
        argument("CSV with the columns file and prediction, and perhaps confidence.", "CSV"),
    ],
    config: Annotated[Path, option("Configuration of the images that were predicted.", "--config")],
    study: Annotated[
        list[str] | None, option("One of its studies; repeatable. Default: all of them.")
    ] = None,
    classes: Classes = None,
    override: Override = None,
    root: Annotated[
        str | None, option("Folder for data/ and results/; default: outputs/score/NAME.")
    ] = None,
    cores: Annotated[int | None, option("CPU cores; default: all.", min=1)] = None,
) -> None:
    """Measure predictions that were made elsewhere. They name test images of `diagvib export --png` or
    photos by their files. Runs the workflow and prints the tables."""
    from diagvib.commands.evaluate import run_and_print
    from diagvib.commands.score import score

    cores = stages.cores(cores)
    run_and_print(*score(predictions, config, study, classes, override, root, cores), cores)


@_command(TRY, "try jtt zgo shape-hue --config mine.yaml", "try")
def try_baseline(
    baseline: Annotated[
        str,
        argument(
            "A baseline from config/baselines, or from the configuration's `baselines_from`.",
            "BASELINE",
        ),
    ],
    study: stages.StudyName,
    binding: Annotated[
        str | None,
        argument("Default: the first that fits the study.", "[BINDING]", show_default=False),
    ] = None,
    config: Config = None,
    override: Override = None,
    device: stages.Device = None,
) -> None:
    """Train a baseline on a few images, in seconds. Says what would fail in its runs, how long they
    take and which labels it uses; leaves no file. Exit code 1 if something would fail."""
    from diagvib.commands.try_baseline import print_trial, with_one_baseline

    resolved = with_one_baseline(config, override, baseline, study, binding)
    _, *dataset = resolved.train_jobs[0]
    from diagvib.commands.dry_run import dry_run  # loads torch

    result = dry_run(resolved, resolved.baselines[0], tuple(dataset), device or resolved.device)
    print_trial(resolved, tuple(dataset), result)
    if result.problems:
        raise typer.Exit(1)


@_command(TRY, "plan --time --config mine.yaml")
def plan(
    config: Config = None,
    override: Override = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, option("cpu or cuda; default: the configuration's.")
    ] = None,
    gpus: Annotated[int, option("Estimate for this many GPUs together.", min=1)] = 1,
    rates: Annotated[
        list[Path] | None,
        option(
            "Result file of benchmarks/render.py or train.py from another machine; repeatable.",
        ),
    ] = None,
    time: Annotated[
        bool,
        option(
            "Time a few steps of every baseline without a measured rate; takes seconds for each, or a "
            "minute for large networks.",
            "--time",
        ),
    ] = False,
    detect: Annotated[
        float | None,
        option(
            "Show instead how many dataset samples and seeds show an effect of so many points.",
            min=0.1,
            max=100,
        ),
    ] = None,
    json_output: Annotated[bool, option("Print JSON instead of a table.", "--json")] = False,
) -> None:
    """Show what a configuration will make. Estimates disk space and time, and starts nothing."""
    from diagvib.commands import detect as needs
    from diagvib.commands.plan import estimate, print_plan

    resolved = load_config(config, override)
    if detect:
        numbers = detect / 100, resolved.samples, resolved.seeds
        measured = list(needs.needed_as_measured(*numbers))
        if json_output:
            by_deviation = needs.needed_by_deviation(detect / 100)
            print(json.dumps({"by_deviation": by_deviation, "measured": measured}, indent=2))
        else:
            needs.print_needed(measured, *numbers)
        return
    estimated = estimate(resolved, device, gpus, rates, time)
    if json_output:
        print(json.dumps(estimated, indent=2))
    else:
        print_plan(estimated, resolved)


@_command(SHARE, "export outputs/export --config config/demo.yaml")
def export(
    folder: Annotated[Path, argument("Where the files and the data card go.", "FOLDER")],
    png: Annotated[
        bool, option("Also write PNG files, with metadata.csv for imagefolder and WILDS.", "--png")
    ] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Write datasets in the layout of the Hugging Face Hub. Adds a data card and Croissant metadata.
    Reads image files, which `snakemake images --cores all --configfile FILE` makes first."""
    from diagvib.commands.export import export

    export(load_config(config, override), folder, png)


@_command(SHARE, "record --config config/laptop.yaml")
def record(config: Config = None, root: Root = None) -> None:
    """Record finished results, as `snakemake` does. Writes the root's dvc.lock."""
    from diagvib.workflow.ledger import record

    print(record(*_ledger(config, root)))


@_command(SHARE, "publish --config config/demo.yaml")
def publish(config: Config = None, root: Root = None) -> None:
    """Copy a finished root to published/, so that it comes with the repository. Leaves out images,
    recipes and sources, which `pull` makes again."""
    from diagvib.commands.published import publish
    from diagvib.workflow.root_stages import config_of

    root_folder, resolved = _ledger(config, root)
    print(publish(resolved or load_config(config_of(root_folder))))


@_command(SHARE, "pull published/demo")
def pull(
    roots: Annotated[
        list[str] | None,
        argument("Published roots; default: all in published/.", "ROOT", show_default=False),
    ] = None,
    mirror: stages.Mirror = None,
) -> None:
    """Bring published results. What is not stored is made again from sources, which may be
    downloaded."""
    from diagvib.commands.published import jobs_left, missing_jobs, published_roots, pull

    for root in roots or published_roots():
        resolved = pull(str(Path(root)))
        for stage, names in missing_jobs(resolved):
            source = {"mirror": mirror} if stage == "fetch" else {}
            run_stage(stage, Layout(resolved.root), resolved, None, names | source)
        print(jobs_left(resolved))


@_command(SHARE, "verify --root published/demo")
def verify(config: Config = None, root: Root = None) -> None:
    """Find files that differ from the record. Hashes every recorded file again. Exit code 1 if any
    was changed."""
    from diagvib.workflow.ledger import print_verified, verify

    root_folder, _ = _ledger(config, root)
    if not print_verified(verify(root_folder)):
        raise typer.Exit(1)


def _ledger(config: Path | None, root: str | None) -> tuple[str, keys.Configuration | None]:
    """The root of a ledger, and the configuration that names it, unless the root is given."""
    if root and config:
        raise DiagvibError(f"--config and --root: give one of them; {config} names its root itself")
    if root:
        return validated(keys.Root, root, "--root"), None
    resolved = load_config(config)
    return resolved.root, resolved


@_command(SHARE, "prune --dry-run --config config/laptop.yaml")
def prune(
    config: Annotated[
        list[Path] | None,
        option(
            "Configuration whose files are kept; repeatable. Default: the paper's.",
            "--config",
        ),
    ] = None,
    yes: Annotated[bool, option("Delete without asking.", "--yes")] = False,
    dry_run: Annotated[bool, option("List only; delete nothing.", "--dry-run")] = False,
) -> None:
    """Delete what none of the given configurations needs. Lists recipes, images, features, checkpoints
    and runs under their roots first, and asks."""
    from diagvib.commands.prune import prune

    prune([load_config(path) for path in config or [None]], yes, dry_run)


@_command(
    TRY, "imagenet-w photos/imagenet/val --model resnet50 --weights IMAGENET1K_V2", "imagenet-w"
)
def imagenet_w(
    photos: Annotated[
        Path,
        argument(
            "ImageNet's validation photos: a folder for each class, named by its synset; or a "
            "folder of any photos, for which only P(carton) is measured.",
        ),
    ],
    model: Annotated[
        list[str],
        option(
            "A torchvision name, timm/NAME, clip/NAME-TAG, small_cnn, or package.module:function; repeatable.",
        ),
    ],
    weights: Annotated[
        list[str] | None,
        option(
            "For each --model, in order: a published name, an installed package with weights, or "
            "a .pt or .pth file of yours.",
        ),
    ] = None,
    weights_folder: Annotated[
        Path | None, option("Folder with torchvision's weight files, used instead of a download.")
    ] = None,
    size: Annotated[
        int, option("Input size of your own models, pixels per side.", min=16, max=2048)
    ] = 224,
    font: Annotated[
        Path | None,
        option("Font file for the watermark; default: the installed font closest to the paper's."),
    ] = None,
    text: Annotated[str | None, option("The watermark's text; default: the paper's.")] = None,
    sin: Annotated[Path | None, option("Stylized-ImageNet's validation photos.")] = None,
    in_r: Annotated[Path | None, option("ImageNet-R.", "--in-r")] = None,
    in9: Annotated[
        Path | None, option("ImageNet-9 with mixed_same, mixed_rand and in_to_in9.json.", "--in9")
    ] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], option("auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, option("CPU threads.", min=1, max=1024)] = 2,
    out: Annotated[Path, option("Folder for the table.")] = Path("outputs/imagenet_w"),
) -> None:
    """Measure how much models rely on the watermark of ImageNet-W. Its gaps, and those on other photos
    if given. `snakemake --configfile config/imagenet_w.yaml` does it for many models, and
    retrains last layers."""
    from diagvib.commands.imagenet_w import measure_networks
    from diagvib.scenes.photos.watermark import TEXT

    if weights and len(weights) != len(model):
        raise DiagvibError(
            f"--weights is given {len(weights)} times for {len(model)} models; give it once for "
            "each, in the same order, or not at all"
        )
    folders = {"val": photos, "sin": sin, "in_r": in_r, "in_9": in9}
    models = zip(model, weights or [None] * len(model), strict=True)
    used_folders = {name: folder for name, folder in folders.items() if folder}
    watermark_text = TEXT if text is None else text
    measure_networks(
        list(models), used_folders, font, size, device, threads, weights_folder, out, watermark_text
    )


_command(TRY, "cutout photos/cars/cars")(cutout)
_command(TRY, "generate config/photos/pasture/generation.yaml")(generate)

new = typer.Typer(no_args_is_help=True, help="Write the files for something of your own.")
app.add_typer(new, name="new", rich_help_panel=TRY)


def _new(kind: str, contents: str) -> None:
    """Register a command that writes files of one kind."""

    def command(
        name: Annotated[str, argument("Small letters, digits and '_', such as my_method.", "NAME")],
    ) -> None:
        paths = write_new(kind, name)
        print(f"written: {', '.join(map(str, paths))}; the choices are in comments")
        print(f"  python -m pytest {paths[-1]}")
        print(f"  diagvib run {paths[-2]}")

    text = f"Write {contents}, a configuration and a test. The choices are in comments."
    new.command(kind, help=text, epilog=f"Example: diagvib new {kind} my_{kind}")(command)


for _kind, _contents in KINDS.items():
    _new(_kind, _contents)


@new.command("photos", epilog="Example: diagvib new photos FOLDER --target bird --cue place")
def new_photos(
    folder: Annotated[Path, argument("The folder of the photos.")],
    table: Annotated[
        str | None,
        option(
            "A table in the folder, with a row for each photo: CSV, TSV, JSON lines or Parquet; by "
            "default the only one there. Without one, the folders' names are the labels.",
        ),
    ] = None,
    file: Annotated[str | None, option("The column with the photos' paths in the folder.")] = None,
    levels: Annotated[
        str | None, option("Names of the levels of folders, from the top, such as place,animal.")
    ] = None,
    target: Annotated[
        str | None,
        option("The column or level that should be learned; NAME=COLUMN gives it another name."),
    ] = None,
    cue: Annotated[
        list[str] | None,
        option("A column or level that may be a shortcut to it, or NAME=COLUMN; repeatable."),
    ] = None,
    split: Annotated[str | None, option("The column or level with train, val and test.")] = None,
    unit: Annotated[
        str | None,
        option(
            "The column that says which person, animal or place a photo shows; all photos of one "
            "are in one split.",
        ),
    ] = None,
    name: Annotated[str | None, option("A name for all files; default: the folder's.")] = None,
    out: Annotated[Path, option("The folder for the files.")] = Path(),
    unpack: Annotated[
        Path | None,
        option(
            "A new folder to which photos inside Parquet files are written, and used from there."
        ),
    ] = None,
) -> None:
    """Turn a folder of labelled photos into a scene, studies and a configuration. Says what it
    chose, and how to run it."""
    from diagvib.commands.new_photos import Columns, cells_text, look, write, write_sheet
    from diagvib.commands.unpack_photos import unpack as unpack_photos

    if unpack:
        unpack_photos(folder, unpack)
        folder, table, name = unpack, None, name or folder.resolve().name
    names = [level.strip() for level in levels.split(",")] if levels else []
    proposal = look(folder, table, Columns(file, target, cue or [], split, unit, names), name)
    print(cells_text(proposal))
    paths = write(proposal, out)
    sheet = out / f"{proposal.name}_cells.png"
    write_sheet(proposal, sheet)
    print(f"\nwritten: {', '.join(map(str, [*paths.values(), sheet]))}; each choice has a comment")
    print("Look at them, change what you like, then run in the repository's folder")
    configuration = quote(str(paths["configuration"]))
    print(f"  diagvib plan --config {configuration}")
    print(f"  snakemake --cores all --configfile {configuration}")


@_command(LOOK, "version")
def version() -> None:
    """Print the version."""
    print(__version__)


def _print_version(requested: bool) -> None:
    if requested:
        version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, option("Print the version.", "--version", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run a command. A user's mistake ends with one line on standard error and exit code 1; SIGTERM
    ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.set_threshold(
        100_000, 50, 100
    )  # by default, garbage collection takes a fifth of torch's import time
    try:
        with exits_refused():
            app()
    except DiagvibError as error:
        print(f"error: {one_line(error, 3000)}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # a file or folder that cannot be used as needed
        if error.strerror is None:
            raise
        print(f"error: {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as ending:
        # Typer makes an exit of the one that it gets.
        if isinstance(ending, SystemExit) and ending.code != _INTERRUPTED:
            raise
        print("interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(_INTERRUPTED)
