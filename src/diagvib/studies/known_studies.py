"""Study files as tables and figures use them: titles, factors, groups, routes, contrasts,
headlines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, product

import numpy as np

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import PUBLISHED_TEXTURES, load_scene
from diagvib.studies.binding import possible_bindings
from diagvib.studies.dataset_sample import DatasetSample, dataset_sample
from diagvib.studies.metric_needs import ID, OOD
from diagvib.studies.preference import cue_label, image_counts, single_cue_label
from diagvib.studies.scarcity import absent_combinations
from diagvib.studies.study import (
    METRICS,
    Contrast,
    Headline,
    Study,
    StudyFile,
    load_studies,
    read_study_file,
    study_files,
)

# The metrics of single studies beside which those of contrasts stand.
NO_CONTRASTS = ("faavg", "famin", f"{ID}_accuracy", f"{OOD}_accuracy")


@dataclass(frozen=True)
class KnownStudies:
    """The shipped studies and those of further files, read when first needed; or only `definitions`.
    textures: of the configuration; configured: its studies."""

    files: tuple[str, ...] = ()
    definitions: tuple[Study, ...] = ()
    textures: tuple[str, ...] = PUBLISHED_TEXTURES
    configured: tuple[str, ...] = ()

    @cached_property
    def studies(self) -> dict[str, Study]:
        studies = {study.name: study for study in self.definitions}
        return studies or load_studies(self.files, self.textures)

    @cached_property
    def _files(self) -> list[StudyFile]:
        return [read_study_file(path) for path in study_files(self.files)]

    @cached_property
    def routes(self) -> dict[str, list[str]]:
        """Route -> its studies in the order in which curves show them."""
        return self._joined("routes")

    @cached_property
    def contrasts(self) -> dict[str, Contrast]:
        """Metric -> the contrast that gives it. DiagvibError for the name of another metric."""
        contrasts: dict[str, Contrast] = {}
        for name, contrast in self._joined("contrasts").items():
            if contrast.metric in {*contrasts, *NO_CONTRASTS}:
                raise DiagvibError(
                    f"contrasts.{name}.metric: another metric is called {contrast.metric}; choose another name"
                )
            contrasts[contrast.metric] = contrast
        return contrasts

    def _joined(self, key: str) -> dict:
        joined: dict = {}
        for file in self._files:
            for name, value in getattr(file, key).items():
                if name in joined:
                    raise DiagvibError(
                        f"{key}.{name}: is in two study files ({file.title} is the second); "
                        "choose another name"
                    )
                joined[name] = value
        return joined

    def headline(self, studies: Iterable[str]) -> Headline | None:
        """The headline of the first file that has one and to which some of these studies belong."""
        study_names = set(studies)
        return next(
            (
                file.headline
                for file in self._files
                if file.headline and study_names & set(file.studies)
            ),
            None,
        )

    def citations(self, studies: Iterable[str]) -> list[str]:
        """The papers that define these studies."""
        study_names = set(studies)
        citations = (file.cite for file in self._files if study_names & set(file.studies))
        return list(dict.fromkeys(filter(None, citations)))

    def title(self, study: str) -> str:
        """The title of a study for readers; its name if no file has it, and beside a title that another
        configured study has, too."""
        return self._titles.get(study, study)

    @cached_property
    def _titles(self) -> dict[str, str]:
        titles = {name: study.title for name, study in self.studies.items()}
        counts = Counter(titles[name] for name in self.configured if name in titles)
        return {n: f"{title} ({n})" if counts[title] > 1 else title for n, title in titles.items()}

    def chance(self, study: str) -> float:
        """The chance level of a study: guessing gives the mean over classes 1/n, however frequent each
        of the n classes that its rows use is in a test group."""
        definition = self.studies[study]
        # `added` is a class of the cue.
        cells = (definition.row_cells(row, (1, 2, 0)) for row in definition.rows)
        return 1 / len({cell[0] for cell in chain.from_iterable(cells)})

    def groups(self, studies: Iterable[str]) -> list[str]:
        """Every test group of these studies, those needed by their metrics first."""
        definitions = [self.studies[study] for study in self._known(studies)]
        needed = [group for study in definitions for group in METRICS[study.metrics].groups]
        return list(
            dict.fromkeys([*needed, *(group for study in definitions for group in study.groups)])
        )

    def tested_in(self, study: str, group: str) -> list[str]:
        """The environments of a study's test group; empty if the study names none."""
        definition = self.studies[study]
        rows = definition.rows_of("test") if definition.names_environments else []
        return list(dict.fromkeys(row.environment for row in rows if row.group == group))

    def factors(self, studies: Iterable[str]) -> list[str]:
        """The factors of these studies' scenes, in the scenes' order."""
        scenes = dict.fromkeys(self.studies[study].scene for study in self._known(studies))
        return list(
            dict.fromkeys(factor for scene in scenes for factor in load_scene(scene).factors)
        )

    def possible_cues(self, study: str) -> Counter[str]:
        """Target -> number of bindings that a study can have with it."""
        definition = self.studies[study]
        scene = load_scene(definition.scene)
        return Counter(binding.target for binding in possible_bindings(definition, "all", scene))

    def judged_by(self, metrics: str, studies: Iterable[str]) -> list[str]:
        """Those of these studies that are judged by a set of metrics."""
        return [name for name in self._known(studies) if self.studies[name].metrics == metrics]

    def seeded(self, studies: Iterable[str]) -> list[str]:
        """Those of these studies whose repetitions differ in their training seeds alone, as with
        photos."""
        return [
            name
            for name in self._known(studies)
            if load_scene(self.studies[name].scene).replicates == "seeds"
        ]

    def _known(self, studies: Iterable[str]) -> list[str]:
        return [name for name in dict.fromkeys(studies) if name in self.studies]

    def repetitions(self, studies: Iterable[str]) -> str:
        """What repetitions of these studies are called: `dataset samples`, or `seeds` if they differ
        in nothing else."""
        names = self._known(studies)
        return "seeds" if names and self.seeded(names) == names else "dataset samples"

    def in_words(self, text: str, studies: Iterable[str]) -> str:
        """A text of the program with the word for {samples}, the repetitions of these studies."""
        return text.replace("{samples}", self.repetitions(studies))

    def labelled_cues(self, study: str, images: np.ndarray | None = None) -> list[int]:
        """The numbers, from 1, of those of a study's cues that predictions can follow: some of
        their classes point to one class of the target (`single_cue_label`), which is the same in
        every dataset sample. images: see `cue_label`."""
        definition = self.studies[study]
        added_cue = sample_of(definition.scene, 0).added_cue
        return [
            number
            for number, cue in enumerate(definition.cues, start=1)
            if {*single_cue_label(definition, cue, added_cue, images)} != {None}
        ]

    def classes(self, study: str, factors: Sequence[str], sample: int) -> list[tuple[str, ...]]:
        """The classes of each bound factor in a dataset sample. factors: as bound, the target
        first."""
        definition = self.studies[study]
        dataset_sample = sample_of(definition.scene, sample)
        factor_classes = load_scene(definition.scene).factors
        return [
            dataset_sample.chosen(factor, definition.roles[role], factor_classes[factor])
            for role, factor in zip(definition.bound, factors, strict=False)
        ]

    def images(
        self, study: str, factors: Sequence[str], sample: int, trained: Mapping[str, int]
    ) -> np.ndarray | None:
        """`image_counts` of a run's training images."""
        return image_counts(self.studies[study], self.classes(study, factors, sample), trained)

    def untested(
        self,
        study: str,
        factors: Sequence[str],
        sample: int,
        trained: Mapping[str, int],
        tested: Set[str],
    ) -> list[str]:
        """The combinations of classes without a test image, of those in training and, in a study
        as published, of those that it tests. trained: see `image_counts`; tested: combinations,
        joined like its keys."""
        if (definition := self.studies.get(study)) is None:
            return []
        classes = self.classes(study, factors, sample)
        due = {cell for cell in product(*classes) if trained.get("-".join(cell))}
        if definition.as_published:
            cells = definition.cells("test", sample_of(definition.scene, sample).added_cue)
            columns = [
                [names[index] for index in cells[f"{role}_class"]]
                for role, names in zip(definition.bound, classes, strict=True)
            ]
            due |= {*zip(*columns, strict=True)}
        present = {cell for cell in product(*classes) if "-".join(cell) in tested}
        return [*absent_combinations(filter(due.__contains__, product(*classes)), present)]

    def cue_label(
        self, study: str, factors: Sequence[str], sample: int, trained: Mapping[str, int]
    ) -> list[dict[str, frozenset[str]]]:
        """For each cue: its class -> classes of the target that it points to in training, for the
        classes of a dataset sample. factors: as bound, the target first; trained: see
        `image_counts`, by which a study as published goes."""
        definition = self.studies[study]
        target, *cues = self.classes(study, factors, sample)
        added_cue = sample_of(definition.scene, sample).added_cue
        images = self.images(study, factors, sample, trained)
        key = study, added_cue, None if images is None else images.tobytes()
        if key not in self._cue_labels:
            self._cue_labels[key] = [
                cue_label(definition, cue, added_cue, images) for cue in definition.cues
            ]
        return [
            {
                name: frozenset(target[index] for index in label)
                for name, label in zip(names, labels, strict=True)
            }
            for names, labels in zip(cues, self._cue_labels[key], strict=False)
        ]

    def misleading_label(
        self, study: str, factors: Sequence[str], sample: int, trained: Mapping[str, int]
    ) -> dict[str, frozenset[str]] | None:
        """Of `cue_label`, the first cue's; None for a study without cues, or whose metrics do not
        count the predictions that follow it."""
        definition = self.studies.get(study)
        if definition is None or not (definition.cues and METRICS[definition.metrics].misled):
            return None
        return self.cue_label(study, factors, sample, trained)[0]

    @cached_property
    def _cue_labels(self) -> dict[tuple, list[tuple[frozenset[int], ...]]]:
        """The results of `cue_label` for the definitions that this object has read: in a notebook,
        study files change."""
        return {}


# Of a scene as it is now: in a notebook, its file may change.
_sample = cache(dataset_sample)


def sample_of(scene: str, number: int) -> DatasetSample:
    """The dataset sample for a run's number: always the first if replicates differ only in their
    seeds."""
    scene_definition = load_scene(scene)
    return _sample(0 if scene_definition.replicates == "seeds" else number, scene_definition)


# The shipped studies alone.
SHIPPED = KnownStudies()


def known_studies(settings: dict) -> KnownStudies:
    """The studies that a configuration may name."""
    return KnownStudies(
        files=tuple(settings.get("studies_from", ())),
        textures=tuple(settings.get("textures", PUBLISHED_TEXTURES)),
        configured=tuple(settings.get("studies", ())),
    )
