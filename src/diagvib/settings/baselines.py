"""Each baseline's settings, from `config/baselines/*.yaml`: a model, a method, an optimiser, and
how it is trained.

Does not import torch, so that planning stays quick.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path
from diagvib.foundation.validation import (
    Filled,
    InvalidField,
    Name,
    Sparse,
    Strict,
    Text,
    TextLike,
    Unique,
    misplaced,
    read_valid,
    validated,
)
from diagvib.foundation.versions import once_per_version
from diagvib.methods.registry import declaration
from diagvib.models.registry import check_model
from diagvib.settings.method_settings import MethodSettings, changed
from diagvib.settings.model_settings import Decay, Mlp, ModelSettings

Positive = Annotated[float, Field(gt=0, le=1000)]
BatchSize = Annotated[int, Field(ge=2, le=65536)]
NotNegative = Annotated[float, Field(ge=0, le=1000)]


# How an epoch is chosen: by a column of the history (the lowest loss, or the highest of any other),
# or the last.
SELECTION = (
    "val_loss|val_accuracy|val_worst_class|val_worst_group(_cue_[1-9])?|val_worst_inferred_group|"
    "val_environment_accuracy|last"
)
AUGMENTS = ("flip", "jitter", "grey")  # changes that training images may get


# A model or method without options may be given by its name alone.
_FROM_NAME = BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)


class Adam(Strict):
    name: Literal["adam"]
    lr: Positive
    """Learning rate."""
    betas: list[Decay] = Field([0.9, 0.999], min_length=2, max_length=2)
    """Decay rates of the moments."""
    weight_decay: NotNegative = 0.0


class AdamW(Adam):
    name: Literal["adamw"]


class Sgd(Strict):
    name: Literal["sgd"]
    lr: Positive
    """Learning rate."""
    momentum: Decay = 0.0
    weight_decay: NotNegative = 0.0


class BaselineSettings(Sparse):
    """A model, a method, an optimiser, and how they are used."""

    nullable = ("model",)
    model: Annotated[ModelSettings, _FROM_NAME] | None = None
    """A name, or a name with further keys; none if the method builds its own network."""
    method: Annotated[MethodSettings, _FROM_NAME]
    """A name, or a name with the method's options."""
    optimiser: Adam | AdamW | Sgd = Field(discriminator="name")
    batch_size: BatchSize
    """Images per training step."""
    drop_last: bool | None = None
    """Leave out an epoch's last batch if it is incomplete. Default: true."""
    normalise: Literal["dataset", "imagenet"] = "dataset"
    """The images whose pixel mean and standard deviation normalise the inputs."""
    augment: Unique[Literal[AUGMENTS]] | None = None
    """Random changes to training images, in the order given. flip: half of them are mirrored;
    jitter: brightness, contrast, saturation and hue; grey: one in ten. Default: none."""
    depends: Unique[str] | None = None
    """Files, by their paths from the current folder, that the model or method uses besides the
    modules that it imports: if one changes, the runs are made again."""
    selection: (
        Annotated[
            str,
            TextLike(
                SELECTION,
                "val_loss, val_accuracy, val_worst_class, val_worst_group, val_worst_group_cue_1 to _9, "
                "val_worst_inferred_group, val_environment_accuracy, or last, is needed",
            ),
        ]
        | None
    ) = None
    """Which epoch is kept: the one with the lowest val_loss, or with the highest value of another
    column of the history; or the last. Default: val_loss."""
    max_epochs: int | None = Field(None, ge=1, le=100_000)
    """Overrides training.max_epochs."""
    schedule: Literal["cosine"] | None = None
    """cosine: in each phase, the learning rate falls to 0 along half a cosine, after every epoch.
    Default: it is constant."""
    settings: Literal["tuned"] | None = None
    """tuned: runs have the settings that this baseline's tuning chooses; the workflow tunes first.
    Default: those written here."""
    optimiser_of: Name | None = None
    """A baseline from whose tuning `optimiser` is taken, before this one is tuned or trained."""

    @field_validator("depends")
    @classmethod
    def _exist(cls, files: list[str] | None) -> list[str] | None:
        for file in files or ():
            if not Path(file).is_file():
                raise ValueError(f"{file}: no such file")
        return files

    @model_validator(mode="after")
    def _fits_together(self) -> "BaselineSettings":
        declared = declaration(self.method.name)
        own_network = declared.own_network
        if own_network and self.model:
            raise InvalidField(
                "model", f"method {self.method.name} builds its own network; leave out this key"
            )
        if not own_network and not self.model:
            raise InvalidField(
                "model", f"the key is missing, but method {self.method.name} needs it"
            )
        with misplaced("model"):
            check_model(self.model and self.model.model_dump())
        head = self.model and self.model.head
        if not declared.trains and not own_network and head != "published":
            raise InvalidField(
                "model.head", f"method {self.method.name} trains nothing; write head: published"
            )
        if declared.trains and head == "published" and not self.model.frozen:
            raise InvalidField(
                "model.head",
                f"published is for frozen networks, and method {self.method.name} trains; add frozen: "
                "true, or leave it out",
            )
        if self.selection == "val_worst_inferred_group" and not declared.groups_validation:
            raise InvalidField(
                "selection",
                f"method {self.method.name} infers no groups of validation images, as xrm and ula do; choose "
                "another rule",
            )
        if not (self.model and self.model.frozen):
            return self
        # A frozen network's head is trained on features alone, and a linear one leaves them as they
        # are.
        if declared.uses_features and not isinstance(self.model.head, Mlp):
            raise InvalidField(
                "model.head",
                f"method {self.method.name} changes features, and those that a linear layer reads are "
                "fixed; write head: {mlp: UNITS}, or choose another method",
            )
        reads = "changes pixels" if declared.pixels else "needs images" if declared.needs else None
        if reads or self.augment:
            raise InvalidField(
                "model.frozen",
                "its head is trained on stored features, but "
                + (f"method {self.method.name} {reads}" if reads else "augment changes pixels")
                + "; choose another method, or train the whole network",
            )
        return self


class Baseline(BaselineSettings):
    """One entry of config/baselines."""

    origin: Text
    """Where the values come from."""
    title: Text | None = None
    """What it is called in `diagvib table`. Default: its name."""


# Folders and files are named after baselines.
_Entries = Filled[dict[Name, object]]


@once_per_version
def _entries(path: Path) -> dict[str, object]:
    return read_valid(_Entries, path)


def _known(more_files: Sequence[str | Path]) -> dict[str, tuple[Path, object]]:
    """File and entry of every baseline in `config/baselines` and in further files."""
    baselines: dict[str, tuple[Path, object]] = {}
    for path in [*sorted(definition_path("baselines").glob("*.yaml")), *map(Path, more_files)]:
        for name, entry in _entries(path).items():
            if name in baselines:
                raise DiagvibError(
                    f"{path}: {name}: this name is already taken; choose another one"
                )
            baselines[name] = path, entry
    return baselines


def baseline_names(more_files: Sequence[str | Path] = ()) -> list[str]:
    """Every baseline defined in `config/baselines` and in further files."""
    return [*_known(more_files)]


def load_settings(name: str, more_files: Sequence[str | Path] = ()) -> dict:
    """The complete settings of one baseline. DiagvibError for an unknown one, suggesting a similar
    name, and for anything wrong in its entry."""
    baselines = _known(more_files)
    if name not in baselines:
        files = ", ".join(map(str, ["config/baselines", *more_files]))
        raise unknown_name("baseline", name, baselines, files)
    path, entry = baselines[name]
    return complete(entry, name, str(path))


def complete(entry: dict, name: str = "baseline", location: str = "baselines") -> dict:
    """An entry with all defaults, as plain data: model (None if the method builds its own), method
    with all its options and its supervision, optimiser, batch_size, normalise, origin; max_epochs,
    augment, depends, drop_last, selection and schedule if given.

    DiagvibError naming file (`location`), entry and key for whatever is wrong.
    """
    return validated(dict[str, Baseline], {name: entry}, location)[name].model_dump()


def tuning_needed(settings: Mapping, baseline: str) -> list[str]:
    """The baselines that are tuned before this one is trained."""
    names = [settings.get("optimiser_of"), settings.get("settings") and baseline]
    return [name for name in names if name]


def with_tuned(settings: Mapping, baseline: str, folder: Path) -> dict:
    """A baseline's settings with those that tuning chose, where they refer to it. folder: of the
    results of tuning. DiagvibError if they are not there, or are those of another entry."""
    result = {**settings}
    tuned, source = result.pop("settings", None), result.pop("optimiser_of", None)
    if source:
        result["optimiser"] = _tuned(source, folder)["optimiser"]
    if not tuned:
        return result
    entry = _tuned(baseline, folder)
    entry.pop("origin")
    if entry.keys() != result.keys() or any(
        (entry[key] or {}).get("name") != (result[key] or {}).get("name")
        for key in ("model", "method", "optimiser")
    ):
        raise DiagvibError(
            f"{folder / baseline}.yaml: not a tuning of this entry, which has been changed since; "
            f"`diagvib tune {baseline}` with the same configuration makes it again"
        )
    return entry


def _tuned(baseline: str, folder: Path) -> dict:
    path = folder / f"{baseline}.yaml"
    if not path.is_file():
        raise DiagvibError(
            f"{path}: not there, but settings are to be those of this tuning; `diagvib tune {baseline}` "
            "with the same configuration makes it, and so does the workflow"
        )
    return complete(read_valid(_Entries, path)[baseline], baseline, str(path))


def shortened(settings: dict) -> dict:
    """The result of `complete` without defaults: an entry for people to read."""
    entry = Baseline.model_validate(settings).model_dump(exclude_defaults=True)
    entry["method"] = changed(settings["method"])
    return {
        key: value["name"] if key in ("model", "method") and list(value) == ["name"] else value
        for key, value in entry.items()
    }
