"""The commands `diagvib imagenet-w` and `diagvib imagenet-w-stage`."""

from pathlib import Path
from typing import Annotated

import typer

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.imagenet_w.plan import plan_workflow
from diagvib.imagenet_w.settings import (
    STAGES,
    Layout,
    Model,
    load_config,
    read_settings,
    stage_settings,
)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[
    int, typer.Option(min=1, max=1024, help="CPU threads, including those for decoding.")
]
WeightsFolder = Annotated[
    Path | None, typer.Option(help="Folder with torchvision's weight files, instead of a download.")
]


def imagenet_w(
    val: Annotated[
        Path,
        typer.Argument(
            metavar="VAL_FOLDER",
            help="ImageNet's validation photos: a folder for each class, named by its synset.",
        ),
    ],
    model: Annotated[
        list[str],
        typer.Option(
            help="A torchvision name, timm/NAME, small_cnn, or package.module:function; repeatable."
        ),
    ],
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="For each --model, in order: a published name, or a .pt or .pth file of yours."
        ),
    ] = None,
    weights_folder: WeightsFolder = None,
    size: Annotated[
        int, typer.Option(min=16, max=2048, help="Image size for your own models.")
    ] = 224,
    font: Annotated[
        str | None,
        typer.Option(
            help="Font file for the watermark; default: the installed font closest to the paper's."
        ),
    ] = None,
    sin: Annotated[str | None, typer.Option(help="Stylized-ImageNet's validation photos.")] = None,
    in_r: Annotated[str | None, typer.Option("--in-r", help="ImageNet-R.")] = None,
    in9: Annotated[
        str | None,
        typer.Option("--in9", help="ImageNet-9 with mixed_same, mixed_rand and in_to_in9.json."),
    ] = None,
    device: Device = "auto",
    threads: Threads = 2,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; existing results are not measured again.")
    ] = Path("outputs/imagenet_w_models"),
) -> None:
    """Measure how much models rely on the watermark. Reports accuracy and gaps on ImageNet-W, and
    on other photos if given."""
    from diagvib.foundation.files import read_json
    from diagvib.imagenet_w import stages
    from diagvib.imagenet_w.tables import print_table, write_tables

    if weights and len(weights) != len(model):
        raise DiagvibError(
            f"--weights is given {len(weights)} times for {len(model)} models; give it once for each, "
            "in the same order, or not at all"
        )
    layout, results = Layout(out), []
    for name, given in zip(model, weights or [None] * len(model), strict=True):
        chosen = Model(name=name, weights=given, size=size)
        stages.evaluate(
            layout,
            {
                "photos": {"val": str(val), "sin": sin, "in_r": in_r, "in_9": in9},
                "font": font,
                "model": chosen.model_dump(),
            },
            chosen.folder,
            device,
            threads,
            weights_folder,
        )
        results.append(read_json(layout.model(chosen.folder)))
    write_tables(layout.tables, stand_ins=False, models=results)
    print_table("models", results)


def imagenet_w_stage(
    stage: Annotated[str, typer.Argument(help=f"{', '.join(STAGES)}.")],
    name: Annotated[
        str | None,
        typer.Argument(
            help="evaluate: a model, by the name of its results folder; last_layer: a method."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Default: config/imagenet_w.yaml.")] = None,
    settings: Annotated[
        str | None, typer.Option(help="This stage's settings as JSON, instead of a configuration.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Default: the configuration's.")] = None,
    weights_folder: WeightsFolder = None,
    device: Device = "auto",
    threads: Threads = 2,
) -> None:
    """Run a stage of the ImageNet-W workflow. `snakemake --snakefile rules/imagenet_w.smk` runs all
    of them in order."""
    from diagvib.foundation.files import definition_path
    from diagvib.imagenet_w import stages

    if stage not in STAGES:
        raise unknown_name("stage", stage, STAGES)
    if settings is not None:
        if config is not None or root is None:
            raise DiagvibError(
                "--settings replaces a configuration; give it with --root and without --config"
            )
        chosen = read_settings(settings, stage)
    else:
        resolved = load_config(config or definition_path("imagenet_w.yaml"))
        chosen, root = stage_settings(resolved, stage, name), root or Path(resolved["root"])
        weights_folder = weights_folder or (
            Path(resolved["weights_folder"]) if resolved["weights_folder"] else None
        )
    loading = {"weights_folder": weights_folder} if stage in ("evaluate", "features") else {}
    getattr(stages, stage)(Layout(root), chosen, name, device, threads, **loading)


__all__ = ["plan_workflow", "register_commands"]


def register_commands(app: typer.Typer) -> None:
    app.command("imagenet-w")(imagenet_w)
    app.command("imagenet-w-stage")(imagenet_w_stage)
