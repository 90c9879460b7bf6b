"""diagvib as a library: a dataset of any study in one line, with its metrics.

Without a workflow's `root`, images are drawn and rendered on the fly. The same names and numbers give the same images
as the workflow's files, byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from pydantic import BaseModel, create_model
from torch import Tensor
from torch.utils.data import Dataset

from diagvib import stages
from diagvib.foundation.code import code_of
from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import DIGESTS_FILE, cache_folder, read_yaml
from diagvib.foundation.program_digest import program_digest
from diagvib.foundation.validation import Strict, validated
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import Images, render_batches
from diagvib.results.evaluation import evaluate
from diagvib.results.known_studies import KnownStudies
from diagvib.scenes import SCENES, load_scene, source_state
from diagvib.settings.config import default_path
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout
from diagvib.studies.binding import Binding, bind, chosen_bindings
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.study import SPLITS, Study, load_study


class StudyDataset(Dataset):
    """One split of a study's dataset: `image, target, metadata = dataset[i]`.

    image: uint8[3, size, size], or what `transform` makes of it. target: index of the class in `classes`. metadata:
    group, environment if the study names any, and for each cue the index of its class in `cue_classes[cue]`.
    A DataLoader collates all three. `pixels`, `targets` and `table` hold all images at once: uint8[N, size, size, 3],
    int64[N], and a pyarrow table that describes each image.
    """

    def __init__(self, study: Study, binding: Binding, split: str, sample: int, images: Images,
                 known: KnownStudies, transform: Callable[[Tensor], object] | None = None):
        self.study, self.binding, self.split, self.sample = study.name, binding.name, split, sample
        self.classes = images.factors[binding.target]
        self.cue_classes: Mapping[str, tuple[str, ...]] = {cue: images.factors[cue] for cue in binding.cues}
        self.pixels, self.table = images.pixels.cpu(), images.table
        self.targets = images.labels(binding.target)
        self.metadata: dict[str, Sequence] = {
            **{name: self.table[name].to_pylist() for name in ("group", "environment")
               if name in self.table.column_names},
            **{cue: images.labels(cue).tolist() for cue in binding.cues}}
        self.comparable: bool = images.metadata["comparable"]
        self.transform, self._known = transform, known

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[object, int, dict]:
        try:
            index = int(range(len(self))[index])  # of a slice there is no int
        except TypeError:
            raise DiagvibError(f"dataset[{index}]: an index is the number of one image; for several, use "
                               "torch.utils.data.Subset, or `pixels` and `targets`") from None
        image = self.pixels[index].permute(2, 0, 1)
        return (self.transform(image) if self.transform else image, int(self.targets[index]),
                {name: values[index] for name, values in self.metadata.items()})

    def __repr__(self) -> str:
        return (f"StudyDataset({self.study}, {self.binding}, {self.split}, sample {self.sample}: {len(self)} images of "
                f"{self.pixels.shape[1]} pixels, {len(self.classes)} classes)")

    def evaluate(self, predictions: Tensor | np.ndarray | Sequence[int]) -> dict[str, float]:
        """The metrics, as fractions, of predictions: class indices int[N] in the order of the images.

        See `results.evaluation.evaluate` for their names. DiagvibError unless there is exactly one class index for each
        image.
        """
        try:
            given = torch.as_tensor(predictions)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DiagvibError(f"predictions must be class indices int[{len(self)}], numbers from 0 to "
                               f"{len(self.classes) - 1} in the order of `classes` ({one_line(error)})") from None
        if given.ndim != 1 or given.is_floating_point() or given.dtype == torch.bool:
            raise DiagvibError(f"predictions must be class indices int[{len(self)}], not {str(given.dtype)[6:]}"
                               f"{list(given.shape)}; for logits, use argmax(1)")
        wrong = ((given < 0) | (given >= len(self.classes))).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise DiagvibError(f"prediction {row} is {int(given[row])}, which is not a class; classes are numbered "
                               f"from 0 to {len(self.classes) - 1}")
        return evaluate(self.study, self.binding, self.sample, self.split, self.table,
                        np.array(self.classes)[given.cpu().numpy()].tolist(), self._known)


def load(study: str, binding: str, split: str = "train", sample: int = 0, *, root: str | Path | None = None,
         sources: str | None = None, mirror: str | Path | None = None, counts: Mapping[str, int] | None = None,
         image_size: int | None = None, device: str | None = None,
         transform: Callable[[Tensor], object] | None = None, studies_from: str | Path | Sequence[str | Path] = ()
         ) -> StudyDataset:
    """A split of a study's dataset, in memory (49,152 bytes per image of 128 pixels).

    study: such as `zgo` (`diagvib.studies()`); binding: the factors of its roles, `shape-hue`; split: train, val or
    test; sample: number of the dataset sample.

    root: the folder in which a workflow has made images, or into which they were pulled. Without it, the images are
    drawn and rendered now, from `sources` official (the default; downloaded once and checked by hash, or taken from the
    folder `mirror`) or embedded (no download; results are not comparable to a paper's). Prepared sources are kept in
    $DIAGVIB_CACHE, by default ~/.cache/diagvib.
    counts: images of the splits train and val, and of each test group; defaults are those of config/config.yaml.
    image_size: pixels per side, by default 128. device: where images are rendered, by default cpu. studies_from: your
    own study files.
    DiagvibError for unknown names, unavailable sources, missing or damaged files, and for what only rendering needs if
    `root` is given.
    """
    _check_sample(sample)
    further = (str(studies_from),) if isinstance(studies_from, str | Path) else tuple(map(str, studies_from))
    definition = load_study(study, further)
    factors = load_scene(definition.scene).factors
    binding = chosen_bindings(definition, [binding], factors)[0] if not definition.cues else bind(
        definition, binding, factors)
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    rendering = {"sources": sources, "mirror": mirror, "counts": counts, "image_size": image_size, "device": device}
    if root is not None:
        for name, value in rendering.items():
            if value is not None:
                raise DiagvibError(f"diagvib.load: {name} is for images that are rendered now, but those in {root} are "
                                   f"finished; leave out {name} or root")
        images = _from_files(Path(root), definition, binding, split, sample)
    else:
        given = validated(_Given, {"sources": sources or "official", "image_size": image_size or 128,
                                   "counts": _counts(definition, split, counts or {})}, "diagvib.load")
        images = _rendered(definition, binding, split, sample, given, Path(mirror) if mirror else None,
                           resolve_device(device or "cpu"))
    return StudyDataset(definition, binding, split, sample, images, KnownStudies(further), transform)


_Given = create_model("_Given", __base__=Strict, **{
    key: (Configuration.model_fields[key].annotation, Configuration.model_fields[key])
    for key in ("sources", "counts", "image_size")})


def _check_sample(number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise DiagvibError(f"dataset sample {number!r}: must be a whole number, such as 0")
    if number < 0:
        raise DiagvibError(f"dataset sample {number}: numbers start at 0")


def _counts(study: Study, split: str, given: Mapping[str, int]) -> dict[str, int]:
    """The number of images of a split, under the configuration's keys: as given, or as in config/config.yaml."""
    known = [*SPLITS, *study.groups]
    if not isinstance(given, Mapping):
        raise DiagvibError(f"counts: must be a mapping, such as counts={{'{split}': 90}} with the keys "
                           f"{', '.join(known)}, not {one_line(repr(given))}")
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise unknown_name("count", unknown, known)
    groups = () if "test" in given else study.groups
    usual = {key: count for key, count in read_yaml(default_path())["counts"].items() if key in (*SPLITS, *groups)}
    counts = {**usual, **given}
    absent = next((group for group in groups if group not in counts), None)
    if split == "test" and absent:
        raise DiagvibError(f"counts: the group {absent} of study {study.name} has no number of images; give "
                           "counts={'test': ...}, one number for all groups")
    return counts


def _from_files(root: Path, study: Study, binding: Binding, split: str, sample: int) -> Images:
    files = ImageFiles(Layout(root).images(study.name, binding.name))
    path = files.place(sample, split)
    if not path.exists():
        raise DiagvibError(f"{path}: no such file; make it with `snakemake images --cores all` and a configuration "
                           "with `images: parquet`, get it with `dvc pull`, or leave out `root` to render the images "
                           "now")
    return files.load(sample, split)


def _rendered(study: Study, binding: Binding, split: str, sample: int, how: BaseModel, mirror: Path | None,
              device: torch.device) -> Images:
    """As `diagvib draw` and `diagvib render` do, for one dataset sample and split. how: a `_Given`."""
    scene, prepared = load_scene(study.scene), _prepared(study.scene, how.sources, mirror)
    catalogue = scene.catalogue(prepared)
    one = dataset_sample(sample, scene.factors, scene.published_samples)
    recipes = draw_recipes(study, binding, [one], how.counts, scene, catalogue, [split])
    pixels = torch.cat(list(render_batches(recipes, scene.renderer(prepared, how.image_size, device))))
    return Images(pixels, recipes, {"scene": study.scene, "comparable": catalogue.comparable})


def _prepared(scene: str, sources: str, mirror: Path | None) -> Path:
    """The folder of prepared data that a scene renders from, made if missing: one for each version of the scene's code
    and of the user's photos."""
    where = SCENES.get(scene, scene)
    code = code_of([], [where], ["diagvib.stages:fetch", "diagvib.stages:prepare"])
    photos = source_state(scene, mirror) if sources == "official" else ""
    made_from = repr([where, photos, sorted(map(program_digest, (*code.modules.values(), *code.data)))])
    layout = Layout(cache_folder() / sources / hashlib.sha256(made_from.encode()).hexdigest())
    made = layout.prepared(scene) / DIGESTS_FILE
    if not made.exists():
        layout.root.mkdir(parents=True, exist_ok=True)
        with FileLock(layout.root / "lock"):  # of several processes, one makes it; free again when that is killed
            if not made.exists():
                stages.fetch(layout, {"sources": sources}, scene, mirror)
                stages.prepare(layout, {"sources": sources}, scene)
    return made.parent
