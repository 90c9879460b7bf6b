"""How much a configuration will make: images, and bytes on disk."""

from collections.abc import Iterable, Mapping

from diagvib.commands.multiply_adds import weights_bytes
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.settings.model_settings import published_weights
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.scarcity import split_counts
from diagvib.studies.study import SPLITS, Study

# Bytes on disk, measured on full-size datasets of the official sources with zstd (128 pixels;
# larger images compress in proportion to their side, since most of an image is background).
IMAGE_BYTES = 920
RECIPE_BYTES = 55
PREDICTION_BYTES = 12
OTHER_RUN_BYTES = 12_000
SOURCE_BYTES = {"official": 60_000_000, "embedded": 1_000_000}


def split_sizes(config: Configuration, study: str) -> dict[str, int]:
    """Images of a dataset by split; of a study as published, whose photos are not prepared, 0."""
    defined = config.study(study)
    if defined.as_published:
        return _photos(config, defined)
    return {split: sum(split_counts(defined, config.counts, split).values()) for split in SPLITS}


def _photos(config: Configuration, study: Study) -> dict[str, int]:
    prepared = Layout(config.root).prepared(study.scene)
    if not is_prepared(prepared):
        return dict.fromkeys(SPLITS, 0)
    from diagvib.studies.recipes import Draw  # loads pandas

    scene, binding = load_scene(study.scene), config.study_bindings(study.name, config.bindings)[0]
    draw = Draw(study, binding, dataset_sample(0, scene), {}, scene, scene.catalogue(prepared))
    return {split: len(draw.published(split)) for split in SPLITS}


def image_count(config: Configuration, sizes: Mapping, studies: Iterable[str]) -> int:
    """Images of all dataset samples of these studies, each in one binding."""
    return config.dataset_count * sum(sum(sizes[study].values()) for study in studies)


def disk_space(config: Configuration, sizes: Mapping, runs: Mapping[str, int]) -> dict:
    """Bytes by content, and what is left out of them. sizes: as of `split_sizes`, by study; runs: of
    each baseline."""
    disk = _dataset_bytes(config, sizes)
    published, unknown = _published_bytes(config)
    if published:
        disk["published weights"] = published
    weights = _weights_bytes(config) if config.keep_weights else {}
    if weights:
        disk["weights"] = sum(size * runs[name] for name, size in weights.items())
    return {
        "disk": disk,
        "weights_not_known": [name for name in runs if config.keep_weights and name not in weights],
        "published_not_known": unknown,
    }


def _dataset_bytes(config: Configuration, sizes: Mapping) -> dict[str, int]:
    """Bytes by content, without weights."""
    tested = [sizes[study]["test"] for _, study, _ in config.train_jobs]
    size, images, pixels = config.image_size, 0, 0.0
    downloaded = any(load_scene(name).sources for name in config.scenes)
    sources = SOURCE_BYTES[config.sources] if downloaded else 0
    for study, _ in config.datasets:
        scene = load_scene(config.study(study).scene)
        count = image_count(config, sizes, [study])
        # Scenes of photos say what theirs need, which is more.
        of_one = scene.bytes_per_pixel
        pixels += count * (IMAGE_BYTES * size / 128 if of_one is None else of_one * size**2)
        sources += count * scene.source_bytes_per_image
        images += count
    results = PREDICTION_BYTES * sum(tested) + OTHER_RUN_BYTES * len(tested)
    return {
        "recipes": images * RECIPE_BYTES,
        "images": int(pixels) if config.images == "parquet" else 0,
        "results": config.runs_per_job * results,
        "sources": sources,
    }


def _published_bytes(config: Configuration) -> tuple[int, list[str]]:
    """Bytes of the published weights that are fetched, and the networks whose size is not known."""
    sizes = {
        " ".join(published): weights_bytes(*published)
        for baseline in config.baselines
        if (published := published_weights(baseline.settings["model"]))
    }
    return sum(filter(None, sizes.values())), [name for name, size in sizes.items() if not size]


def _weights_bytes(config: Configuration) -> dict[str, int]:
    """Bytes of each baseline's weights for ten classes. Left out are those whose model or method is
    the user's own, which a plan does not import, and frozen networks, whose head's size depends on
    features that are not there yet. Nothing is downloaded."""
    import torch  # takes seconds, which plans without kept weights are spared

    from diagvib.methods.registry import make_baseline

    sizes = {}
    for baseline in config.baselines:
        settings, model = baseline.settings, baseline.settings["model"] or {}
        if baseline.network or ":" in settings["method"]["name"] + model.get("name", ""):
            continue
        if model:
            settings = {**settings, "model": {**model, "weights": None}}
        with torch.device("meta"):
            method = make_baseline(settings, n_classes=10, image_size=config.image_size, seed=0)
        sizes[baseline.name] = sum(tensor.nbytes for tensor in method.state_dict().values())
    return sizes
