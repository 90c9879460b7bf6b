"""The target class that a cue points to, for the cue preference of predictions (Li et al., 2023,
Fig. 6)."""

from collections.abc import Mapping, Sequence

from diagvib.studies.dataset_sample import DatasetSample
from diagvib.studies.study import TARGET, Study


def spoken_for(
    study: Study, cue: str, added_cue: Sequence[int] | None = None
) -> tuple[int | None, ...]:
    """For each class of a cue, the target class that it occurs with most often in training.

    If several are equally frequent, the one with the cue class's own index, if cue and target have
    as many classes; else None. In a study as published, the weights of its rows count, whatever the
    numbers of photos. added_cue: see `Study.cells`.
    """
    alike = study.roles[cue] == study.roles[TARGET]
    return tuple(
        most[0] if len(most) == 1 else index if alike and index in most else None
        for index, most in enumerate(_most_often(study, cue, added_cue))
    )


def spoken_for_among(
    study: Study, cue: str, added_cue: Sequence[int] | None = None
) -> tuple[frozenset[int], ...]:
    """For each class of a cue, the target classes that it occurs with most often in training, in
    all environments together.

    If it occurs equally often with two or more, as in a many-to-many shortcut, all of them are
    included; none if it occurs equally often with every class, or in no training image.
    """
    return tuple(
        frozenset(most if len(most) < study.roles[TARGET] else ())
        for most in _most_often(study, cue, added_cue)
    )


def _most_often(study: Study, cue: str, added_cue: Sequence[int] | None) -> list[list[int]]:
    cells = study.cells("train", added_cue)
    weights = cells.pivot_table(
        "weight", f"{cue}_class", f"{TARGET}_class", "sum", fill_value=0
    ).round(12)
    weights = weights.reindex(
        index=range(study.roles[cue]), columns=range(study.roles[TARGET]), fill_value=0
    )
    return [
        [int(target) for target in row.index[row == row.max()]] for _, row in weights.iterrows()
    ]


def speaks_for(
    study: Study,
    roles: Mapping[str, str],
    sample: DatasetSample,
    factors: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, str]]:
    """`spoken_for` by names, for a dataset sample: cue factor -> its class -> class of the target.

    roles: role -> factor, as bound. factors: those of the scene with all their classes. Classes
    that point to none are left out.
    """
    names = {
        role: sample.chosen(factor, study.roles[role], factors[factor])
        for role, factor in roles.items()
    }
    return {
        roles[cue]: {
            names[cue][index]: names[TARGET][target]
            for index, target in enumerate(spoken_for(study, cue, sample.added_cue))
            if target is not None
        }
        for cue in study.cues
    }
