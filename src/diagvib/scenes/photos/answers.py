"""Columns of the predictions in scenes that name a class to watch, such as its probability."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import counting

# Photos at a time.
_PHOTOS_PER_CHUNK = 128


@torch.inference_mode()
def answers(
    photos: pd.DataFrame,
    logits_of: Callable[[np.ndarray], Tensor],
    classes: Sequence[str],
    watched: str,
    groups: Mapping[int, int],
) -> pd.DataFrame:
    """For each photo, as columns. prediction: the predicted class, or, in the groups mixed-*, the
    first class of its group. confidence: the probability of that class, or of its group. log_p: the
    log probability of the class `watched`. raised_more: how many classes' log probabilities the
    watermark raises more. among: the predicted one of the classes that the group in-r has.

    photos: photo, watermark, group, label. logits_of: rows int64[B] -> [B, classes]; each row once,
    the rows of a photo together. groups: class index -> group, as of ImageNet-9.
    """
    class_names, index = np.array(classes), [*classes].index(watched)
    rendered = set(photos.loc[photos["group"] == "in-r", "label"])
    among = torch.tensor(
        [position for position, name in enumerate(classes) if name in rendered or not rendered]
    )
    first_in = {group: position for position, group in sorted(groups.items(), reverse=True)}
    # For each class, the first of its group; itself without a group.
    first_of_group = torch.tensor(
        [first_in.get(groups.get(position), position) for position in range(len(classes))]
    )
    order = np.argsort(photos["photo"].to_numpy(), kind="stable")
    ends = (
        np.flatnonzero(np.diff(photos["photo"].to_numpy()[order]))[
            _PHOTOS_PER_CHUNK - 1 :: _PHOTOS_PER_CHUNK
        ]
        + 1
    )
    parts = []
    with counting("answers", len(photos), "images") as advance:
        for rows in np.split(order, ends):
            log_p = logits_of(rows).float().log_softmax(1).cpu()
            if log_p.isnan().any():
                raise DiagvibError("the logits of some photos are no numbers; check the network")
            chunk = photos.iloc[rows].reset_index(drop=True)
            position = chunk.index.to_series()
            clean = (
                position.where(chunk["watermark"] == "absent")
                .groupby(chunk["photo"])
                .transform("first")
            )
            raised = log_p - log_p[torch.tensor(clean.fillna(position).to_numpy(int))]
            probability = log_p.exp()
            top, predicted = probability.max(1)
            mixed = torch.tensor(chunk["group"].str.startswith("mixed").to_numpy())
            same_group = first_of_group == first_of_group[predicted][:, None]
            columns = {
                "prediction": class_names[torch.where(mixed, first_of_group[predicted], predicted)],
                "confidence": torch.where(mixed, (probability * same_group).sum(1), top),
                "log_p": log_p[:, index],
                "raised_more": (raised > raised[:, [index]]).sum(1),
                "among": class_names[among[log_p[:, among].argmax(1)]],
            }
            parts.append(pd.DataFrame(columns, index=rows))
            advance(len(rows))
    return pd.concat(parts).sort_index()
