"""What each stage of the ImageNet-W workflow does: one function per stage, with its name, given
only its settings."""

from __future__ import annotations

from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, read_json, write_digests, write_json
from diagvib.imagenet_w.settings import Layout


def stand_ins(layout: Layout, settings: dict, name: str | None, device: str, threads: int) -> None:
    """Draw photos by code, and train a small network on them; then write the digests."""
    from diagvib.imagenet_w.small_net import train_small_net
    from diagvib.imagenet_w.stand_ins import draw_stand_ins
    from diagvib.imagenet_w.watermark import find_font

    given = settings["stand_ins"]
    if not given:
        raise DiagvibError("stand_ins: the configuration names photos; there is nothing to draw")
    draw_stand_ins(
        layout.photos,
        given["train"],
        given["val"],
        given["size"],
        given["watermarked"],
        find_font(settings["font"]),
    )
    train_small_net(
        layout.photos, given["size"], given["epochs"], layout.small_net, settings["threads"]
    )
    files = sorted(
        path for path in layout.photos.rglob("*") if path.is_file() and path.name != DIGESTS_FILE
    )
    write_digests(layout.photos, [str(path.relative_to(layout.photos)) for path in files])


def evaluate(
    layout: Layout,
    settings: dict,
    name: str | None,
    device: str,
    threads: int,
    weights_folder: Path | None = None,
) -> None:
    """Measure a model with its own last layer."""
    from diagvib.imagenet_w import evaluation
    from diagvib.imagenet_w.photo_sets import photo_sets
    from diagvib.imagenet_w.watermark import find_font

    sets, font = list(photo_sets(_folders(settings))), find_font(settings["font"])
    classifier = _classifier(settings["model"], len(sets[0].photos.classes), device, weights_folder)
    found = evaluation.evaluate(classifier, sets, font, layout.answers(name), threads)
    write_json(layout.model(name), {**_origin(classifier, font), **found})


def features(
    layout: Layout,
    settings: dict,
    name: str | None,
    device: str,
    threads: int,
    weights_folder: Path | None = None,
) -> None:
    """Compute the features of training photos, plain and augmented, and of all photos to measure
    on."""
    from diagvib.imagenet_w.features import set_features, training_features
    from diagvib.imagenet_w.last_layer import HEAD, save_head
    from diagvib.imagenet_w.photo_sets import photo_sets
    from diagvib.imagenet_w.photos import list_photos
    from diagvib.imagenet_w.watermark import find_font

    sets, font = list(photo_sets(_folders(settings))), find_font(settings["font"])
    classes = sets[0].photos.classes
    classifier = _classifier(settings["model"], len(classes), device, weights_folder)
    save_head(classifier.network.head, layout.features / HEAD)
    training_features(
        classifier,
        list_photos(Path(settings["photos"]["train"]), classes),
        settings["variants"],
        font,
        settings["seed"],
        layout.features / "train",
        threads,
    )
    for chosen in sets:
        set_features(classifier, chosen, font, layout.features / "sets", threads)
    write_json(layout.features / "features.json", _origin(classifier, font))


def last_layer(layout: Layout, settings: dict, name: str | None, device: str, threads: int) -> None:
    """Measure the last layer that a method trains."""
    from diagvib.foundation.devices import resolve_device
    from diagvib.imagenet_w.last_layer import Kept, Recipe, train_last_layer
    from diagvib.imagenet_w.photo_sets import photo_sets
    from diagvib.imagenet_w.photos import list_photos

    sets = list(photo_sets(_folders(settings)))
    labels = list_photos(Path(settings["photos"]["train"]), sets[0].photos.classes).labels
    recipe = Recipe(
        settings["epochs"],
        settings["batch_size"],
        settings["learning_rates"],
        settings["seed"],
        settings["threads"],
    )
    found = train_last_layer(
        name, recipe, Kept(layout.features, labels, sets), layout.work(name), resolve_device(device)
    )
    write_json(layout.method(name), {**read_json(layout.features / "features.json"), **found})


def compare(layout: Layout, settings: dict, name: str | None, device: str, threads: int) -> None:
    """Write both tables, with the paper's numbers."""
    from diagvib.imagenet_w.tables import write_tables

    write_tables(
        layout.tables,
        settings["stand_ins"],
        models=[read_json(layout.model(model)) for model in settings["models"]],
        last_layer=[read_json(layout.method(method)) for method in settings["methods"]],
    )


def _folders(settings: dict):
    from diagvib.imagenet_w.photo_sets import Folders

    return Folders(
        **{
            key: Path(value) if value else None
            for key, value in settings["photos"].items()
            if key != "train"
        }
    )


def _classifier(model: dict, n_classes: int, device: str, weights_folder: Path | None):
    from diagvib.foundation.devices import resolve_device
    from diagvib.imagenet_w.classifiers import load_classifier

    return load_classifier(
        model["name"],
        model["weights"],
        n_classes,
        resolve_device(device),
        model["size"],
        weights_folder,
    )


def _origin(classifier, font) -> dict:
    """The origin of results, as they record it."""
    return {
        "model": classifier.name,
        "weights": classifier.weights,
        "classes": classifier.n_classes,
        "font": font.name,
        "published_font": font.published,
    }
