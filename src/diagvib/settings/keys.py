"""The keys of a configuration. `config/schema/config.schema.yaml` is generated from this."""

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.validation import (
    Distinct,
    Name,
    Strict,
    Text,
    TextLike,
    Unique,
    no_item_twice,
)
from diagvib.foundation.versions import file_version
from diagvib.scenes import PUBLISHED_TEXTURES, load_scene
from diagvib.settings.baselines import BatchSize, Positive, tuning_needed
from diagvib.settings.frozen_networks import network_name
from diagvib.settings.ranges import ALL_BASELINES, RandomSearch, Seed
from diagvib.studies.binding import Binding, possible_bindings
from diagvib.studies.study import Study, load_study, study_files

Count = Annotated[int, Field(ge=1, le=100_000)]
ImageCount = Annotated[int, Field(ge=9, le=10_000_000)]
Counts = dict[Name, ImageCount]
ImageSize = Annotated[int, Field(ge=64, le=256)]
Images = Literal["parquet", "render"]
Samples = Count
# One seed is not written down, as before there were more.
Seeds = Annotated[Count, Field(exclude_if=lambda seeds: seeds == 1)]
Sources = Literal["official", "embedded"]
# As scenes are named after it: `a` for `./a/`.
Textures = Annotated[
    str,
    TextLike(
        r"[^+:{}\x00-\x1f\x7f]{1,1000}",
        "name a folder, a list of files or `published`, without '+', ':', '{', '}' or control "
        "characters",
    ),
    AfterValidator(os.path.normpath),
]
# Only a shell replaces these two.
_WRITTEN_OUT = r"(?!~|.*\$\w)"
# As records name it: `a` for `./a/`.
Root = Annotated[
    str,
    TextLike(
        _WRITTEN_OUT + r"(?!\s)[^{}:\x00-\x1f\x7f]{1,1000}(?<!\s)",
        "name a folder in at most 1,000 letters, without '{', '}', ':' or control characters, without "
        "spaces at either end, '~' at the start or a variable like $HOME",
    ),
    AfterValidator(lambda root: str(Path(root))),
]


_SlotDevice = Annotated[
    str,
    TextLike(
        r"cpu|cuda:\d{1,3}|[^\s,{}]+( [^\s,{}]+)+",
        "name cpu; a GPU by its number, like cuda:0; or the command that runs a line of shell on another "
        "machine, like `ssh gpu1`",
    ),
]


def _gpus_once(devices: list[str]) -> list[str]:
    no_item_twice([device for device in devices if device.startswith("cuda:")])
    return devices


Devices = (
    Literal["all"] | Annotated[list[_SlotDevice], Field(min_length=1), AfterValidator(_gpus_once)]
)


class Training(Strict):
    """How every baseline is trained."""

    max_epochs: Count
    patience: Count | None
    """training stops after this many epochs in a row that are no better by the baseline's selection
    rule; not with selection: last. Counted in each phase of a method; phases that keep
    their last epoch, such as identify of jtt, do not stop early. null: never"""
    seed: Seed
    precision: Literal["bf16", "fp32"]
    """bf16: autocast, on CUDA and on CPUs with AVX512-BF16 or AMX; on other CPUs fp32"""
    threads: Annotated[int, Field(ge=1, le=1024)]
    """CPU threads of one training job; their number affects the result, since sums depend on it"""
    track_test: bool
    """runs also record test accuracies after every epoch, to draw curves and compare selection
    rules; they never select an epoch"""


class Tuning(Strict):
    """The candidates of `diagvib tune`: every batch size with every learning rate, or the trials of
    a random search."""

    study: Name
    """the study on which candidates are compared; for the grid, one that binds only a target"""
    batch_sizes: Unique[BatchSize]
    learning_rates: Unique[Positive]
    factors: Unique[str]
    """target factors over which the grid's validation loss is averaged"""
    samples: Unique[Annotated[int, Field(ge=0)]]
    """numbers of the dataset samples that candidates are trained on; their results are averaged"""
    max_epochs: Count | None
    """null: as in other runs of the baseline"""
    random_search: RandomSearch | None
    """trials of a random search instead of the grid of batch_sizes, learning_rates and factors;
    null: the grid"""

    @property
    def bindings(self) -> list[str]:
        """The bindings of the study whose images a baseline is tuned on."""
        return self.random_search.bindings if self.random_search else self.factors

    def of_baseline(self, baseline: str, method: str) -> "Tuning":
        """This section for a baseline with this method, with only the ranges that it draws from. Of a
        resolved configuration, which has the ranges themselves, not the name of a set."""
        if not (search := self.random_search):
            return self
        sections = (ALL_BASELINES, method, baseline)
        baseline_ranges = {name: search.ranges[name] for name in sections if name in search.ranges}
        search = search.model_copy(
            update={"ranges": baseline_ranges, "trials": search.trials_of(baseline, method)}
        )
        return self.model_copy(update={"random_search": search})


class BaselineChoice(Strict):
    """A baseline for some studies or bindings only, with another number of epochs or batch size, or
    with tuned settings."""

    name: Name
    studies: Unique[Name] | None = None
    bindings: Unique[str] | None = None
    max_epochs: Count | None = None
    batch_size: BatchSize | None = None
    settings: Literal["tuned"] | None = None


class ResolvedBaseline(Strict):
    """A baseline of a resolved configuration: its complete settings, and the studies and bindings
    that it is trained on."""

    name: Name
    studies: list[Name]
    bindings: Literal["all"] | list[str]
    settings: dict[str, JsonValue]

    @property
    def network(self) -> str | None:
        """The folder of the features of a frozen network; None without one."""
        return network_name(self.settings)


@cache  # of each version of the files: a configuration with many jobs asks a thousand times
def _study(name: str, files: tuple, textures: tuple, versions: tuple) -> Study:
    return load_study(name, files, textures)


class Experiment(Strict):
    """The keys of a configuration that its results depend on."""

    sources: Sources
    """official: the published source files; embedded: stand-ins that need no download"""
    studies: Unique[Name]
    """names from config/studies"""
    studies_from: Distinct[str]
    """your own study files; paths are relative to this file, or to the current folder"""
    textures: Unique[Textures] = Field(
        default_factory=lambda: [*PUBLISHED_TEXTURES],
        # As before there were others.
        exclude_if=lambda textures: textures == [*PUBLISHED_TEXTURES],
    )
    """the classes of the factor texture: published, the paper's five; a folder with a photo of each
    surface; or a list of such files with their hashes and licences, NAME.yaml, like
    config/sources.yaml. 2 to 50 together; paths are relative to this file, or to the current folder"""
    bindings: Literal["all"] | Unique[str]
    """which factor plays which role: target-cue, such as shape-hue, or target-cue-cue; a target alone,
    such as shape, for studies without cues; or all, with each set of cues in one order"""
    samples: Samples
    """how many dataset samples; the published ones come first, further ones are drawn. With a scene
    of photos, which has one dataset: how many training runs on it, each with its own seed"""
    seeds: Seeds = 1
    """how many training seeds on each dataset sample: initial weights, order of batches, dropout. The
    first is training.seed; of further ones, each sample has others. With a scene of photos: 1"""
    counts: Counts
    """images per dataset: train, val, and a number for each test group; or test, the total for
    studies none of whose groups has a number, divided according to the weights of their rows"""
    image_size: ImageSize
    """side length of the images in pixels"""
    images: Images
    """parquet: image files; render: each job renders the images that it needs, and none are
    written"""
    baselines: Unique[Name | BaselineChoice]
    """names from config/baselines, or entries that restrict a baseline to some studies or bindings,
    or change its max_epochs or batch_size"""
    mine: Name | None = Field(None, exclude_if=lambda name: name is None)
    """the baseline that is yours: the page begins with it, and it stands last in tables and figures"""
    training: Training

    def study(self, name: str) -> Study:
        """A study by its name or alias."""
        files = tuple(self.studies_from)
        versions = tuple(map(file_version, study_files(files)))
        return _study(name, files, tuple(self.textures), versions)

    def study_bindings(self, study: str, names: list[str] | str) -> list[Binding]:
        """The bindings for which a study has datasets, of those named or of all."""
        definition = self.study(study)
        return possible_bindings(definition, names, load_scene(definition.scene))

    @property
    def scenes(self) -> list[str]:
        """The scenes of the studies."""
        return list(dict.fromkeys(self.study(study).scene for study in self.studies))

    @property
    def dataset_count(self) -> int:
        """How many datasets each (study, binding) has: one per dataset sample, or one that all
        replicates share. DiagvibError if the studies' scenes differ in that."""
        kinds = {load_scene(scene).replicates: scene for scene in self.scenes}
        if len(kinds) > 1:
            raise DiagvibError(
                f"studies: repetitions are dataset samples in {kinds['samples']}, but seeds in {kinds['seeds']}; use a "
                "separate configuration for each of these scenes"
            )
        return self.samples if "samples" in kinds else 1

    @property
    def runs_per_job(self) -> int:
        """How many runs a train job has."""
        return self.samples * self.seeds

    @property
    def datasets(self) -> list[tuple[str, str]]:
        """Every (study, binding name), once resolved: one draw and one render job for each. A
        baseline may name a binding's cues in another order."""
        study_datasets = [
            (study, binding.name)
            for study in self.studies
            for binding in self.study_bindings(study, self.bindings)
        ]
        return list(dict.fromkeys([*study_datasets, *(names[1:] for names in self.train_jobs)]))

    @property
    def train_jobs(self) -> list[tuple[str, str, str]]:
        """Every (baseline, study, binding name), once resolved: one train job for each, which covers
        all dataset samples and seeds."""
        return [
            (baseline.name, study, binding.name)
            for baseline in self.baselines
            for study in self.studies
            if study in baseline.studies
            for binding in self.study_bindings(study, baseline.bindings)
        ]

    @property
    def networks(self) -> dict[str, str]:
        """The folder of each frozen network's features -> the first baseline with that network."""
        entries = reversed(self.baselines)
        return {entry.network: entry.name for entry in entries if entry.network}


class Configuration(Experiment):
    """A configuration. Missing keys take their values from config/config.yaml, the paper's
    protocol."""

    root: Root
    """folder for this configuration's data/ and results/"""
    mirror: (
        Annotated[
            Text,
            TextLike(
                _WRITTEN_OUT + ".+", "write the path out, without '~' or a variable like $HOME"
            ),
        ]
        | None
    )
    """local folder with the source files, instead of a download"""
    baselines_from: Distinct[str]
    """your own baseline files; paths are relative to this file, or to the current folder"""
    tuning: Tuning
    keep_weights: bool
    """every run also keeps its selected weights, in weights.pt"""
    device: Literal["auto", "cpu", "cuda"]
    """where networks are trained and digits drawn, with equal pixels; auto: cuda if there is a GPU"""
    devices: Devices
    """whose shares the jobs take in turn: all, every GPU of the machine; or a list like [cuda:0, cuda:3],
    counted as `nvidia-smi` and CUDA_VISIBLE_DEVICES do, or [cpu, cpu] to try it without a GPU; also commands that reach
    machines which share no disk with this one, like [ssh gpu1, ssh gpu2] (profiles/README.md)"""
    processes: Annotated[int, Field(ge=1, le=1024)] | None
    """how many runs of a job are trained at once, in processes of their own; null: one on a CPU, on a
    GPU as many as its memory holds. This changes no result"""
    tensorboard: bool
    """every run also writes its curves to logs/tensorboard; changing this reruns nothing"""


class ResolvedConfiguration(Configuration):
    """A configuration with the real names of its studies and the settings of its baselines."""

    baselines: list[ResolvedBaseline]

    @property
    def tuned(self) -> list[str]:
        """The baselines that `snakemake tuned` tunes: all of them, but for a random search on one of
        the configuration's studies only those that it has there; and those whose tuning decides
        settings."""
        everywhere = not self.tuning.random_search or self.tuning.study not in self.studies
        names = [
            baseline.name
            for baseline in self.baselines
            if everywhere or self.tuning.study in baseline.studies
        ]
        return list(dict.fromkeys([*names, *self.tuned_first]))

    @property
    def tuned_first(self) -> list[str]:
        """The baselines whose tuning decides settings of runs."""
        return [
            name
            for baseline in self.baselines
            for name in tuning_needed(baseline.settings, baseline.name)
        ]
