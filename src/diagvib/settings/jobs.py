"""The settings of each stage's jobs: the part of a configuration that a job depends on.

A rule passes them to its command in a JSON file, and the command reads them with the same model. A
job runs again when they change.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Self

from pydantic import JsonValue

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.foundation.validation import Strict, validated
from diagvib.scenes import load_scene
from diagvib.scenes.scene import Catalogue
from diagvib.settings.baselines import BaselineSettings, with_tuned
from diagvib.settings.frozen_networks import EncoderSettings, encoder_settings, network_name
from diagvib.settings.keys import (
    Counts,
    Experiment,
    Images,
    ImageSize,
    ResolvedBaseline,
    ResolvedConfiguration,
    Samples,
    Seeds,
    Sources,
    Training,
    Tuning,
)
from diagvib.settings.layout import Layout, Run
from diagvib.studies.binding import Binding
from diagvib.studies.dataset_sample import DatasetSample, dataset_sample
from diagvib.studies.study import Study, parse_study

# Of a baseline, for readers; rewording them does not affect results.
_TEXTS = ("origin", "title")
_STUDY_TEXTS = {"name", "title", "meaning", "opportunity"}


class JobSettings(Strict):
    """The settings of a job."""

    def text(self) -> str:
        """As JSON with sorted keys."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)

    def plain(self) -> dict:
        """As plain data with sorted keys."""
        return json.loads(self.text())


class Fetch(JobSettings):
    sources: Sources


class Weights(JobSettings):
    """None: torchvision's names say which weights they are."""


class Draw(JobSettings):
    """study: its definition, without texts for readers, which do not affect the recipes."""

    counts: Counts
    dataset_samples: list[DatasetSample]
    study: dict[str, JsonValue]

    def definition(self, name: str) -> Study:
        """The study, which is called `name`."""
        return parse_study(name, {"title": name, "meaning": name, **self.study})

    def metadata(self, study: Study, binding: Binding, catalogue: Catalogue) -> dict:
        """What a file of recipes says of itself. catalogue: of the sources that they name."""
        plain = self.plain()
        return {
            "study": study.name,
            "binding": binding.name,
            "roles": dict(zip(study.bound, binding.factors, strict=True)),
            "scene": study.scene,
            "samples": len(self.dataset_samples),
            "seed": "sha256 of study/binding/sample/split",
            "counts": plain["counts"],
            "definition": plain["study"],
            "dataset_samples": plain["dataset_samples"],
            "sources": catalogue.sources,
            "comparable": catalogue.comparable,
            "sources_digest": catalogue.digest,
        }


class Render(JobSettings):
    """samples: how many datasets there are."""

    image_size: ImageSize
    samples: Samples
    scene: str


class _OfNetwork(JobSettings):
    image_size: ImageSize
    images: Images
    scene: str

    @property
    def network(self) -> str | None:
        """The folder of the features of a frozen network; None without one."""
        return network_name(self.settings)


class Encode(_OfNetwork):
    encoder: EncoderSettings
    samples: Samples

    @property
    def settings(self) -> dict:
        """The encoder's settings as plain data."""
        return self.plain()["encoder"]


class _OfBaseline(_OfNetwork):
    baseline: BaselineSettings
    training: Training

    @property
    def settings(self) -> dict:
        """The baseline's settings as plain data."""
        return self.plain()["baseline"]

    def with_tuned(self, baseline: str, layout: Layout) -> Self:
        """The job with the settings that tuning chose, where the baseline's refer to it."""
        if not {"settings", "optimiser_of"} & self.settings.keys():
            return self
        settings = with_tuned(self.settings, baseline, layout.tuning)
        return self.model_copy(update={"baseline": BaselineSettings.model_validate(settings)})


class Train(_OfBaseline):
    samples: Samples
    seeds: Seeds = 1

    def runs(self, baseline: str, study: str, binding: str) -> list[Run]:
        """The runs of the job with these names."""
        shared = load_scene(self.scene).replicates == "seeds"
        return [
            Run(baseline, study, binding, sample, shared, seed)
            for sample in range(self.samples)
            for seed in range(self.seeds)
        ]


class Tune(_OfBaseline):
    tuning: Tuning


class Tabulate(Experiment, JobSettings):
    baselines: list[ResolvedBaseline]

    def with_tuned(self, layout: Layout) -> Self:
        """The job with the settings that tuning chose, where those of a baseline refer to it."""
        baselines = [_as_tuned(entry, layout.tuning) for entry in self.baselines]
        return self.model_copy(update={"baselines": baselines})


def _as_tuned(entry: ResolvedBaseline, folder: Path) -> ResolvedBaseline:
    settings = entry.settings
    trained = {key: value for key, value in settings.items() if key not in _TEXTS}
    texts = {key: settings[key] for key in _TEXTS if key in settings}
    if "settings" in settings:  # of which the origin is the tuning
        del texts["origin"]
    with suppress(DiagvibError):  # not tuned yet, so that there is no run
        settings = with_tuned(trained, entry.name, folder) | texts
    return entry.model_copy(update={"settings": settings})


JOBS: dict[str, type[JobSettings]] = {
    "fetch": Fetch,
    "prepare": Fetch,
    "weights": Weights,
    "draw": Draw,
    "render": Render,
    "encode": Encode,
    "train": Train,
    "tune": Tune,
    "tabulate": Tabulate,
    "plot": Tabulate,
}


def stage_settings(
    config: ResolvedConfiguration, stage: str, study: str | None = None, baseline: str | None = None
) -> JobSettings:
    """The settings of a stage's job. config: resolved, with the baseline of the job (`with_baseline`);
    study, baseline: of the job; encode also takes a network's folder."""
    kind, values = JOBS[stage], dict(config)
    if stage in ("draw", "render", "encode"):
        values["samples"] = config.dataset_count
    if stage in ("encode", "train", "tune"):
        values["baseline"] = _baseline_settings(config, stage, baseline)
    if stage == "encode":
        values["encoder"] = encoder_settings(values["baseline"])
        if values["encoder"] is None:
            raise DiagvibError(f"{baseline}: its network is not frozen, so it needs no features")
    if stage == "tune":
        study = config.tuning.study
        method = values["baseline"]["method"]["name"]
        values["tuning"] = config.tuning.of_baseline(baseline, method)
    if study is not None:
        values["scene"] = config.study(study).scene
    if stage == "draw":
        scene = load_scene(values["scene"])
        values["study"] = config.study(study).model_dump(mode="json", exclude=_STUDY_TEXTS)
        values["dataset_samples"] = [dataset_sample(n, scene) for n in range(values["samples"])]
    job = validated(kind, {key: values[key] for key in kind.model_fields}, "configuration")
    # With the keys in the order in which a command gets them.
    return validated(kind, job.plain(), "configuration")


def _baseline_settings(config: ResolvedConfiguration, stage: str, baseline: str) -> dict:
    """Without texts, and without the reference to tuned settings for tuning, which begins with what
    is written."""
    settings_of = {entry.name: entry.settings for entry in config.baselines}
    settings = settings_of[
        config.networks.get(baseline, baseline) if stage == "encode" else baseline
    ]
    absent = (*_TEXTS, *(["settings"] if stage == "tune" else []))
    return {key: value for key, value in settings.items() if key not in absent}


def read_settings(path: Path, stage: str) -> JobSettings:
    """A job's settings from a JSON file. DiagvibError naming the wrong key."""
    remedy = "`snakemake` writes it before the job starts"
    return validated(JOBS[stage], read_json(path, remedy), str(path))
