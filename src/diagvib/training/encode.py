"""The encode stage: images in, features of a frozen network out, computed once for all baselines
with that network.

Images are read, or rendered, a few hundred at a time. A killed job continues where it was, and ends
with the same bytes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json, write_table, writing
from diagvib.foundation.progress import counting
from diagvib.foundation.seeding import name_seed
from diagvib.images import FEATURES_FILE, split_files, view_path
from diagvib.images.datasets import Datasets
from diagvib.images.features import FeatureFiles, files_digest
from diagvib.images.files import BATCH, class_indices
from diagvib.images.label_columns import label_columns
from diagvib.methods.groups import Partners
from diagvib.methods.method import initialised
from diagvib.models.encoder import Encoder
from diagvib.models.independence import check_independent
from diagvib.models.network import Network
from diagvib.models.onnx_network import OnnxNetwork
from diagvib.models.registry import make_network
from diagvib.models.weights import located, state_digest
from diagvib.provenance.code import code_for, of_encoder, package_versions
from diagvib.provenance.finished import digest_of_images
from diagvib.scenes import load_scene
from diagvib.scenes.scene import TWINS, Scene
from diagvib.studies.study import SPLITS, TARGET
from diagvib.training.batches import IMAGENET, Scaling
from diagvib.training.checkpoints import digest
from diagvib.training.feature_views import CUES, view_inputs
from diagvib.training.protocol import deterministic

# Images per pass through the network, always as many, so that features do not depend on where a
# killed job had stopped; and images between two notes of the progress.
_BATCH, _BATCH_CPU, ROWS_PER_STATE = 256, 32, 8192


@dataclass(frozen=True)
class Encoding:
    """How features are made. settings: `baselines.encoder_settings`: model and normalise. weights: a
    folder that may contain published weights."""

    settings: dict
    device: torch.device
    threads: int = 1
    weights: Path | None = None


@dataclass(frozen=True)
class Part:
    """A split of a dataset sample. classes: the target's."""

    datasets: Datasets
    sample: int
    split: str

    @cached_property
    def metadata(self) -> dict:
        return self.datasets.metadata(self.sample, self.split)

    @cached_property
    def table(self) -> pa.Table:
        return self.datasets.table(self.sample, self.split)

    @cached_property
    def scene(self) -> Scene:
        return load_scene(self.metadata["scene"])

    @property
    def classes(self) -> Sequence[str]:
        return self.scene.factors[self.metadata["roles"][TARGET]]

    @cached_property
    def labels(self) -> torch.Tensor:
        """The class index of every image's target, int64[N]."""
        target = self.metadata["roles"][TARGET]
        return torch.from_numpy(class_indices(self.table, target, self.classes))

    def chunks(self, start: int = 0) -> Iterator[torch.Tensor]:
        return self.datasets.chunks(self.sample, self.split, start)


def encode(encoding: Encoding, datasets: Datasets, samples: int, folder: Path) -> None:
    """Write the features of all samples and splits to `folder`, then FEATURES_FILE. What is there
    already, made from the same, is kept."""
    (folder / FEATURES_FILE).unlink(missing_ok=True)  # it must not vouch for new files
    network, files, description = load_network(encoding, datasets), FeatureFiles(folder), {}
    made_by = made_from(encoding, network, datasets)
    model = encoding.settings["model"]
    parts = {(n, split): Part(datasets, n, split) for n in range(samples) for split in SPLITS}
    images = sum(len(part.table) for part in parts.values())
    with (
        deterministic(encoding.device, encoding.threads),
        # cuDNN would otherwise choose its convolutions anew in every process.
        torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ),
        counting(f"encode {folder.parent.name} {folder.name}", images, "images") as advance,
    ):
        for sample in range(samples):
            encoder = _encoder(encoding, network, parts[sample, "train"], digest(made_by))
            for split in SPLITS:
                part, path = parts[sample, split], files.path(sample, split)
                views = model.get("views", []) if split == "train" else []
                provenance = {**made_by, "images": part.metadata, "mean": encoder.mean.tolist()}
                write_features(
                    {"": path, **{view: view_path(path, view) for view in views}},
                    part.table,
                    partial(feature_chunks, encoder, part),
                    model.get("dtype", "float32"),
                    digest(provenance),
                    advance,
                )
                description[f"{sample}/{split}"] = {
                    **part.metadata,
                    "images": part.metadata.get("sha256"),
                    "sha256": files_digest(split_files(path, views)),
                    **({"views": views} if views else {}),
                }
    image_digests = {
        f"{sample}/{split}": digest_of_images(part.metadata)
        for (sample, split), part in parts.items()
    }
    write_json(folder / FEATURES_FILE, {**description, "of": image_digests, "made_from": made_by})


def load_network(encoding: Encoding, datasets: Datasets) -> Network:
    """The network on its device; without weights, its initial ones."""
    model = located(encoding.settings["model"], encoding.weights)
    first_part = Part(datasets, 0, "train")
    size = (model.get("input") or {}).get("size") or first_part.metadata["image_shape"][0]
    network = initialised(lambda: make_network(model, len(first_part.classes), size), seed=0)
    return network.to(encoding.device).eval()


def made_from(encoding: Encoding, network: Network, datasets: Datasets) -> dict:
    """Everything besides the images that decides features, as their metadata have it."""
    settings = of_encoder(encoding.settings)
    return {
        **encoding.settings,
        "weights": state_digest(network.body),
        "code": code_for(settings, __name__, datasets.metadata(0, "train")),
        "device": encoding.device.type,
        "versions": package_versions(settings),
    }


def _encoder(encoding: Encoding, network: Network, train: Part, identity: str) -> Encoder:
    """identity: a digest of everything but the images that decides features."""
    model = encoding.settings["model"]
    input_settings = model.get("input") or {}
    if input_settings.get("mean"):
        mean, std = (tuple(255 * value for value in input_settings[key]) for key in ("mean", "std"))
    else:
        imagenet = encoding.settings["normalise"] == "imagenet"
        scaling = IMAGENET if imagenet else Scaling.of_parts(train.chunks())
        mean, std = scaling.mean, scaling.std
    interpolation = input_settings.get("interpolation", "bilinear")
    encoder = Encoder(
        network, mean, std, input_settings.get("size"), interpolation, model.get("layer")
    )
    if model.get("runtime") and encoding.device.type == "cpu":
        encoder.of_inputs = OnnxNetwork(encoder.compute, _BATCH_CPU, encoding.threads, identity)
    if model.get("compute"):
        encoder.of_inputs = torch.autocast(encoding.device.type, torch.bfloat16)(encoder.compute)
    return encoder.to(encoding.device)


def feature_chunks(
    encoder: Encoder, part: Part, start: int, views: list[str]
) -> Iterator[dict[str, torch.Tensor]]:
    first_row = start
    for pixels in part.chunks(start):
        pixels, view_features = pixels.to(encoder.mean.device), {}
        if first_row == 0 and part.split == "train":
            check_independent(partial(features_of, encoder), pixels, "model.frozen")
        rows = torch.arange(first_row, first_row + len(pixels))
        first_row += len(pixels)
        for view in views:
            if not view:
                view_features[view] = features_of(encoder, pixels)
                continue
            if view in CUES or view in TWINS:
                changed = with_cue(part, view, rows) if view in CUES else twins(part, view, rows)
                view_features[view] = features_of(encoder, changed.to(encoder.mean.device))
                continue
            number = int(rows[0]) // BATCH
            inputs, share = view_inputs(view, pixels, number, encoder.inputs, part.scene)
            view_features[view] = features_of(encoder.of_inputs, inputs)
            if share is not None:
                partner_labels = label_columns(part.labels[rows].roll(1))
                view_features[view] = torch.cat(
                    [view_features[view], share.cpu()[:, None], partner_labels], 1
                )
        yield view_features


def with_cue(part: Part, view: str, rows: torch.Tensor) -> torch.Tensor:
    """Images uint8[B, H, W, 3] with a cue of random images of other target classes. rows: theirs,
    int64[B]."""
    cue = part.metadata["binding"].split("-")[int(view.removeprefix("cue."))]
    with torch.random.fork_rng([]):
        torch.manual_seed(name_seed("view", view, int(rows[0])))
        labels, zeros = part.labels, torch.zeros_like
        donors = Partners(zeros(labels), labels).draw(zeros(rows), labels[rows])
    recipes, donor_recipes = (part.table.take(rows_taken.numpy()) for rows_taken in (rows, donors))
    return part.datasets.renderer(part.scene.exchange(recipes, cue, donor_recipes))


def twins(part: Part, view: str, rows: torch.Tensor) -> torch.Tensor:
    """The changed photos in the files of a view, instead of images with these rows."""
    recipes, datasets = part.table.take(rows.numpy()), part.datasets
    return datasets.renderer(part.scene.twins(recipes, view, datasets.prepared))


@torch.inference_mode()
def features_of(
    encoder: Callable[[torch.Tensor], torch.Tensor], pixels: torch.Tensor
) -> torch.Tensor:
    """Features float[B, D] of images uint8[B, H, W, 3], on the CPU."""
    size = _BATCH_CPU if pixels.device.type == "cpu" else _BATCH
    return torch.cat([encoder(part) for part in pixels.split(size)]).cpu()


def write_features(
    paths: Mapping[str, Path],
    table: pa.Table,
    chunks: Callable[[int, list[str]], Iterable[Mapping[str, torch.Tensor]]],
    dtype: str,
    digest: str,
    advance: Callable[[int], None],
) -> None:
    """Write features of images, in one or more views, to `paths` (.npy), and their table next to
    each; unless they are there, made from what `digest` says.

    chunks: given the row to begin with and the views that are wanted, their features, float[B, D],
    a chunk at a time. DiagvibError for features that are no numbers in dtype.
    """
    missing = [name for name, path in paths.items() if not is_written(path, digest)]
    if not missing:
        advance(len(table))
        return
    parts = {name: paths[name].with_suffix(".part") for name in missing}
    state_file = parts[missing[0]].with_suffix(".json")
    expected_state = {"digest": digest, "views": missing}
    state = read_json(state_file) if state_file.exists() else {}
    continuing = expected_state.items() <= state.items() and all(
        part.exists() for part in parts.values()
    )
    rows_done = rows_saved = state.get("rows", 0) if continuing else 0
    arrays = {name: np.lib.format.open_memmap(parts[name], "r+") for name in missing if rows_done}
    advance(rows_done)
    for chunk in chunks(rows_done, missing):
        count = len(next(iter(chunk.values())))
        for name, features in chunk.items():
            if name not in arrays:
                parts[name].parent.mkdir(parents=True, exist_ok=True)
                shape = (len(table), features.shape[1])
                arrays[name] = np.lib.format.open_memmap(parts[name], "w+", dtype, shape)
                # Otherwise a full disk would kill the process later, without a message.
                with writing(paths[name]), parts[name].open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, parts[name].stat().st_size)
            with np.errstate(over="ignore"):
                values = features.numpy().astype(dtype)
            if not np.isfinite(values).all():
                raise DiagvibError(
                    f"{paths[name]}: a feature of the network is not a number, or too large for "
                    f"{dtype}; choose other weights{', or dtype: float32' * (dtype != 'float32')}"
                )
            arrays[name][rows_done : rows_done + count] = values
        rows_done += count
        advance(count)
        if rows_done - rows_saved >= ROWS_PER_STATE:
            for array in arrays.values():
                array.flush()
            write_json(state_file, {**expected_state, "rows": rows_done})
            rows_saved = rows_done
    for name, array in arrays.items():
        array.flush()
        parts[name].replace(paths[name])
        write_table(paths[name].with_suffix(".parquet"), table, {})
        state = {"digest": digest, "sha256": files_digest(split_files(paths[name]))}
        write_json(paths[name].with_suffix(".json"), state)


def is_written(path: Path, digest: str) -> bool:
    """Whether features are there, made from what `digest` says, and unchanged."""
    files, state_file = split_files(path), path.with_suffix(".json")
    state = read_json(state_file) if all(map(Path.exists, [*files, state_file])) else {}
    return state.get("digest") == digest and state.get("sha256") == files_digest(files)
