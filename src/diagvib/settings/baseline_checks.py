"""Whether a baseline fits a configuration: its method's supervision, its views, its selection."""

from collections.abc import Iterable, Mapping
from inspect import signature
from itertools import chain

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.methods.registry import check_scene, declaration, views_read
from diagvib.methods.sizes import check_batch, check_held_out, halvings
from diagvib.methods.supervision import check_supervision
from diagvib.models.registry import family
from diagvib.scenes import load_scene
from diagvib.scenes.scene import ABILITIES, MARK, TWINS, Scene
from diagvib.settings.keys import Configuration
from diagvib.settings.model_settings import prepared_input
from diagvib.settings.photo_counts import absent_photos
from diagvib.studies.scarcity import empty_groups
from diagvib.studies.study import Study

# A scene with so many classes has ImageNet's, which have numbers in place of names.
_NUMBERED = 1000


def check_selection(selection: str, studies: Iterable[Study]) -> None:
    """DiagvibError unless every study has the cues or environments by which epochs are chosen."""
    rule, _, number = selection.partition("_cue_")
    fewest = {"val_worst_group": max(2, int(number)) if number else 1}.get(rule, 0)
    for study in studies:
        one_environment = rule == "val_environment_accuracy" and len(study.environments) < 2
        if one_environment or len(study.cues) < fewest:
            raise DiagvibError(
                f"study {study.name}: selection: {selection} needs cues or environments that it lacks"
            )


def check_baseline(settings: dict, config: Configuration, studies: list[str]) -> None:
    """DiagvibError unless every study has the supervision that a baseline's method needs, its scene
    can do what method and views need, and its selection fits the configuration."""
    method, problems = settings["method"], {}
    if option := declaration(method["name"]).halvings:
        halvings(method, option, config.image_size)
    _check_words(settings.get("model"), [config.study(name).scene for name in studies])
    for name in studies:
        try:
            _check_study(settings, config, config.study(name))
        except DiagvibError as error:
            problems.setdefault(str(error), []).append(name)
    for problem, names in problems.items():
        noun = "study" if len(names) == 1 else "studies"
        raise DiagvibError(
            f"{noun} {', '.join(names)}: {problem}; or restrict the baseline to other studies with its "
            "key `studies`"
        )
    patience = config.training.patience
    if patience is not None and settings.get("selection") == "last":
        raise DiagvibError(
            f"training.patience: {patience} never stops a training with selection: last, which "
            "keeps the last epoch whatever it is; set training.patience: null, or leave this baseline "
            "out"
        )


def _check_study(settings: dict, config: Configuration, study: Study) -> None:
    """DiagvibError if a baseline cannot be trained on a study."""
    method, model = settings["method"], settings.get("model") or {}
    check_supervision(method, len(study.cues), len(study.environments))
    _check_groups(method, study, config)
    _check_images(settings, study, config)
    check_scene(method, study.scene)
    scene = load_scene(study.scene)
    if prepared_input(model) and "crop" not in signature(scene.renderer).parameters:
        raise DiagvibError(
            f"model.input.resize: this is for photos, and images of {study.scene} are drawn; "
            "leave it out"
        )
    _check_views(model, method, study, scene, config.images)


def _check_views(model: dict, method: dict, study: Study, scene: Scene, images: str) -> None:
    """DiagvibError unless a model has the views that its method reads, and the scene can make them."""
    views = model.get("views", ())
    needed = views_read(method, len(study.cues))
    if absent := [view for view in needed if view not in views]:
        raise DiagvibError(
            f"model.views: method {method['name']} reads {', '.join(absent)}, too; add what it lacks"
        )
    if MARK in views and MARK not in scene.factors:
        raise DiagvibError(f"model.views: {MARK} needs a scene with a {MARK}, not {study.scene}")
    exchanged = len(study.cues) if scene.can("exchange") and images == "render" else 0
    cue_views = [f"cue.{number + 1}" for number in range(exchanged)]
    for view in views:
        if view in TWINS and not (prepared_input(model) and hasattr(scene, "twins")):
            raise DiagvibError(
                f"model.views: {view} is read from files of changed photos; it needs a scene of "
                "photos and model.input.resize"
            )
        if view.startswith("cue.") and view not in cue_views:
            raise DiagvibError(
                f"model.views: {view} needs a study with that cue, `images: render` in the "
                f"configuration, and a scene that can {ABILITIES['exchange']}"
            )


def _check_words(model: Mapping | None, scenes: list[str]) -> None:
    """DiagvibError if words for CLIP are of no class of any of the scenes. Of all ImageNet's classes,
    the names are those of CLIP's package."""
    if not scenes or not model or family(model["name"]) != "clip":
        return
    names = [name for scene in scenes for name in chain(*load_scene(scene).factors.values())]
    for name in model["options"].get("words", {}):
        if name not in names and len(names) < _NUMBERED:
            raise unknown_name("class", name, names, "model.options.words")


def _check_groups(method: dict, study: Study, config: Configuration) -> None:
    """DiagvibError if a method that needs images of every group would get none of one."""
    declared, supervision = declaration(method["name"]), method["supervision"]
    split = "val" if method.get("images") == "validation" else "train"
    if not declared.every_group or not supervision.startswith("cue"):
        return
    pairs = declared.pairs_if and method.items() >= declared.pairs_if.items()
    images = 2 if pairs else 1

    def empty(supervision: str, images: int = 1) -> list[tuple]:
        absent = absent_photos(study, config, split, supervision, images)
        if absent is not None:
            return absent
        return empty_groups(study, config.counts, split, supervision, images)

    if groups := empty(supervision, images):
        words = (word for word in declared.supervision if word in ("none", "environments"))
        cues = [f"cue-{number + 1}" for number in range(len(study.cues))]
        possible = [word for word in words if word == "none" or len(study.environments) > 1]
        if "cue" in declared.supervision:
            possible += [cue for cue in cues if not empty(cue, images)]
        remedy = (
            f"choose `supervision: {' or '.join(possible)}`"
            if possible
            else "choose another method"
        )
        if images == 2 and not empty(supervision):
            change = f"change {' or '.join(declared.pairs_if)}"
            remedy = change if study.as_published else f"raise counts.{split}, or {change}"
        number = "two " if images == 2 else ""
        raise DiagvibError(
            f"method: {method['name']} needs {number}{split} images of every combination of the "
            f"target's classes with those of {supervision}, but {_lacking(study, split, groups)} "
            f"{'fewer' if number else 'none'}; {remedy}"
        )


def _lacking(study: Study, split: str, groups: list[tuple]) -> str:
    """What says that groups lack images: rows, or photos that are counted by the names of classes."""
    names = ["-".join(group) for group in groups if isinstance(group[0], str)]
    if names:
        return f"of the photos {', '.join(names[:3])}{' and others have' if names[3:] else ' has'}"
    counts = "" if study.as_published else f" and counts.{split}"
    return f"by the study's rows{counts} some have"


def _check_images(settings: dict, study: Study, config: Configuration) -> None:
    """DiagvibError if batches or held-out parts do not fit a method."""
    method = settings["method"]
    declared, environments = declaration(method["name"]), len(study.environments)
    if method["supervision"] == "environments":
        check_batch(method, declared.environment_images, environments, settings["batch_size"])
    grouped = declared.every_group and method["supervision"].startswith("cue")
    if "held_out" in declared.options and not study.as_published and not grouped:
        check_held_out(method, config.counts["train"])
