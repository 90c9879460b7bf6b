"""The sets of metrics that a study may name, and what they require of it: test groups, the cells in
them, the number of cues."""

from collections.abc import Sequence
from typing import NamedTuple

from diagvib.foundation.validation import InvalidField


class Needs(NamedTuple):
    """groups: what a study must test; open_groups: whether it may have further ones; cues: how many,
    None for any number; misled: whether wrong predictions that follow the cue are counted;
    weights: whether the rows' weights count; module: of the set that is a paper's; tables: further ones that
    it makes."""

    groups: tuple[str, ...]
    open_groups: bool = False
    cues: int | None = None
    misled: bool = False
    weights: bool = False
    module: str = ""
    tables: tuple[str, ...] = ()


# Images on which the cue is as in training, and those on which it misleads. A study without cues
# has only the first.
ID, OOD = "id", "ood"
# Whether cue 1 and cue 2 agree with the target (True) or mislead -> the test group of these cells.
GAP_GROUPS = {
    (True, True): "common",
    (False, True): "no-cue-1",
    (True, False): "no-cue-2",
    (False, False): "neither",
}

# The sets of metrics that a study may name, in the order of tables and page.
METRICS = {
    "gaps": Needs(
        tuple(GAP_GROUPS.values()),
        cues=2,
        weights=True,
        module="papers.whac_a_mole.gaps",
        tables=("whac_a_mole",),
    ),
    "shortcut": Needs(
        (ID, OOD),
        module="papers.diagvib6.shortcut",
        tables=("p_matrix", "overall", "baselines", "cue_strength", "asymmetry", "ranking"),
    ),
    "average": Needs(
        (ID, OOD), cues=1, misled=True, weights=True, module="papers.spawrious.average"
    ),
    "watermark": Needs(("in-1k", "in-w"), open_groups=True, module="papers.imagenet_w.watermark"),
    "accuracy": Needs((), open_groups=True, misled=True, tables=("combinations",)),
}
# Of studies that name none.
DEFAULT = "shortcut"


def metric_set_modules() -> dict[str, str]:
    """The module of each set of metrics, by its name."""
    return {
        name: f"diagvib.{needs.module or f'results.metric_sets.{name}'}"
        for name, needs in METRICS.items()
    }


def check_needs(
    metrics: str, cues: Sequence[str], groups: Sequence[str], as_published: bool
) -> None:
    """InvalidField unless a study with these cues and test groups can be judged by a set of
    metrics. as_published: whether all photos are used, whatever the rows' weights."""
    needs = METRICS[metrics]
    if needs.cues is not None and len(cues) != needs.cues:
        noun = "role" if needs.cues == 1 else "roles"
        raise InvalidField(
            "roles",
            f"the metrics `{metrics}` need {needs.cues} bound {noun} besides the target, not "
            f"{len(cues)}",
        )
    needed = needs.groups if cues else needs.groups[:1]
    missing = [group for group in needed if group not in groups]
    if missing:
        raise InvalidField(
            "rows",
            f"no row of the split test has the group {missing[0]}, which the metrics "
            f"`{metrics}` need",
        )
    extra = [] if needs.open_groups else [group for group in groups if group not in needs.groups]
    if extra:
        raise InvalidField(
            "rows",
            f"the metrics `{metrics}` know only the groups {', '.join(needs.groups)}, not "
            f"{extra[0]}; choose other metrics",
        )
    if as_published and needs.weights:
        raise InvalidField(
            "as_published",
            f"the metrics `{metrics}` go by the rows' weights, which say nothing of how many "
            "photos there are; choose `metrics: accuracy`, or leave this key out",
        )


def check_gap_cell(location: str, group: str, cell: Sequence[int], cues: Sequence[int]) -> None:
    """InvalidField unless a test cell is in the group that says which cues mislead. cues: their
    positions in the cell."""
    correct_group = GAP_GROUPS[tuple(cell[cue] == cell[0] for cue in cues)]
    if group != correct_group:
        raise InvalidField(
            location,
            f"{list(cell)} is tested in the group {group}, but the metrics `gaps` need it in "
            f"{correct_group}, because of which cues agree with the target",
        )
