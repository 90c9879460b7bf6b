"""The rows of a study: some of its cells, the splits and group they belong to, and how often they
occur in total."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from diagvib.foundation.validation import Filled, InvalidField, Name, Strict, Unique

TARGET = "target"
SPLITS = ("train", "val", "test")
MAIN = "main"  # the environment of rows that name none

# One class index per role; `added` is the cue class that the dataset sample adds to the cell's
# target class.
Cell = Filled[list[Annotated[int, Field(ge=0)] | Literal["added"]]]
Relations = Filled[dict[str, Literal["same", "other"] | Annotated[int, Field(ge=0)]]]


class Row(Strict):
    """Some cells of a study: the splits and group they belong to, and how often they occur in
    total."""

    splits: Unique[Literal[SPLITS]]
    group: Name
    """the common name of the cells; test results are given for each group"""
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    """how often the row's cells occur in total, relative to the other rows of the split (of the
    group, in the split test)"""
    environment: Name = MAIN
    """the environment that the images belong to; its share of a split is the sum of its rows'
    weights"""
    cells: Literal["others"] | Relations | Filled[list[Cell]]
    """class indices in the order of the roles; or relations to the target's class, {cue: same} or
    {cue: other}, or class indices of some cues, {cue: 1}; or `others`, all cells that no training
    row has. `added` stands for the cue class that the dataset sample adds to the cell's target
    class"""

    @field_validator("group")
    @classmethod
    def _names_no_split(cls, group: str) -> str:
        if group in SPLITS:
            raise ValueError(
                f"{group} is the name of a split, and `counts` names both; choose another name"
            )
        if group in ("plain", "adjusted", "in1k") or group.startswith(("train_", "val_")):
            raise ValueError(
                f"{group}_accuracy is the name of another accuracy; choose another name"
            )
        return group

    @property
    def adds(self) -> bool:
        """Whether its cells depend on the dataset sample."""
        return isinstance(self.cells, list) and any("added" in cell for cell in self.cells)


def check_row(location: str, row: Row, roles: Mapping[str, int]) -> None:
    """InvalidField unless a row's cells fit a study's roles. roles: role -> number of classes."""
    if row.cells == "others":
        if "train" in row.splits:
            raise InvalidField(
                location,
                "`others` are the cells that no training row names, so a row with the split train "
                "cannot have them; list its cells",
            )
    elif isinstance(row.cells, dict):
        cue_roles = [role for role in roles if role != TARGET]
        for role in row.cells:
            if role == TARGET:
                raise InvalidField(
                    f"{location}.{role}",
                    "relations say which classes the cues have beside each class of the target; for "
                    "some of its classes alone, list cells, such as "
                    f"[{[0] * len(roles)}], in the order {', '.join(roles)}",
                )
            if role not in cue_roles:
                raise InvalidField(
                    location,
                    f"{role} is not one of the roles besides `{TARGET}`: "
                    f"{', '.join(cue_roles) or 'there are none'}",
                )
            if isinstance(row.cells[role], int) and row.cells[role] >= roles[role]:
                raise InvalidField(f"{location}.{role}", f"{role} has only {roles[role]} classes")
    else:
        for number, cell in enumerate(row.cells):
            _check_cell(f"{location}.{number}", cell, roles)


def _check_cell(location: str, cell: Cell, roles: Mapping[str, int]) -> None:
    if len(cell) != len(roles):
        raise InvalidField(
            location,
            f"{cell} has {len(cell)} class indices; {len(roles)} roles ({', '.join(roles)}) need "
            f"{len(roles)}",
        )
    for number, ((role, classes), index) in enumerate(zip(roles.items(), cell, strict=True)):
        if index == "added":
            if role == TARGET or list(roles.values()) != [3, 3]:
                raise InvalidField(
                    f"{location}.{number}",
                    "`added` stands for a cue's class, in studies of two roles with "
                    "three classes each; give a class index",
                )
        elif index >= classes:
            raise InvalidField(
                f"{location}.{number}",
                f"{role} has {classes} classes, so its indices are 0 to {classes - 1}, not {index}",
            )
