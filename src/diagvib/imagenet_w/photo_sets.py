"""The photos that models are measured on, with and without watermark, and what is measured (Li et
al., 2023, Sec. 2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.imagenet_w.photos import Photos, list_photos

# The synset of the class that the watermark points to, and its index among ImageNet's classes.
CARTON, IMAGENET = "n02971356", 1000
_CARTON_INDEX = 478
# ImageNet-9's file: ImageNet's class index -> one of nine classes, -1 for none; published by the
# Background Challenge.
NINE_FILE = "in_to_in9.json"
SETS = ("in_1k", "in_w", "sin", "in_r", "mixed_same", "mixed_rand")
CLEAN, WATERMARKED, STYLISED, RENDITIONS, SAME, RANDOM = SETS
# What is known about a model's prediction for a photo: the predicted class, or one of ImageNet-9's;
# that among the set's own classes only (-1: it has none); the carton's log probability; and how many
# classes' log probabilities the watermark raises more than the carton's.
ANSWERS = ("predicted", "predicted_among", "log_p_carton", "classes_raised_more")

# In the tables' order, with their column heads.
MEASURES = {
    "in1k_accuracy": "IN-1k",
    "in_w_gap": "IN-W gap",
    "carton_gap": "Carton gap",
    "p_carton": "P(carton)",
    "delta_p_carton": "dP(carton)",
    "delta_p_carton_given_carton": "dP(carton, cartons)",
    "p_carton_factor": "P(carton) times",
    "carton_rank": "rank",
    "sin_gap": "SIN gap",
    "in_r_gap": "IN-R gap",
    "in_9_gap": "IN-9 gap",
}


@dataclass(frozen=True)
class PhotoSet:
    """Photos of one folder, and how predictions for them count.

    names: what is measured on them: one name, or CLEAN and WATERMARKED. carton: its class index.
    among: indices of the classes to which predictions are also restricted, such as ImageNet-R's
    200. nine: class index -> the label that it counts as, int64[classes].
    """

    names: tuple[str, ...]
    photos: Photos = field(repr=False)
    carton: int
    among: np.ndarray | None = field(default=None, repr=False)
    nine: np.ndarray | None = field(default=None, repr=False)

    def describe(self) -> dict:
        """What its records depend on, as plain data."""
        lists = {name: getattr(self, name) for name in ("among", "nine")}
        lists = {name: None if one is None else one.tolist() for name, one in lists.items()}
        return {"photos": self.photos.digest, "carton": self.carton, **lists}


def photo_sets(folders: Mapping[str, str | Path | None]) -> Iterator[PhotoSet]:
    """The sets of these folders: val, ImageNet's validation photos, or a folder of any photos,
    which have no labels; and sin, in_r and in_9, if given. DiagvibError if a folder does not have
    the required layout."""
    sin, in_r, in_9 = (
        folders.get(name) and Path(folders[name]) for name in ("sin", "in_r", "in_9")
    )
    val = list_photos(Path(folders["val"]), any_layout=True)
    if not val.classes:
        if sin or in_r or in_9:
            raise DiagvibError(f"{val.root}: has no class folders, which the other sets need")
        yield PhotoSet((CLEAN, WATERMARKED), val, _CARTON_INDEX)
        return
    if CARTON not in val.classes:
        raise DiagvibError(
            f"{val.root}: lacks the class folder {CARTON} (carton), to which the watermark points"
        )
    carton = val.classes.index(CARTON)
    if len(val.classes) == IMAGENET and carton != _CARTON_INDEX:
        raise DiagvibError(
            f"{val.root}: {CARTON} (carton) is folder {carton} of {IMAGENET}, not "
            f"{_CARTON_INDEX}; these are not ImageNet's classes, or a folder has a wrong name"
        )
    others = list_photos(in_r, val.classes) if in_r else None
    among = None if others is None else np.unique(others.labels)
    yield PhotoSet((CLEAN, WATERMARKED), val, carton, among)
    if sin:
        yield PhotoSet((STYLISED,), list_photos(sin, val.classes), carton)
    if others is not None:
        yield PhotoSet((RENDITIONS,), others, carton, among)
    if in_9:
        nine = _nine(in_9, len(val.classes))
        for name in (SAME, RANDOM):
            top = in_9 / name
            photos = list_photos(top / "val" if (top / "val").is_dir() else top)
            if len(photos.classes) != nine.max() + 1:
                raise DiagvibError(
                    f"{photos.root}: has {len(photos.classes)} class folders, but {NINE_FILE} names "
                    f"{nine.max() + 1} classes"
                )
            yield PhotoSet((name,), photos, carton, nine=nine)


def _nine(folder: Path, n_classes: int) -> np.ndarray:
    path, nine = folder / NINE_FILE, np.full(n_classes, -1)
    if not path.exists():
        raise DiagvibError(
            f"{path}: no such file; it comes with ImageNet-9 (the Background Challenge) and says which "
            "of the nine classes each of ImageNet's counts as"
        )
    try:
        for index, label in read_json(path).items():
            nine[int(index)] = int(label)
    except (ValueError, TypeError, IndexError):
        raise DiagvibError(
            f"{path}: must map class indices below {n_classes} to one of nine labels each, or to -1"
        ) from None
    return nine


def answers(logits: Mapping[str, Tensor], chosen: PhotoSet) -> dict[str, Tensor]:
    """ANSWERS for photos, float32[B, 4], by name of the set, from logits [B, classes]."""
    log_p = {name: given.float().log_softmax(1) for name, given in logits.items()}
    found = {}
    for name, given in log_p.items():
        predicted, among = given.argmax(1), torch.full((len(given),), -1)
        if chosen.among is not None:
            own = torch.from_numpy(chosen.among).to(given.device)
            among = own[given[:, own].argmax(1)]
        if chosen.nine is not None:
            predicted = torch.from_numpy(chosen.nine).to(given.device)[predicted]
        raised = given - log_p.get(CLEAN, given)
        more = (raised > raised[:, [chosen.carton]]).sum(1)
        columns = [predicted, among.to(given.device), given[:, chosen.carton], more]
        found[name] = torch.stack([column.float() for column in columns], 1).cpu()
    return found


def answer_table(found: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """ANSWERS, float32[N, 4], as columns, with the photos' labels."""
    return pd.DataFrame(np.asarray(found, np.float64), columns=ANSWERS).assign(label=labels)


def measure(answers: Mapping[str, pd.DataFrame], carton: int) -> dict[str, float | None]:
    """MEASURES in percent and percentage points; None if there are no photos for one.

    answers: set -> `answer_table`, with CLEAN and WATERMARKED for the same photos. Gaps are
    differences of accuracy: ImageNet-W minus ImageNet; Stylized-ImageNet minus ImageNet; ImageNet-R
    minus ImageNet's photos of the same classes, both with predictions among these classes only;
    mixed-rand minus mixed-same. P: mean probability on ImageNet; dP: its mean change by the
    watermark. p_carton_factor: the geometric mean of P's factor; carton_rank: 1 plus the number of
    classes that the watermark raises more than the carton, the median over photos.
    """
    clean, marked = answers[CLEAN], answers[WATERMARKED]
    of_cartons = clean["label"] == carton
    before, after = (np.exp(one["log_p_carton"]) for one in (clean, marked))
    percent = {
        "in1k_accuracy": _accuracy(clean),
        "in_w_gap": _accuracy(marked) - _accuracy(clean),
        "carton_gap": _accuracy(marked[of_cartons]) - _accuracy(clean[of_cartons]),
        "p_carton": before.mean(),
        "delta_p_carton": (after - before).mean(),
        "delta_p_carton_given_carton": (after - before)[of_cartons].mean(),
    }
    if STYLISED in answers:
        percent["sin_gap"] = _accuracy(answers[STYLISED]) - _accuracy(clean)
    if RENDITIONS in answers:
        same_classes = clean[clean["label"].isin(answers[RENDITIONS]["label"].unique())]
        percent["in_r_gap"] = _accuracy(answers[RENDITIONS], "predicted_among") - _accuracy(
            same_classes, "predicted_among"
        )
    if SAME in answers:
        percent["in_9_gap"] = _accuracy(answers[RANDOM]) - _accuracy(answers[SAME])
    found = {
        **{name: 100 * value for name, value in percent.items()},
        "p_carton_factor": np.exp((marked["log_p_carton"] - clean["log_p_carton"]).mean()),
        "carton_rank": 1 + marked["classes_raised_more"].median(),
    }
    # Rounded, so that files do not differ in the last bits of a sum.
    values = {name: float(found.get(name, np.nan)) for name in MEASURES}
    return {name: None if np.isnan(value) else round(value, 6) for name, value in values.items()}


def _accuracy(answers: pd.DataFrame, column: str = "predicted") -> float:
    known = answers[answers["label"] >= 0]
    return float((known[column] == known["label"]).mean()) if len(known) else np.nan
