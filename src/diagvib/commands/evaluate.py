"""`diagvib evaluate`: a frozen network through chosen studies. It writes the configuration that a
user could have written, runs the workflow with it, and prints the tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    definition_path,
    file_sha256,
    read_yaml,
    text_sha256,
    write_yaml,
)
from diagvib.foundation.imports import find_source
from diagvib.models.registry import PACKAGES, family
from diagvib.settings.keys import ResolvedConfiguration
from diagvib.settings.resolve import load_config, overridden, without_baseline_keys

# Of each frozen baseline's head; not tuned.
_TRAINED = {"optimiser": {"name": "adam", "lr": 1e-3}, "batch_size": 64, "max_epochs": 100}
PUBLISHED = "diagvib.methods.views:Published"
# Of a baseline that trains nothing, of however few images.
OWN_OUTPUTS = {**_TRAINED, "batch_size": 8, "max_epochs": 1}
# Most letters of a baseline's name after the longest of _KINDS.
_LONGEST = 118
# Prefixes of the names of baselines that `evaluate` and `score` write.
_KINDS = ("frozen_", "fitted_", "zero_shot_", "scored_")
# Family of networks -> what gives the name of published weights, and their `input`.
_INPUTS = {
    "torchvision": "diagvib.models.torchvision_models:torchvision_input",
    "timm": "diagvib.models.timm_models:timm_input",
    "clip": "diagvib.models.clip:clip_input",
}


def frozen_baseline(model: str, weights: str | None = None, size: int | None = None) -> dict:
    """The entry for config/baselines, of a linear layer. weights: a published name, a file, or an installed package;
    None: random. size: pixels per side to which images are resized; None: as they are.
    DiagvibError for an unknown network or name of weights."""
    input_settings = {"size": size} if size else {}
    model, weights = with_tag(in_module(model), weights)
    _, trained = published_input(model, weights)
    if family(model) == "clip":  # which takes images of one size
        input_settings = {key: value for key, value in trained.items() if key != "resize"}
    elif weights and family(model) == "timm":
        input_settings |= {key: trained[key] for key in ("mean", "std")}
    network = {"name": model, "frozen": True, "input": input_settings or None}
    return {
        "model": {**network, "weights": weights_of(weights)},
        "method": "erm",
        "normalise": "imagenet" if weights and "mean" not in input_settings else "dataset",
        **_TRAINED,
        "origin": "diagvib evaluate; not tuned",
    }


def zero_shot(entry: dict) -> dict:
    """The entry for a CLIP network whose classifier is made of the names of classes."""
    published_head = {**entry["model"], "head": "published"}
    method = {"method": PUBLISHED, "max_epochs": 1}
    return {**entry, "model": published_head, **method, "origin": "diagvib evaluate; not trained"}


def in_module(model: str) -> str:
    """`FILE.py:function` as `package.module:function`; other names as they are."""
    file, colon, function = model.rpartition(":")
    if not colon or not file.endswith(".py"):
        return model
    module = ".".join(Path(file).with_suffix("").parts)
    if find_source(module) != Path(file).resolve() or not Path(file).is_file():
        raise DiagvibError(
            f"{file}: no such file below the current folder; name it from there, or its module as "
            "package.module:function"
        )
    return f"{module}:{function}"


def with_tag(model: str, weights: str | None) -> tuple[str, str | None]:
    """`clip/NAME-TAG` as `clip/NAME` and the tag of its weights; others as they are."""
    if family(model) != "clip":
        return model, weights
    from diagvib.models.clip import split_tag

    return split_tag(model, weights)


def write_configuration(
    entry: dict,
    studies: list[str],
    base: Path | None,
    overrides: list[str] | None,
    root: str | None,
) -> tuple[Path, ResolvedConfiguration]:
    """Write baselines.yaml and configuration.yaml for a baseline on these studies to the root;
    returns the latter's path and content. base: a configuration with all that is not given here,
    in place of `config/frozen.yaml`. DiagvibError for whatever is wrong in them."""
    frozen_settings = definition_path("frozen.yaml")
    settings = without_baseline_keys(overridden(base or frozen_settings, overrides))
    if settings.get("root") != read_yaml(frozen_settings)["root"]:
        root = root or settings.get("root")
    root = root or f"outputs/evaluate/{_in_paths(_network_words(entry))}"
    settings |= {"root": str(Path(root)), "studies": studies}
    training = (read_yaml(base).get("training") or {}) if base else {}
    epochs_given = "max_epochs" in training or any("max_epochs" in text for text in overrides or ())
    if epochs_given and entry["method"] == "erm":
        entry = {key: value for key, value in entry.items() if key != "max_epochs"}
    choices = {}
    if isinstance(entry["method"], dict):  # fitted elsewhere: as precise as it is there
        choices["training"] = {"precision": "fp32", **(settings.get("training") or {})}
    return write_files(settings, _named_entries(entry), choices, [base])


def write_files(
    settings: Mapping,
    entries: Mapping[str, dict],
    choices: Mapping,
    sources: Iterable[Path | None],
    outputs: Sequence[Path] = (),
) -> tuple[Path, ResolvedConfiguration]:
    """Write baselines.yaml with these entries, and configuration.yaml with these baselines, to the
    root of the settings; returns the latter's path and content. choices: keys that replace those of
    the settings; sources, outputs: as of `check_overwritten`, outputs besides these two files."""
    root = Path(settings["root"])
    baselines, file = root / "baselines.yaml", root / "configuration.yaml"
    check_overwritten([baselines, file, *outputs], *sources)
    files = dict.fromkeys([*(settings.get("baselines_from") or []), str(baselines)])
    names = {"baselines": [*entries], "baselines_from": [*files]}
    write_yaml(baselines, entries)
    write_yaml(file, {**settings, **names, **choices})
    return file, load_config(file)


def _named_entries(entry: dict) -> dict[str, dict]:
    """Baselines, named after their network: the given one; and of a CLIP network with a trained
    layer, the one without training."""
    network, method = entry["model"], entry["method"]
    name = baseline_name(re.sub("^(timm|transformers)/", "", network["name"]))
    kind = "frozen" if method == "erm" else "fitted" if isinstance(method, dict) else "zero_shot"
    entries = {f"{kind}_{name}": entry}
    if kind == "frozen" and family(network["name"]) == "clip" and network.get("weights"):
        entries[f"zero_shot_{name}"] = zero_shot(entry)
    return entries


def _network_words(entry: dict) -> str:
    """`resnet50 IMAGENET1K_V2 224`: network, weights and input size; `own` for its own outputs."""
    network, method = entry["model"], entry["method"]
    weights = network.get("weights")
    if isinstance(weights, dict):
        weights = weights.get("package") or f"{Path(weights['file']).stem}-{weights['sha256'][:8]}"
    size = (method if isinstance(method, dict) else network["input"] or {}).get("size")
    words = (network["name"], weights, size, None if method == "erm" else "own")
    return " ".join(str(word) for word in words if word)


def check_overwritten(paths: Iterable[Path], *sources: str | Path | None) -> None:
    """DiagvibError if one of these files, which are about to be written, is a source, or holds
    other baselines or predictions than those of `evaluate` and `score`."""
    for path in filter(Path.is_file, paths):
        if any(source and path.samefile(source) for source in sources) or not _written(path):
            raise DiagvibError(f"{path}: would be overwritten; name another folder with --root")


def _written(path: Path) -> bool:
    """Whether a file is of a kind that `evaluate` and `score` write."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", errors="replace") as file:
            return "recipes" in file.readline().strip().split(",")
    content = read_yaml(path)
    names = content.get("baselines", content) if isinstance(content, dict) else None
    return isinstance(names, list | dict) and all(str(n).startswith(_KINDS) for n in names)


def baseline_name(text: str) -> str:
    """A text as part of a baseline's name, in which letters beyond ASCII and long texts are replaced
    by a hash."""
    name = _in_paths(text)
    if name.isascii() and len(name) <= _LONGEST:
        return name
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:80]}-{text_sha256(name)[:8]}"


def _in_paths(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def weights_of(weights: str | None) -> str | dict | None:
    """A baseline's `weights`: an installed package, a file with its hash, or a published name."""
    if weights in PACKAGES:
        return {"package": weights}
    path = Path(weights or "")
    if path.is_file():
        return {"file": weights, "sha256": file_sha256(path)}
    if path.suffix or len(path.parts) > 1:  # as no published name has
        raise DiagvibError(f"{weights}: no such file; name the file with the weights")
    return weights


def published_input(model: str, weights: str | None) -> tuple[str | None, dict | None]:
    """The name of a network's published weights, by default its package's choice, and the baseline's
    `input` with which they were trained; a package's have the input of timm's default. The `input`
    is None for other networks."""
    kind, network_weights = family(model), weights_of(weights)
    if kind not in _INPUTS:
        return weights, None
    tag_name = network_weights if isinstance(network_weights, str) else None
    tag, input_settings = resolve_name(_INPUTS[kind])(model, tag_name)
    return weights or tag, input_settings


def run_and_print(file: Path, config: ResolvedConfiguration, cores: int) -> None:
    """Run the workflow with a configuration and print the tables."""
    from diagvib.commands.run import run_workflow
    from diagvib.papers.all_tables import shown_tables
    from diagvib.results.reader_tables import by_section, describe_doubtful, print_table
    from diagvib.results.tidy_tables import read_tables
    from diagvib.settings.layout import Layout
    from diagvib.studies.known_studies import known_studies

    if run_workflow(str(file), ["--cores", str(cores)]):
        raise DiagvibError(f"the workflow stopped; `diagvib run {quote(str(file))}` continues it")
    layout, studies_known = Layout(config.root), known_studies(dict(config))
    frames = read_tables(layout.tables)
    tables_shown = [table for table in shown_tables(frames, studies_known) if not table.folded]
    for _, sentences, tables in by_section(tables_shown):
        for table in tables:
            print_table(table)
        print(*sentences, sep="\n")
    for line in describe_doubtful(frames["runs"]):
        print(line)
    print(f"All tables, figures and the report: {layout.report}")
