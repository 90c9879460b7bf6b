"""The command `diagvib imagenet-w`: measure models, and train last layers. Everything that is done
already is kept, so that the same command continues what was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagvib.foundation.errors import DiagvibError

if TYPE_CHECKING:
    from diagvib.imagenet_w.settings import Configuration


def imagenet_w(
    photos: Annotated[
        str | None,
        typer.Argument(
            help="ImageNet's validation photos: a folder for each class, named by its synset; or a "
            "folder of any photos, which have P(carton) but no accuracy."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A torchvision name, timm/NAME, small_cnn, or package.module:function; repeatable."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="For each --model, in order: a published name, an installed package with weights, or "
            "a .pt or .pth file of yours."
        ),
    ] = None,
    weights_folder: Annotated[
        str | None, typer.Option(help="Folder with torchvision's weight files, not downloaded.")
    ] = None,
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
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int, typer.Option(min=1, max=1024, help="CPU threads, including those for decoding.")
    ] = 2,
    out: Annotated[
        str, typer.Option(help="Folder for the results; existing results are not measured again.")
    ] = "outputs/imagenet_w_models",
    config: Annotated[
        Path | None,
        typer.Option(help="A configuration, such as config/imagenet_w.yaml, instead of options."),
    ] = None,
) -> None:
    """Measure how much models rely on the watermark. Reports accuracy and gaps on ImageNet-W, and
    on other photos if given; with a configuration, it also retrains last layers."""
    from diagvib.foundation.files import read_yaml
    from diagvib.foundation.validation import validated
    from diagvib.imagenet_w.settings import Configuration

    if config:
        if photos or model:
            raise DiagvibError("--config names photos and models itself; leave them out")
        given, where = read_yaml(config), str(config)
    else:
        if not photos or not model:
            raise DiagvibError("name a folder of photos and at least one --model, or a --config")
        if weights and len(weights) != len(model):
            raise DiagvibError(
                f"--weights is given {len(weights)} times for {len(model)} models; give it once for "
                "each, in the same order, or not at all"
            )
        chosen = zip(model, weights or [None] * len(model), strict=True)
        given = {
            "root": out,
            "photos": {"val": photos, "sin": sin, "in_r": in_r, "in_9": in9},
            "font": font,
            "weights_folder": weights_folder,
            "models": [{"name": name, "weights": of, "size": size} for name, of in chosen],
            "device": device,
            "threads": threads,
        }
        where = "imagenet-w"
    measure_all(validated(Configuration, given, where))


def measure_all(config: Configuration) -> None:
    """Measure the models, train the last layers, and write and print the tables."""
    from diagvib.foundation.devices import resolve_device
    from diagvib.foundation.files import write_json
    from diagvib.imagenet_w.classifiers import load_classifier
    from diagvib.imagenet_w.evaluation import evaluate
    from diagvib.imagenet_w.last_layer import store_features, train_last_layer
    from diagvib.imagenet_w.photo_sets import IMAGENET, photo_sets
    from diagvib.imagenet_w.photos import list_photos
    from diagvib.imagenet_w.stand_ins import make_stand_ins
    from diagvib.imagenet_w.tables import write_tables
    from diagvib.imagenet_w.views import METHODS
    from diagvib.imagenet_w.watermark import find_font

    root, font, device = Path(config.root), find_font(config.font), resolve_device(config.device)
    folders = config.photos.model_dump() if config.photos else make_stand_ins(config, font)
    sets, results = list(photo_sets(folders)), {"models": []}
    classes = sets[0].photos.classes
    in_folder = config.weights_folder and Path(config.weights_folder)

    def load(model):
        named = model.name, model.weights, len(classes) or IMAGENET
        return load_classifier(*named, device, model.size, in_folder)

    def note(kind: str, name: str, classifier, found: dict) -> None:
        about = {"model": classifier.name, "weights": classifier.weights, "font": font.name}
        result = {**about, "published_font": font.published, **found}
        write_json(root / "results" / kind / f"{name}.json", result)
        results[kind].append(result)

    for model in config.models:
        classifier, kept = load(model), root / "data" / "answers" / model.folder
        note(
            "models",
            model.folder,
            classifier,
            evaluate(classifier, sets, font, kept, config.threads),
        )
    if layer := config.last_layer:
        results["last_layer"], classifier = [], load(layer.model)
        views = list(dict.fromkeys(view for name in layer.methods for view in METHODS[name][1]))
        stored = store_features(
            classifier,
            list_photos(Path(folders["train"]), classes),
            sets,
            views,
            font,
            layer.seed,
            root / "data" / "features",
            config.threads,
        )
        for name in layer.methods:
            found = train_last_layer(name, layer, stored, root / "data" / "last_layer" / name)
            note("last_layer", name, classifier, found)
    write_tables(root / "results" / "tables", bool(config.stand_ins), **results)
