"""A study and a binding that `diagvib.load` is asked for by their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import check_textures, load_scene
from diagvib.scenes.scene import Scene
from diagvib.studies.binding import Binding, bind_its_own
from diagvib.studies.study import Study, load_study


@dataclass(frozen=True)
class BoundStudy:
    """A study, and the factors that play its roles. studies_from: the files of further studies,
    besides the shipped ones."""

    study: Study
    binding: Binding
    studies_from: Sequence[Path]

    @property
    def scene(self) -> Scene:
        return load_scene(self.study.scene)

    def check_sample(self, sample: int) -> None:
        """DiagvibError for a dataset sample that there is not."""
        if sample and self.scene.replicates == "seeds":
            raise DiagvibError(
                f"dataset sample {sample}: the scene {self.scene.name} has one dataset sample, 0, "
                "since there is one set of photos; repetitions differ in their training seeds alone"
            )


def bound_study(
    study: str, binding: str, studies_from: Sequence[Path], textures: Sequence[str]
) -> BoundStudy:
    """DiagvibError for unknown names, and for textures that the study's scene lacks."""
    definition = load_study(study, studies_from, textures)
    check_textures(textures, [definition.scene])
    factors = load_scene(definition.scene).factors
    return BoundStudy(definition, bind_its_own(definition, binding, factors), studies_from)
