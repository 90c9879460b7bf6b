"""How many photos there are: the usual counts of stand-ins; and the combinations of classes that
photos lack, in studies that use photos as they were published. Their rows do not say how many
photos there are; what is prepared of them does."""

from functools import cache
from itertools import product
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import load_scene
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.studies.study import Study

# Usual counts of images made of stand-ins for photos, of which there are few.
STAND_IN_COUNTS = {"train": 360, "val": 60, "test": 120}


def absent_photos(
    study: Study, config: Configuration, split: str, supervision: str, images: int
) -> list[tuple[str, ...]] | None:
    """The combinations of classes, of the target and the cues of a method's supervision, of which a
    split has fewer photos than this, in any binding. None if nobody knows: in other studies, in those
    with some of the classes alone, and before the photos are prepared."""
    scene = load_scene(study.scene)
    if not study.as_published or not hasattr(scene, "every_photo"):
        return None
    try:
        photos = _photos(study.scene, Layout(config.root).prepared(study.scene))
    except DiagvibError:
        return None
    absent = []
    for binding in config.study_bindings(study.name, config.bindings):
        roles = dict(zip(study.bound, binding.factors, strict=True))
        if any(study.roles[role] < len(scene.factors[name]) for role, name in roles.items()):
            return None
        target, *cues = binding.factors
        factors = [target, *(cues if supervision == "cues" else [cues[int(supervision[4:]) - 1]])]
        counts = photos[split].value_counts(factors)
        groups = product(*(sorted(set(photos[split][factor])) for factor in factors))
        absent += [group for group in groups if counts.get(group, 0) < images]
    return absent


@cache
def _photos(scene: str, prepared: Path) -> dict:
    """The prepared photos of a scene, a table for each split."""
    photos = load_scene(scene).catalogue(prepared).photos
    return {name: photos[photos["split"].isin(["", name])] for name in ("train", "val")}
