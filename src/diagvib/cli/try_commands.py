"""Commands for trying something: a configuration, a baseline, a network or photos of your own."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from diagvib import stages
from diagvib.cli.application import TRY, Classes, Config, Override, register
from diagvib.commands.cutout import cutout
from diagvib.commands.generate import generate
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.validation import validated
from diagvib.settings.keys import Root
from diagvib.settings.resolve import load_config
from diagvib.stages import argument, option

Cores = Annotated[int | None, option("CPU cores; default: all.", min=1)]


@register(
    TRY, "run demo", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
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
    if "--set" in options:
        raise DiagvibError("--set: write --config KEY=VALUE, as Snakemake has it")
    if any(argument.startswith("--configfile") for argument in options):  # would replace CONFIG
        raise DiagvibError("--configfile: write one file alone, as in `diagvib run FILE`")
    if "--config" in options and "=" not in "".join(options[options.index("--config") + 1 :][:1]):
        raise DiagvibError("--config: the file comes first, as in `diagvib run FILE`")
    raise typer.Exit(run_workflow(name, options))


@register(TRY, "evaluate resnet50 zgo fgo-20 --weights IMAGENET1K_V2")
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
        option("linear: train a layer on its features; own: use its own outputs unchanged."),
    ] = "linear",
    classes: Classes = None,
    weights: Annotated[
        str | None,
        option(
            "The name of published weights, a file, or an installed package; default: random, and "
            "with --head own the published ones."
        ),
    ] = None,
    input_size: Annotated[
        int | None,
        option("Pixels per side to which images are resized; default: as they are.", min=1),
    ] = None,
    config: Annotated[
        Path | None,
        option("Configuration of everything else; default: config/frozen.yaml.", "--config"),
    ] = None,
    override: Override = None,
    root: Annotated[
        str | None,
        option(
            "Folder for data/ and results/; default: --config's, or outputs/evaluate/MODEL-WEIGHTS-SIZE."
        ),
    ] = None,
    cores: Cores = None,
) -> None:
    """Train linear layers on the features of a frozen network, in every binding of some studies. Or,
    with `--head own`, measure a fitted classifier as it is. Writes a configuration to the root, runs
    the workflow with it and prints the tables."""
    from diagvib.commands import evaluate as command
    from diagvib.commands.fitted_classifier import fitted_baseline, write_fitted

    if classes and head != "own":
        raise DiagvibError("--classes: this is for --head own; a new layer has the study's classes")
    root = root and validated(Root, root, "--root")
    if head == "own":
        entry, write = fitted_baseline(model, weights, input_size, classes), write_fitted
    else:
        entry = command.frozen_baseline(model, weights, input_size)
        write = command.write_configuration
    command.run_and_print(*write(entry, studies, config, override, root), stages.cores(cores))


@register(TRY, "score predictions.csv --config mine.yaml")
def score(
    predictions: Annotated[
        Path, argument("CSV with the columns file and prediction, and perhaps confidence.", "CSV")
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
    cores: Cores = None,
) -> None:
    """Measure predictions that were made elsewhere. They name test images of `diagvib export --png` or
    photos by their files. Runs the workflow and prints the tables."""
    from diagvib.commands.evaluate import run_and_print
    from diagvib.commands.score import score

    root, cores = root and validated(Root, root, "--root"), stages.cores(cores)
    run_and_print(*score(predictions, config, study, classes, override, root, cores), cores)


@register(TRY, "try jtt zgo shape-hue --config mine.yaml", "try")
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


@register(TRY, "plan --time --config mine.yaml")
def plan(
    config: Config = None,
    override: Override = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, option("cpu or cuda; default: the configuration's.")
    ] = None,
    gpus: Annotated[int, option("Estimate for this many GPUs together.", min=1)] = 1,
    rates: Annotated[
        list[Path] | None,
        option("Result file of benchmarks/render.py or train.py from another machine; repeatable."),
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
            "Instead, show how many dataset samples and seeds it takes to detect an effect of so many points.",
            min=0.1,
            max=100,
        ),
    ] = None,
    json_output: Annotated[bool, option("Print JSON instead of a table.", "--json")] = False,
) -> None:
    """Show what a configuration will make. Estimates disk space and time, and starts nothing."""
    from diagvib.commands import detect as needs
    from diagvib.commands.plan import estimate
    from diagvib.commands.plan_table import print_plan

    resolved = load_config(config, override)
    if detect:
        numbers = detect / 100, resolved.samples, resolved.seeds
        if json_output:
            variances = needs.pooled(needs.read_components())
            measured = list(needs.needed_as_measured(*numbers, variances))
            by_deviation = needs.needed_by_deviation(detect / 100)
            print(json.dumps({"by_deviation": by_deviation, "measured": measured}, indent=2))
        else:
            needs.print_needed(*numbers)
        return
    estimated = estimate(resolved, device, gpus, rates, time)
    if json_output:
        print(json.dumps(estimated, indent=2))
    else:
        print_plan(estimated, resolved)


@register(
    TRY, "imagenet-w photos/imagenet/val --model resnet50 --weights IMAGENET1K_V2", "imagenet-w"
)
def imagenet_w(
    photos: Annotated[
        Path,
        argument(
            "ImageNet's validation photos: a folder for each class, named by its synset; or a "
            "folder of any photos, for which only P(carton) is measured."
        ),
    ],
    model: Annotated[
        list[str],
        option(
            "A torchvision name, timm/NAME, clip/NAME-TAG, small_cnn, or package.module:function; repeatable."
        ),
    ],
    weights: Annotated[
        list[str] | None,
        option(
            "For each --model, in order: a published name, an installed package with weights, or "
            "a .pt or .pth file of yours."
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
    """Measure how much models rely on the watermark of ImageNet-W. Reports its gaps, and those on
    other photos if given. `snakemake --configfile config/imagenet_w.yaml` does it for many models,
    and retrains last layers."""
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


register(TRY, "cutout photos/cars/cars")(cutout)
register(TRY, "generate config/photos/pasture/generation.yaml")(generate)
