"""A training run, and where the files of a configuration are under its root."""

import re
from dataclasses import dataclass
from pathlib import Path

from diagvib.foundation.files import DIGESTS_FILE, definition_name, file_sha256
from diagvib.foundation.seeding import name_seed
from diagvib.scenes import has_textures


@dataclass(frozen=True)
class Run:
    """One training run: a baseline on one dataset sample of a (study, binding), with one of the
    training seeds, by its number; or, if shared, one of several on the only dataset, numbered like
    samples."""

    baseline: str
    study: str
    binding: str
    sample: int
    shared: bool = False
    seed: int = 0

    @property
    def target(self) -> str:
        return self.binding.split("-")[0]

    @property
    def cues(self) -> tuple[str, ...]:
        return tuple(self.binding.split("-")[1:])

    @property
    def factors(self) -> list[str]:
        """The bound factors, the target first."""
        return [self.target, *self.cues]

    @property
    def names(self) -> dict:
        """What a run is called: baseline, study, binding and sample; and its seed's number, unless
        that is 0, as all were before there were others."""
        names = ("baseline", "study", "binding", "sample", *(["seed"] if self.seed else []))
        return {key: getattr(self, key) for key in names}

    @property
    def keys(self) -> dict:
        """Its names, as tables have them; several cues are joined, none are ""."""
        roles = {"target": self.target, "cue": "-".join(self.cues)}
        return {**self.names, "seed": self.seed, **roles}

    @property
    def dataset(self) -> int:
        """The dataset sample that it is trained on."""
        return 0 if self.shared else self.sample

    @property
    def folder(self) -> str:
        """Its folder in that of its job."""
        return run_folder_name(self.sample, self.seed)

    @property
    def name(self) -> str:
        """The run's name in messages, and its folder."""
        return f"{self.baseline}/{self.study}/{self.binding}/{self.folder}"

    def training_seed(self, base_seed: int) -> int:
        """The seed that it is trained with, from the configuration's: the same for all, except for
        further seeds, of which each dataset sample has others, and further replicates on a shared
        dataset."""
        if self.seed:
            return name_seed(base_seed, "seed", self.sample, self.seed)
        if not self.shared or not self.sample:
            return base_seed
        return name_seed(base_seed, "replicate", self.sample)


def run_folder_name(sample: int, seed: int = 0) -> str:
    """The folder of a run in that of its job: `2` of dataset sample 2, `2-seed1` with its next
    seed."""
    return f"{sample}-seed{seed}" if seed else str(sample)


RUN_FOLDER = r"([0-9]+)(?:-seed([1-9][0-9]*))?"


def run_numbers(folder: str) -> tuple[int, int] | None:
    """The sample and the seed's number that a folder is named after; None for another folder."""
    match = re.fullmatch(RUN_FOLDER, folder)
    return match and (int(match[1]), int(match[2] or 0))


class Layout:
    """Where all files of a configuration are, in stage order: data flows from top to bottom."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        data, results = self.root / "data", self.root / "results"
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
        return self.root / "data/raw" / folder_name(scene)

    def weights(self, model: str, name: str) -> Path:
        """The sha256 of the file with a network's published weights, which is next to it."""
        return self.root / "data/raw/weights" / f"{model}.{name}.json"

    def prepared(self, scene: str) -> Path:
        return self.root / "data/prepared" / folder_name(scene)

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
        """The folder of a train job's runs: `Run.folder`/..."""
        return self.all_runs / baseline / study / binding

    def checkpoints(self, baseline: str, study: str, binding: str) -> Path:
        """Where a train job may leave its checkpoints."""
        return self.all_checkpoints / baseline / study / binding

    def curves(self, baseline: str, study: str, binding: str) -> Path:
        """The folder of a train job's TensorBoard files: `Run.folder`/..."""
        return self.root / "logs" / "tensorboard" / baseline / study / binding

    def tuned(self, baseline: str) -> Path:
        """The folder in which tuning keeps finished trials."""
        return self.all_tuned / baseline

    def tuned_tables(self) -> dict[str, str]:
        """The existing tables of tuning, with their sha256."""
        return {str(path): file_sha256(path) for path in sorted(self.tuning.glob("*.csv"))}


def folder_name(name: str) -> str:
    """The name of a scene or similar as a folder name: for `package.module:Class` the class, for a
    file `definition_name`, and likewise for each part of a scene's name with textures."""
    if has_textures(name):
        return "+".join(map(folder_name, name.split("+")))
    path = Path(name.rpartition(":")[2])
    return definition_name(path) if path.suffix in (".yaml", ".yml") else path.name


RUN_FILES = ("predictions.parquet", "metrics.json", "history.jsonl", "run.json", "exhibits.parquet")
# The kind of pictures in exhibits.parquet that show which parts speak for the prediction.
LOOKS = "where it looks"
SMOOTH = "Smooth Grad-CAM++"  # the same by another measure, of photos
# Written by runs whose weights are kept.
WEIGHTS_FILE = "weights.pt"
