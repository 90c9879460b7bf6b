"""Dataset samples: which classes of each factor a dataset uses."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.seeding import named_generator
from diagvib.foundation.validation import Strict
from diagvib.scenes.scene import AddedCue, Scene

# The number of classes chosen for a factor, unless a study's role has another number.
CLASSES_PER_FACTOR = 3
# For published samples that name none; only studies with added cues use it.
_ADDED_CUE = (1, 2, 0)


class DatasetSample(Strict):
    """One choice of classes per factor (names, in class-index order), and the cue classes that CGO
    adds.

    number: from 0. classes: three of each factor, or all if it has fewer. added_cue: for target
    classes 0, 1, 2.
    """

    number: Annotated[int, Field(ge=0)]
    classes: dict[
        str, Annotated[tuple[str, ...], Field(strict=False)]
    ]  # not strict: JSON has lists
    added_cue: AddedCue

    def chosen(self, factor: str, count: int, classes: Sequence[str]) -> tuple[str, ...]:
        """The classes of a factor for a role of `count` classes, in class-index order.

        The sample's own, if there are `count` of them. If not, `count` of all classes, drawn with a
        seed that depends only on the sample's number, the factor and the count, so that every study
        with such a role gets the same. classes: all of the factor; `bind` has checked that
        they are enough.
        """
        if count == len(self.classes[factor]):
            return self.classes[factor]
        generator = named_generator("dataset sample", self.number, factor, count)
        return tuple(generator.choice(classes, count, replace=False).tolist())


def dataset_sample(number: int, scene: Scene) -> DatasetSample:
    """Dataset sample `number` of a scene: the published ones first (benchmark section 4), then
    drawn from the number.

    A published one has three classes for each factor, or all, and perhaps added_cue. DiagvibError
    if it has other classes.
    """
    factors = scene.factors
    if number < len(scene.published_samples):
        entry = scene.published_samples[number]
        for factor, class_names in factors.items():
            if len(set(entry[factor]) & set(class_names)) < len(entry[factor]):
                raise DiagvibError(
                    f"published sample {number}: {factor} must name each class once, not "
                    f"{entry[factor]!r}; its classes are {', '.join(class_names)}"
                )
        return DatasetSample(
            number=number,
            classes={f: tuple(entry[f]) for f in factors},
            added_cue=tuple(entry.get("added_cue", _ADDED_CUE)),
        )
    generator = named_generator("dataset sample", number)
    classes = {}
    for factor, class_names in factors.items():
        count = min(CLASSES_PER_FACTOR, len(class_names))
        classes[factor] = tuple(generator.choice(class_names, count, replace=False).tolist())
    cue_classes = [
        [c for c in range(CLASSES_PER_FACTOR) if c != s] for s in range(CLASSES_PER_FACTOR)
    ]
    return DatasetSample(
        number=number,
        classes=classes,
        added_cue=tuple(int(generator.choice(o)) for o in cue_classes),
    )
