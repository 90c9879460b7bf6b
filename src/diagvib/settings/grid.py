"""The grid: which datasets and runs a configuration asks for, and where their files stand under its root."""

from dataclasses import asdict, dataclass
from pathlib import Path

from diagvib.scenes.digits.factors import FACTORS, Binding, parse_binding
from diagvib.studies.study import SPLITS, load_study


@dataclass(frozen=True)
class Run:
    """One training: a baseline on one dataset sample of a (study, pair)."""

    baseline: str
    study: str
    binding: str
    target: str
    cue: str | None
    sample: int


def study_bindings(study: str, bindings: list[str]) -> list[Binding]:
    """The pairs for which a study has datasets: the given ones, or their target factors alone if it has no cue."""
    parsed = [parse_binding(name) for name in bindings]
    if load_study(study).paired:
        return parsed
    targets = {binding.target for binding in parsed}
    return [Binding(factor) for factor in FACTORS if factor in targets]


def datasets(config: dict) -> list[tuple[str, str]]:
    """Every (study, pair name) of a resolved configuration: one job each of draw and render."""
    return [(study, binding.name) for study in config["studies"] for binding in study_bindings(study, config["bindings"])]


def train_jobs(config: dict) -> list[tuple[str, str, str]]:
    """Every (baseline, study, pair name): one job of train, which covers all dataset samples."""
    return [(baseline["name"], study, binding.name) for baseline in config["baselines"]
            for study in config["studies"] if study in baseline["studies"]
            for binding in study_bindings(study, baseline["bindings"])]


def runs(config: dict) -> list[Run]:
    """Every run of a resolved configuration."""
    return [Run(baseline, study, binding, parse_binding(binding).target, parse_binding(binding).cue, sample)
            for baseline, study, binding in train_jobs(config) for sample in range(config["samples"])]


def expected_runs(config: dict) -> list[dict]:
    """`runs` as plain dictionaries, the form in which tables ask for them."""
    return [asdict(run) for run in runs(config)]


@dataclass(frozen=True)
class Layout:
    """Where everything of a configuration stands (house of stages: data flows from top to bottom)."""

    root: Path

    @property
    def raw(self) -> Path:
        return self.root / "data" / "raw"

    @property
    def prepared(self) -> Path:
        return self.root / "data" / "prepared"

    def recipes(self, study: str, binding: str) -> Path:
        return self.all_recipes / study / f"{binding}.parquet"

    def images(self, study: str, binding: str) -> Path:
        """The folder of a dataset's image files: {sample}/{split}.parquet."""
        return self.all_images / study / binding

    def digests(self, study: str, binding: str) -> Path:
        """The sha256 of each of a dataset's image files, written after them."""
        return self.images(study, binding) / DIGESTS_FILE

    def runs(self, baseline: str, study: str, binding: str) -> Path:
        """The folder of a train job's runs: {sample}/..."""
        return self.all_runs / baseline / study / binding

    def checkpoints(self, baseline: str, study: str, binding: str) -> Path:
        """Where a train job may leave its checkpoints; outside of everything that is declared as a result."""
        return self.all_checkpoints / baseline / study / binding

    def curves(self, baseline: str, study: str, binding: str) -> Path:
        """The folder of a train job's TensorBoard files: {sample}/..."""
        return self.root / "logs" / "tensorboard" / baseline / study / binding

    def tuned(self, baseline: str) -> Path:
        """The folder in which tuning keeps what it has finished; outside of everything that is declared as a result."""
        return self.root / "data" / "tuning" / baseline

    @property
    def tuning(self) -> Path:
        return self.root / "results" / "tuning"

    @property
    def all_recipes(self) -> Path:
        return self.root / "data" / "recipes"

    @property
    def all_checkpoints(self) -> Path:
        return self.root / "data" / "checkpoints"

    @property
    def all_images(self) -> Path:
        return self.root / "data" / "images"

    @property
    def all_runs(self) -> Path:
        return self.root / "results" / "runs"

    @property
    def tables(self) -> Path:
        return self.root / "results" / "tables"

    @property
    def metrics(self) -> Path:
        """The headline numbers, small enough for git: {baseline}/{study}.json."""
        return self.root / "results" / "metrics"

    @property
    def figures(self) -> Path:
        return self.root / "results" / "figures"

    @property
    def report(self) -> Path:
        return self.root / "results" / "report.html"


IMAGE_FILES = tuple(f"{split}.parquet" for split in SPLITS)
DIGESTS_FILE = "sha256.json"
RUN_FILES = ("predictions.parquet", "metrics.json", "history.jsonl", "run.json", "exhibits.parquet")
# Of a run whose weights are kept.
WEIGHTS_FILE = "weights.pt"
