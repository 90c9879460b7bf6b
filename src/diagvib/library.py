"""diagvib as a library: a dataset of any study in one line, with its metrics.

Without a workflow's `root`, images are drawn and rendered on the fly. The same names and numbers
give the same images as the workflow's files, byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from filelock import AcquireReturnProxy, FileLock
from pydantic import BaseModel, create_model
from torch import Tensor
from torch.utils.data import Dataset

from diagvib import stages
from diagvib.foundation.code import code_of
from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import DIGESTS_FILE, cache_folder, read_json, read_yaml
from diagvib.foundation.parallel import one_thread_in_forks
from diagvib.foundation.program_digest import program_digest
from diagvib.foundation.validation import Strict, validated
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import Images, render_batches
from diagvib.results.evaluation import evaluate
from diagvib.results.known_studies import KnownStudies
from diagvib.scenes import SCENES, load_scene, source_state
from diagvib.scenes.scene import Scene, replicates
from diagvib.settings.config import default_path
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout
from diagvib.studies.binding import Binding, Factors, bind, read_binding
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.study import SPLITS, Study, load_study

MOST_SAMPLES = 32_767  # what the column `sample` of a recipe holds


class StudyDataset(Dataset):
    """One split of a study's dataset: `image, target, metadata = dataset[i]`.

    image: uint8[3, size, size], or what `transform` makes of it. target: index of the class in
    `classes`. metadata: group, environment if the study names any, and for each cue the index of
    its class in `cue_classes[cue]`. A DataLoader collates all three. `pixels`, `targets` and
    `table` hold all images at once: uint8[N, size, size, 3], int64[N], and a pyarrow table that
    describes each image.
    """

    def __init__(
        self,
        study: Study,
        binding: Binding,
        split: str,
        sample: int,
        images: Images,
        known: KnownStudies,
        transform: Callable[[Tensor], object] | None = None,
    ):
        self.study, self.binding, self.split, self.sample = study.name, binding.name, split, sample
        self.classes = images.factors[binding.target]
        self.cue_classes: Mapping[str, tuple[str, ...]] = {
            cue: images.factors[cue] for cue in binding.cues
        }
        self.pixels, self.table = images.pixels.cpu(), images.table
        self.targets = images.labels(binding.target)
        self.metadata: dict[str, Sequence] = {
            **{
                name: self.table[name].to_pylist()
                for name in ("group", "environment")
                if name in self.table.column_names
            },
            **{cue: images.labels(cue).tolist() for cue in binding.cues},
        }
        self.comparable: bool = images.metadata["comparable"]
        self.transform, self._known = transform, known
        _ = (
            known.studies
        )  # read now: the metrics are those of the definition that the images were drawn from

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[object, int, dict]:
        try:
            index = int(range(len(self))[index])  # of a slice there is no int
        except TypeError:
            raise DiagvibError(
                f"dataset[{index}]: an index is the number of one image; for several, use "
                "torch.utils.data.Subset, or `pixels` and `targets`"
            ) from None
        # A copy, which a transform may change; numpy's, since a fork lacks the threads that torch's
        # may wait for.
        image = torch.from_numpy(self.pixels[index].numpy().copy()).permute(2, 0, 1)
        return (
            image if self.transform is None else self.transform(image),
            int(self.targets[index]),
            {name: values[index] for name, values in self.metadata.items()},
        )

    def __repr__(self) -> str:
        return (
            f"StudyDataset({self.study}, {self.binding}, {self.split}, sample {self.sample}: {len(self)} images of "
            f"{self.pixels.shape[1]} pixels, {len(self.classes)} classes)"
        )

    def evaluate(self, predictions: Tensor | np.ndarray | Sequence[int]) -> dict[str, float]:
        """The metrics, as fractions, of predictions: class indices int[N] in the order of the
        images.

        See `results.evaluation.evaluate` for their names. DiagvibError unless there is exactly one
        class index for each image.
        """
        try:
            given = torch.as_tensor(
                np.array(predictions)
                if hasattr(predictions, "dtype") and not isinstance(predictions, Tensor)
                else predictions
            )
            given = (
                given.long() if given.dtype in (torch.uint16, torch.uint32, torch.uint64) else given
            )
        except (TypeError, ValueError, RuntimeError) as error:
            raise DiagvibError(
                f"predictions must be class indices int[{len(self)}], numbers from 0 to "
                f"{len(self.classes) - 1} in the order of `classes` ({one_line(error)})"
            ) from None
        if given.ndim != 1 or given.is_floating_point() or given.dtype == torch.bool:
            raise DiagvibError(
                f"predictions must be class indices int[{len(self)}], not {str(given.dtype)[6:]}"
                f"{list(given.shape)}; for logits, use argmax(1)"
            )
        wrong = ((given < 0) | (given >= len(self.classes))).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise DiagvibError(
                f"prediction {row} is {int(given[row])}, which is not a class; classes are numbered "
                f"from 0 to {len(self.classes) - 1}"
            )
        return evaluate(
            self.study,
            self.binding,
            self.sample,
            self.split,
            self.table,
            np.array(self.classes)[given.cpu().numpy()].tolist(),
            self._known,
        )


def load(
    study: str,
    binding: str,
    split: str = "train",
    sample: int = 0,
    *,
    root: str | Path | None = None,
    sources: str | None = None,
    mirror: str | Path | None = None,
    counts: Mapping[str, int] | None = None,
    image_size: int | None = None,
    device: str | torch.device | None = None,
    transform: Callable[[Tensor], object] | None = None,
    studies_from: str | Path | Sequence[str | Path] = (),
) -> StudyDataset:
    """A split of a study's dataset, in memory (49,152 bytes per image of 128 pixels).

    study: such as `zgo` (`diagvib.studies()`); binding: the factors of its roles, `shape-hue`;
    split: train, val or test; sample: number of the dataset sample (only 0 for scenes of photos).

    root: the folder in which a workflow has made images, or into which they were pulled. Without
    it, the images are drawn and rendered now, from `sources` official (the default; downloaded once
    and checked by hash, or taken from the folder `mirror`) or embedded (no download; results are
    not comparable to a paper's). Prepared sources are kept in
    $DIAGVIB_CACHE, by default ~/.cache/diagvib.
    counts: images of the splits train and val, and of each test group, or of `test`, all groups together; defaults are
    those of config/config.yaml, DiagViB-6's.
    image_size: pixels per side, by default 128. device: where images are rendered, by default cpu. studies_from: your
    own study files.
    DiagvibError for unknown names, unavailable sources, missing or damaged files, and for what only rendering needs if
    `root` is given.
    """
    sample, image_size = _number(sample), _number(image_size)
    _check_names(study=study, binding=binding, split=split)
    root, mirror = _path("root", root), _path("mirror", mirror)
    if transform is not None and not callable(transform):
        raise DiagvibError(
            f"transform: must be a function of an image, not {one_line(repr(transform))}"
        )
    further = _study_files(studies_from)
    definition = load_study(study, further)
    scene = load_scene(definition.scene)
    _check_sample(sample, scene)
    binding = _bound(definition, binding, scene.factors)
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    rendering = {
        "sources": sources,
        "mirror": mirror,
        "counts": counts,
        "image_size": image_size,
        "device": device,
    }
    if root is not None:
        for name, value in rendering.items():
            if value is not None:
                raise DiagvibError(
                    f"diagvib.load: {name} is for images that are rendered now, but those in {root} are "
                    f"finished; leave out {name} or root"
                )
        images = _from_files(root, definition, binding, split, sample)
    else:
        given = validated(
            _Given,
            {
                "sources": "official" if sources is None else sources,
                "image_size": 128 if image_size is None else image_size,
                "counts": _counts(definition, split, {} if counts is None else counts),
            },
            "diagvib.load",
        )
        if mirror is not None and given.sources != "official":
            raise DiagvibError(
                f"diagvib.load: mirror is for official sources, but sources is {given.sources}; leave "
                "out one of them"
            )
        images = _rendered(
            definition,
            binding,
            split,
            sample,
            given,
            mirror,
            resolve_device("cpu" if device is None else str(device)),
        )
    return StudyDataset(
        definition, binding, split, sample, images, KnownStudies(further), transform
    )


_Given = create_model(
    "_Given",
    __base__=Strict,
    **{
        key: (Configuration.model_fields[key].annotation, Configuration.model_fields[key])
        for key in ("sources", "counts", "image_size")
    },
)


def _number(value: object) -> object:
    """numpy's whole numbers as Python's; anything else as it is."""
    return int(value) if isinstance(value, np.integer) else value


def _check_names(**given: object) -> None:
    for kind, name in given.items():
        if not isinstance(name, str):
            raise DiagvibError(f"{kind}: must be one name, not {one_line(repr(name))}")


def _path(name: str, value: object) -> Path | None:
    if value is None or (isinstance(value, str | Path) and str(value)):
        return None if value is None else Path(value)
    raise DiagvibError(f"{name}: must be the path of a folder, not {one_line(repr(value))}")


def _study_files(given: object) -> tuple[str, ...]:
    files = [given] if isinstance(given, str | Path) else () if given is None else given
    if not isinstance(files, list | tuple) or not all(
        isinstance(file, str | Path) and str(file) for file in files
    ):
        raise DiagvibError(
            "studies_from: must be the path of a study file, or a list of paths, not "
            f"{one_line(repr(given))}"
        )
    return tuple(map(str, files))


def _check_sample(number: object, scene: Scene) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise DiagvibError(f"dataset sample {number!r}: must be a whole number, such as 0")
    if number < 0:
        raise DiagvibError(f"dataset sample {number}: numbers start at 0")
    if number > MOST_SAMPLES:
        raise DiagvibError(f"dataset sample {number}: numbers go up to {MOST_SAMPLES}")
    if number and replicates(scene) == "seeds":
        raise DiagvibError(
            f"dataset sample {number}: the scene {scene.name} has one dataset sample, 0, since there is "
            "one set of photos; repetitions differ in their training seeds alone"
        )


def _bound(study: Study, name: str, factors: Factors) -> Binding:
    """The binding of this name. A study that binds only the target takes it from the binding of
    another study, too."""
    if study.cues:
        return bind(study, name, factors)
    return bind(study, read_binding(name, factors).target, factors)


def _counts(study: Study, split: str, given: Mapping[str, int]) -> dict[str, int]:
    """The number of images of a split, under the configuration's keys: as given, or as in
    config/config.yaml."""
    known = [*SPLITS, *study.groups]
    if not isinstance(given, Mapping):
        raise DiagvibError(
            f"counts: must be a mapping, such as counts={{'{split}': 90}} with the keys "
            f"{', '.join(known)}, not {one_line(repr(given))}"
        )
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise unknown_name("count", unknown, known)
    both = (
        next((group for group in study.groups if group in given), None) if "test" in given else None
    )
    if both is not None:
        raise DiagvibError(
            f"counts: has both test, the number for all groups together, and {both}, that for one "
            "group; leave out one of them"
        )
    given = {key: _number(count) for key, count in given.items()}
    groups = () if "test" in given else study.groups
    usual = {
        key: count
        for key, count in read_yaml(default_path())["counts"].items()
        if key in (*SPLITS, *groups)
    }
    counts = {**usual, **given}
    absent = next((group for group in groups if group not in counts), None)
    if split == "test" and absent:
        raise DiagvibError(
            f"counts: the group {absent} of study {study.name} has no number of images; give "
            "counts={'test': ...}, one number for all groups"
        )
    return counts


def _from_files(root: Path, study: Study, binding: Binding, split: str, sample: int) -> Images:
    files = ImageFiles(Layout(root).images(study.name, binding.name))
    path = files.place(sample, split)
    if not path.exists():
        raise DiagvibError(
            f"{path}: no such file; make it with `snakemake images --cores all` and a configuration "
            "with `images: parquet`, get it with `dvc pull`, or leave out `root` to render the images "
            "now"
        )
    return files.load(sample, split)


def _rendered(
    study: Study,
    binding: Binding,
    split: str,
    sample: int,
    how: BaseModel,
    mirror: Path | None,
    device: torch.device,
) -> Images:
    """As `diagvib draw` and `diagvib render` do, for one dataset sample and split. how: a
    `_Given`."""
    scene, prepared = load_scene(study.scene), _prepared(study.scene, how.sources, mirror)
    catalogue = scene.catalogue(prepared)
    one = dataset_sample(sample, scene.factors, scene.published_samples)
    recipes = draw_recipes(study, binding, [one], how.counts, scene, catalogue, [split])
    with one_thread_in_forks():
        pixels = torch.cat(
            list(render_batches(recipes, scene.renderer(prepared, how.image_size, device)))
        )
    return Images(pixels, recipes, {"scene": study.scene, "comparable": catalogue.comparable})


_loaded: dict[
    str, list[str]
] = {}  # scene -> the code that this process has loaded: it does not load it again


def _prepared(scene: str, sources: str, mirror: Path | None) -> Path:
    """The folder of prepared data that a scene renders from, made if missing: one for each version
    of the scene's code and of the user's photos."""
    where = SCENES.get(scene, scene)
    code = code_of([], [where], ["diagvib.stages:fetch", "diagvib.stages:prepare"])
    programs = sorted(map(program_digest, (*code.modules.values(), *code.data)))
    if _loaded.setdefault(where, programs) != programs:
        raise DiagvibError(
            f"scene {scene}: its code, or diagvib's, has changed since it was first used here; restart "
            "Python to use the new code"
        )
    photos = source_state(scene, mirror) if sources == "official" else ""
    made_from = repr([where, photos, programs])
    layout = Layout(cache_folder() / sources / hashlib.sha256(made_from.encode()).hexdigest())
    made = layout.prepared(scene)
    if not _is_whole(made):
        with _locked(
            layout.root
        ):  # of several processes, one makes it; free again when that is killed
            if not _is_whole(made):
                stages.fetch(layout, {"sources": sources}, scene, mirror)
                stages.prepare(layout, {"sources": sources}, scene)
    return made


def _is_whole(folder: Path) -> bool:
    """Whether every file is there that was prepared in a folder: what clears caches may have
    deleted some."""
    try:
        return all((folder / name).exists() for name in read_json(folder / DIGESTS_FILE))
    except DiagvibError:
        return False


def _locked(folder: Path) -> AcquireReturnProxy:
    """The lock of a folder in the cache, taken; the folder is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / "lock").acquire()
    except OSError as error:
        raise DiagvibError(
            f"{folder}: cannot be written ({error.strerror}), but prepared sources are kept there; set "
            "DIAGVIB_CACHE to a folder that you can write to"
        ) from None
