"""`diagvib evaluate --head own`: a classifier that was fitted elsewhere, with its own outputs."""

import csv
from collections import Counter
from pathlib import Path

from diagvib.commands.evaluate import (
    OWN_OUTPUTS,
    PUBLISHED,
    frozen_baseline,
    in_module,
    published_input,
    weights_of,
    with_tag,
    write_configuration,
    zero_shot,
)
from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import read_yaml, write_yaml
from diagvib.foundation.validation import validated
from diagvib.models.registry import family
from diagvib.scenes import load_scene
from diagvib.scenes.photos.scene import Photos
from diagvib.settings.keys import Configuration
from diagvib.settings.model_settings import ModelSettings
from diagvib.settings.resolve import load_config

_PLAIN = {"mean": [0.0] * 3, "std": [1.0] * 3}  # pixel values from 0 to 1


def fitted_baseline(
    model: str, weights: str | None = None, size: int | None = None, classes: str | None = None
) -> dict:
    """The entry for config/baselines of a classifier with its own outputs. weights: as of
    `frozen_baseline`; without, the package's choice of published ones. size: pixels per side to which
    images are resized. classes: as of `read_classes`."""
    model, weights = with_tag(model, weights)
    if family(model) == "clip":
        return zero_shot(frozen_baseline(model, weights or published_input(model, None)[0], size))
    name, files = _named(model)
    scaling = _scaling(name, weights, size)
    weights = weights or published_input(name, None)[0]
    if not weights and family(name) not in ("own", "transformers"):
        raise DiagvibError(
            f"--weights: without weights, {name} is random; name a file of fitted ones"
        )
    entry = {
        "model": {"name": name, "weights": weights_of(weights), "head": "published"},
        "method": {"name": "diagvib.methods.fitted:Fitted", "classes": read_classes(classes)},
        **OWN_OUTPUTS,
        **({"depends": files} if files else {}),
        "origin": "diagvib evaluate --head own; fitted elsewhere",
    }
    entry["method"] |= {key: value for key, value in scaling.items() if value is not None}
    return entry


def _named(model: str) -> tuple[str, list[str]]:
    """A model's name in config/baselines, and the files that it depends on."""
    folder = Path(model.removeprefix("transformers/"))
    if model.startswith("transformers/") or (folder / "config.json").is_file():
        if not (folder / "config.json").is_file():
            raise DiagvibError(
                f"{folder}: no such folder with a config.json, as save_pretrained writes"
            )
        return f"transformers/{folder}", sorted(map(str, filter(Path.is_file, folder.iterdir())))
    return in_module(model), []


def _scaling(name: str, weights: str | None, size: int | None) -> dict:
    """The options of the method that say how images are prepared."""
    kind, is_file = family(name), isinstance(weights_of(weights), dict)
    if kind == "transformers":
        from diagvib.models.fitted import transformers_input

        values = transformers_input(Path(name.removeprefix("transformers/")))
    elif kind in ("torchvision", "timm"):
        values = published_input(name, None if is_file else weights)[1]
        keys = ("mean", "std", *(() if is_file else ("size", "interpolation")))
        values = {key: values[key] for key in keys if key in values}
    else:
        values = _PLAIN if kind == "own" else {}
    return values | ({"size": size} if size else {})


def read_classes(classes: str | None) -> dict[str, str]:
    """Which output means which class: `tabby=cat,7=dog`, or a file: YAML with `output: class`, or
    CSV with these two columns, with or without a header."""
    if not classes:
        return {}
    path = Path(classes)
    if path.suffix in (".yaml", ".yml"):
        pairs = _yaml_pairs(path)
    elif path.suffix == ".csv":
        pairs = _csv_pairs(path)
    else:
        pairs = [tuple(pair.split("=", 1)) for pair in classes.split(",")]
    invalid = [" ".join(pair) for pair in pairs if len(pair) != 2 or not all(pair)]
    if invalid or not pairs:
        raise DiagvibError(
            f"--classes {classes}: {some_names(invalid, 3) or 'empty'}; write output=class,output=class, or "
            "name a file: .yaml with `output: class`, or .csv with these two columns"
        )
    counts = Counter(output for output, _ in pairs)
    if doubled := [output for output, count in counts.items() if count > 1]:
        raise DiagvibError(
            f"--classes {classes}: {len(doubled):,} outputs mean several classes: {some_names(doubled, 3)}"
        )
    return dict(pairs)


def _yaml_pairs(path: Path) -> list[tuple]:
    content = read_yaml(path)
    if not isinstance(content, dict) or any(isinstance(v, dict | list) for v in content.values()):
        raise DiagvibError(f"{path}: a mapping is needed: a line `output: class` for each output")
    return [(str(output), str(name)) for output, name in content.items()]


def _csv_pairs(path: Path) -> list[tuple]:
    if not path.is_file():
        raise DiagvibError(f"{path}: no such file; a row `output,class` for each output is needed")
    with path.open(newline="", encoding="utf-8-sig") as file:
        pairs = [tuple(cell.strip() for cell in row) for row in csv.reader(file) if row]
    return pairs[1:] if pairs[:1] == [("output", "class")] else pairs


def write_fitted(
    entry: dict,
    studies: list[str],
    base: Path | None,
    overrides: list[str] | None,
    root: str | None,
) -> tuple[Path, Configuration]:
    """As `write_configuration`, with the bindings that fit the classifier's outputs."""
    file, config = write_configuration(entry, studies, base, overrides, root)
    if entry["method"] != PUBLISHED:  # which has a word for each class
        write_yaml(file, read_yaml(file) | {"bindings": fitting_bindings(entry, config)})
        config = load_config(file)
    return file, config


def fitting_bindings(entry: dict, config: Configuration) -> list[str]:
    """The bindings of a configuration whose target has the classes that a classifier's outputs mean.
    DiagvibError if there is none, or if the outputs may mean the classes of several factors."""
    from diagvib.models.fitted import check_numbers, fitted_network, outputs_of_classes

    method, model = entry["method"], entry["model"]
    settings = validated(ModelSettings, model, f"model: {model['name']}").model_dump()
    network = fitted_network(settings, method.get("size") or config.image_size)
    count = network.count
    bindings = {
        (binding.name, binding.target): load_scene(config.study(study).scene)
        for study in config.studies
        for binding in config.study_bindings(study, config.bindings)
    }
    problems, fitting = {}, {}
    for (name, target), scene in bindings.items():
        try:
            outputs_of_classes(method["classes"], network.names, count, scene.factors[target])
            if isinstance(scene, Photos):
                check_numbers(method["classes"], network.names, scene.class_values(target))
            fitting.setdefault(target, []).append(name)
        except DiagvibError as error:
            problems.setdefault(target, error)
    if not fitting:
        target, problem = next(iter(problems.items()))
        raise DiagvibError(f"--classes: {target}: {problem}")
    if len(fitting) > 1:
        example = next(iter(fitting.values()))[0]
        raise DiagvibError(
            f"bindings: the classifier's {count:,} outputs may be the classes of "
            f"{' or of '.join(fitting)}; say which, such as --set 'bindings=[{example}]'"
        )
    return next(iter(fitting.values()))
