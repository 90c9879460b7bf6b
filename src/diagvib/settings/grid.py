"""The grid: which datasets and runs a configuration asks for, and where their files are under its
root."""

from dataclasses import dataclass
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.foundation.seeding import name_digest
from diagvib.images import DIGESTS_FILE
from diagvib.scenes import load_scene
from diagvib.settings.configuration import Experiment
from diagvib.studies.binding import Binding, chosen_bindings, spreads
from diagvib.studies.study import Study, load_study


@dataclass(frozen=True)
class Run:
    """One training run: a baseline on one dataset sample of a (study, binding); or, if shared, one
    of several on the only dataset, numbered like samples."""

    baseline: str
    study: str
    binding: str
    sample: int
    shared: bool = False

    @property
    def target(self) -> str:
        return self.binding.split("-")[0]

    @property
    def cues(self) -> list[str]:
        return self.binding.split("-")[1:]

    @property
    def keys(self) -> dict:
        """Its names, as tables have them; several cues are joined, no cue is None."""
        cue = "-".join(self.cues) or None
        names = {key: getattr(self, key) for key in ("baseline", "study", "binding", "target")}
        return {**names, "cue": cue, "sample": self.sample}

    @property
    def dataset(self) -> int:
        """The dataset sample that it is trained on."""
        return 0 if self.shared else self.sample

    @property
    def name(self) -> str:
        """The run's name in messages, and its folder."""
        return f"{self.baseline}/{self.study}/{self.binding}/{self.sample}"

    def seed(self, training: int) -> int:
        """Its seed, from that of the training: the same, except for further replicates on a shared
        dataset."""
        if not self.shared or not self.sample:
            return training
        return int.from_bytes(name_digest(training, "replicate", self.sample)[:7], "big")


def study_of(config: Experiment, name: str) -> Study:
    """A study of a configuration, by its name or alias."""
    return load_study(name, config.studies_from)


def study_bindings(config: Experiment, study: str, names: list[str] | str) -> list[Binding]:
    """The bindings for which a study has datasets, of those named or of all."""
    found = study_of(config, study)
    scene = load_scene(found.scene)
    bindings = chosen_bindings(found, names, scene.factors)
    return [binding for binding in bindings if {*spreads(found, binding)} <= {*scene.spreads}]


def scenes(config: Experiment) -> list[str]:
    """The scenes of a configuration's studies."""
    return list(dict.fromkeys(study_of(config, study).scene for study in config.studies))


def dataset_count(config: Experiment) -> int:
    """How many datasets each (study, binding) has: one per dataset sample, or one that all
    replicates share.

    DiagvibError if the studies' scenes differ in that.
    """
    kinds = {load_scene(scene).replicates: scene for scene in scenes(config)}
    if len(kinds) > 1:
        raise DiagvibError(
            f"studies: a replicate of {kinds['samples']} is a dataset sample, one of "
            f"{kinds['seeds']} a seed; use a separate configuration for each of these scenes"
        )
    return config.samples if "samples" in kinds else 1


def datasets(config: Experiment) -> list[tuple[str, str]]:
    """Every (study, binding name) of a resolved configuration: one draw and one render job for
    each."""
    return [
        (study, binding.name)
        for study in config.studies
        for binding in study_bindings(config, study, config.bindings)
    ]


def train_jobs(config: Experiment) -> list[tuple[str, str, str]]:
    """Every (baseline, study, binding name): one train job for each, which covers all dataset
    samples."""
    return [
        (baseline.name, study, binding.name)
        for baseline in config.baselines
        for study in config.studies
        if study in baseline.studies
        for binding in study_bindings(config, study, baseline.bindings)
    ]


def networks(config: Experiment) -> dict[str, str]:
    """The folder of each frozen network's features -> the first baseline with that network."""
    return {entry.network: entry.name for entry in reversed(config.baselines) if entry.network}


def runs(config: Experiment) -> list[Run]:
    """Every run of a resolved configuration."""
    return [Run(*names, sample) for names in train_jobs(config) for sample in range(config.samples)]


class Layout:
    """Where all files of a configuration are, in stage order: data flows from top to bottom."""

    def __init__(self, root: Path):
        self.root = root
        data, results = root / "data", root / "results"
        self.all_raw, self.all_prepared = data / "raw", data / "prepared"
        self.all_recipes = data / "recipes"
        self.all_images = data / "images"
        self.all_features = data / "features"
        # These two are not part of any declared result.
        self.all_checkpoints = data / "checkpoints"
        self.all_tuned = data / "tuning"
        self.all_runs = results / "runs"
        self.tuning = results / "tuning"
        self.tables = results / "tables"
        # The headline numbers, small enough for git: {baseline}/{study}.json.
        self.metrics = results / "metrics"
        self.figures = results / "figures"
        self.report = results / "report.html"
        # The folder of the page that shows test images; the report links to it.
        self.explorer = results / "explorer"

    def raw(self, scene: str) -> Path:
        return self.all_raw / folder_name(scene)

    def prepared(self, scene: str) -> Path:
        return self.all_prepared / folder_name(scene)

    def recipes(self, study: str, binding: str) -> Path:
        return self.all_recipes / study / f"{binding}.parquet"

    def images(self, study: str, binding: str) -> Path:
        """The folder of a dataset's image files: {sample}/{split}.parquet."""
        return self.all_images / study / binding

    def digests(self, study: str, binding: str) -> Path:
        """The sha256 of each of a dataset's image files, written after them."""
        return self.images(study, binding) / DIGESTS_FILE

    def features(self, network: str, study: str, binding: str) -> Path:
        """The folder of a frozen network's features: {sample}/{split}.npy."""
        return self.all_features / network / study / binding

    def runs(self, baseline: str, study: str, binding: str) -> Path:
        """The folder of a train job's runs: {sample}/..."""
        return self.all_runs / baseline / study / binding

    def checkpoints(self, baseline: str, study: str, binding: str) -> Path:
        """Where a train job may leave its checkpoints."""
        return self.all_checkpoints / baseline / study / binding

    def curves(self, baseline: str, study: str, binding: str) -> Path:
        """The folder of a train job's TensorBoard files: {sample}/..."""
        return self.root / "logs" / "tensorboard" / baseline / study / binding

    def tuned(self, baseline: str) -> Path:
        """The folder in which tuning keeps finished trials."""
        return self.all_tuned / baseline

    def tuned_tables(self) -> dict[str, str]:
        """The existing tables of tuning, with their sha256."""
        return {str(path): file_sha256(path) for path in sorted(self.tuning.glob("*.csv"))}


def folder_name(name: str) -> str:
    """The name of a scene or similar as a folder name: for `package.module:Class` the class, for a
    file its name."""
    return Path(name.rpartition(":")[2]).name.removesuffix(".yaml").removesuffix(".yml")


RUN_FILES = ("predictions.parquet", "metrics.json", "history.jsonl", "run.json", "exhibits.parquet")
# The kind of pictures in exhibits.parquet that show which parts speak for the prediction.
LOOKS = "where it looks"
# Written by runs whose weights are kept.
WEIGHTS_FILE = "weights.pt"
