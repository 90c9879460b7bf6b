"""Study files as tables and figures use them: titles, factors, groups, routes, contrasts,
headlines."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import load_scene
from diagvib.studies.binding import possible_bindings
from diagvib.studies.dataset_sample import DatasetSample, dataset_sample
from diagvib.studies.preference import spoken_for, spoken_for_among
from diagvib.studies.study import (
    METRICS,
    TARGET,
    Contrast,
    Headline,
    Study,
    StudyFile,
    load_studies,
    read_study_file,
    study_files,
)


@dataclass(frozen=True)
class KnownStudies:
    """The shipped studies and those of further files, read when first needed; or only `given`."""

    further: tuple[str, ...] = ()
    given: tuple[Study, ...] = ()

    @cached_property
    def studies(self) -> dict[str, Study]:
        return {study.name: study for study in self.given} or load_studies(self.further)

    @cached_property
    def _files(self) -> list[StudyFile]:
        return [read_study_file(path) for path in study_files(self.further)]

    @cached_property
    def routes(self) -> dict[str, list[str]]:
        """Route -> its studies in the order in which curves show them."""
        return self._joined("routes")

    @cached_property
    def contrasts(self) -> dict[str, Contrast]:
        """Metric -> the contrast that gives it."""
        return {contrast.metric: contrast for contrast in self._joined("contrasts").values()}

    def _joined(self, key: str) -> dict:
        found: dict = {}
        for file in self._files:
            for name, value in getattr(file, key).items():
                if name in found:
                    raise DiagvibError(
                        f"{key}.{name}: is in two study files ({file.title} is the second); "
                        "choose another name"
                    )
                found[name] = value
        return found

    def headline(self, studies: Iterable[str]) -> Headline | None:
        """The headline of the first file that has one and to which some of these studies belong."""
        asked = set(studies)
        return next(
            (file.headline for file in self._files if file.headline and asked & set(file.studies)),
            None,
        )

    def citations(self, studies: Iterable[str]) -> list[str]:
        """The papers that define these studies."""
        asked = set(studies)
        found = (file.cite for file in self._files if asked & set(file.studies))
        return list(dict.fromkeys(filter(None, found)))

    def title(self, study: str) -> str:
        """The title of a study for readers; its name if no file has it."""
        return self.studies[study].title if study in self.studies else study

    def chance(self, study: str) -> float:
        """The chance level of a study: guessing gives the mean over classes 1/n, however frequent each
        of the n classes is in a test group."""
        return 1 / self.studies[study].roles[TARGET]

    def groups(self, studies: Iterable[str]) -> list[str]:
        """Every test group of these studies, those needed by their metrics first."""
        own = [self.studies[study] for study in self._known(studies)]
        needed = [group for study in own for group in METRICS[study.metrics].groups]
        return list(dict.fromkeys([*needed, *(group for study in own for group in study.groups)]))

    def tested_in(self, study: str, group: str) -> list[str]:
        """The environments of a study's test group; empty if the study names none."""
        own = self.studies[study]
        rows = own.rows_of("test") if own.names_environments else []
        return list(dict.fromkeys(row.environment for row in rows if row.group == group))

    def factors(self, studies: Iterable[str]) -> list[str]:
        """The factors of these studies' scenes, in the scenes' order."""
        own = dict.fromkeys(self.studies[study].scene for study in self._known(studies))
        return list(dict.fromkeys(factor for scene in own for factor in load_scene(scene).factors))

    def possible_cues(self, study: str) -> Counter[str]:
        """Target -> number of bindings that a study can have with it."""
        own = self.studies[study]
        scene = load_scene(own.scene)
        return Counter(binding.target for binding in possible_bindings(own, "all", scene))

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

    def about_repetitions(self, text: str, studies: Iterable[str]) -> str:
        """A text that says `dataset samples`, adapted to these studies: their repetitions may
        differ in their seeds alone."""
        known = self._known(studies)
        if not known or self.seeded(known) != known:
            return text
        return text.replace("dataset samples", "seeds").replace("1 dataset sample", "1 seed")

    def followable(self, study: str) -> list[int]:
        """The numbers, from 1, of those of a study's cues that predictions can follow: some of
        their classes point to one class of the target (`spoken_for`), which is the same in every
        dataset sample."""
        own = self.studies[study]
        added_cue = sample_of(own.scene, 0).added_cue
        return [
            number
            for number, cue in enumerate(own.cues, start=1)
            if any(target is not None for target in spoken_for(own, cue, added_cue))
        ]

    def classes(self, study: str, factors: Sequence[str], sample: int) -> list[tuple[str, ...]]:
        """The classes of each bound factor in a dataset sample. factors: as bound, the target
        first."""
        own = self.studies[study]
        drawn, known = sample_of(own.scene, sample), load_scene(own.scene).factors
        return [
            drawn.chosen(factor, own.roles[role], known[factor])
            for role, factor in zip(own.bound, factors, strict=False)
        ]

    def pointed(
        self, study: str, factors: Sequence[str], sample: int
    ) -> list[dict[str, frozenset[str]]]:
        """For each cue: its class -> classes of the target that it points to in training, for the
        classes of a dataset sample. factors: as bound, the target first."""
        own = self.studies[study]
        target, *cues = self.classes(study, factors, sample)
        key = study, sample_of(own.scene, sample).added_cue
        if key not in self._among:
            self._among[key] = [spoken_for_among(own, cue, key[1]) for cue in own.cues]
        return [
            {
                name: frozenset(target[at] for at in its)
                for name, its in zip(names, among, strict=True)
            }
            for names, among in zip(cues, self._among[key], strict=False)
        ]

    def spoken(
        self, study: str, factors: Sequence[str], sample: int
    ) -> dict[str, frozenset[str]] | None:
        """Of `pointed`, the first cue's; None for a study whose metrics do not need it."""
        own = self.studies.get(study)
        if own is None or not METRICS[own.metrics].misled:
            return None
        return self.pointed(study, factors, sample)[0]

    @cached_property
    def _among(self) -> dict[tuple, list[tuple[frozenset[int], ...]]]:
        """The results of `pointed` for the definitions that this object has read: in a notebook,
        study files change."""
        return {}


# Of a scene as it is now: in a notebook, its file may change.
_sample = cache(dataset_sample)


def sample_of(scene: str, number: int) -> DatasetSample:
    """The dataset sample for a run's number: always the first if replicates differ only in their
    seeds."""
    found = load_scene(scene)
    return _sample(0 if found.replicates == "seeds" else number, found)


# The shipped studies alone.
SHIPPED = KnownStudies()


def known_studies(settings: dict) -> KnownStudies:
    """The studies that a configuration may name."""
    return KnownStudies(tuple(settings.get("studies_from", ())))
