"""Columns of the predictions in scenes that name a class to watch, such as its probability."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import counting

# Photos at a time.
_TOGETHER = 128


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
    known, index = np.array(classes), [*classes].index(watched)
    rendered = set(photos.loc[photos["group"] == "in-r", "label"])
    among = torch.tensor(
        [at for at, name in enumerate(classes) if name in rendered or not rendered]
    )
    first_in = {group: at for at, group in sorted(groups.items(), reverse=True)}
    # For each class, the first of its group; itself without a group.
    first = torch.tensor([first_in.get(groups.get(at), at) for at in range(len(classes))])
    order = np.argsort(photos["photo"].to_numpy(), kind="stable")
    ends = (
        np.flatnonzero(np.diff(photos["photo"].to_numpy()[order]))[_TOGETHER - 1 :: _TOGETHER] + 1
    )
    parts = []
    with counting("answers", len(photos), "images") as advance:
        for rows in np.split(order, ends):
            log_p = logits_of(rows).float().log_softmax(1).cpu()
            if log_p.isnan().any():
                raise DiagvibError("the logits of some photos are no numbers; check the network")
            own = photos.iloc[rows].reset_index(drop=True)
            at = own.index.to_series()
            clean = at.where(own["watermark"] == "absent").groupby(own["photo"]).transform("first")
            raised = log_p - log_p[torch.tensor(clean.fillna(at).to_numpy(int))]
            probability = log_p.exp()
            top, predicted = probability.max(1)
            mixed = torch.tensor(own["group"].str.startswith("mixed").to_numpy())
            alike = first == first[predicted][:, None]
            found = {
                "prediction": known[torch.where(mixed, first[predicted], predicted)],
                "confidence": torch.where(mixed, (probability * alike).sum(1), top),
                "log_p": log_p[:, index],
                "raised_more": (raised > raised[:, [index]]).sum(1),
                "among": known[among[log_p[:, among].argmax(1)]],
            }
            parts.append(pd.DataFrame(found, index=rows))
            advance(len(rows))
    return pd.concat(parts).sort_index()
