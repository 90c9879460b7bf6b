"""Studies: which cells are trained and tested on, how often, in which environment. A study is data,
not code.

The shipped ones are in `config/studies/*.yaml`; a configuration may name further files
(`studies_from`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_serializer, model_validator
from pydantic.json_schema import SkipJsonSchema

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path, named_in
from diagvib.foundation.validation import (
    Filled,
    InvalidField,
    Line,
    Name,
    Sparse,
    Strict,
    Text,
    read_valid,
    validated,
)
from diagvib.foundation.versions import once_per_version
from diagvib.scenes import PUBLISHED_TEXTURES, with_textures
from diagvib.scenes.scene import AddedCue
from diagvib.studies.metric_needs import DEFAULT, METRICS, check_gap_cell, check_needs
from diagvib.studies.rows import MAIN, SPLITS, TARGET, Row, check_row

if TYPE_CHECKING:
    import pandas as pd

_MOST_CELLS = 50_000


class Study(Sparse):
    """A table of weighted cells over named roles, as in `config/studies/*.yaml`.

    Roles that are not bound are summed out.
    """

    name: SkipJsonSchema[Name]  # the study's key in its file
    title: Annotated[Line, Field(min_length=1, max_length=140)]
    meaning: Filled[Line]
    """one sentence, for legends and reports"""
    scene: Text = "digits"
    """what the images show: a scene of the program, photos of your own as path/to/photos.yaml
    (relative to this file, or to the current folder), or any scene of your own as
    package.module:Class"""
    metrics: Literal[tuple(METRICS)] = DEFAULT
    """how results are judged. shortcut: P_ij, FAAvg and FAMin on the group ood; accuracy: each
    group and its worst cell; gaps: two cues; average: environments; watermark: ImageNet-W"""
    as_published: Literal[True] | None = None
    """every photo of a photo set is used in each row that it fits, also in several; otherwise,
    images are drawn by the rows' weights, and no photo is used twice"""
    roles: Filled[dict[Name, Annotated[int, Field(ge=2)]]]
    """role -> number of classes, `target` first. They are the dataset sample's own classes of the
    factor, if it has this many (three, or all classes of photos); otherwise so many are drawn, with
    the sample's number as seed"""
    bound: Filled[list[str]] = Field(default_factory=list)
    """the roles that a binding such as shape-hue gives a factor to; default: all"""
    spread: dict[Name, Annotated[float, Field(ge=0, le=1)]] | None = None
    """bound role -> how much its classes differ: 1 as they are in the scene, 0.5 half as much, 0
    not at all; default: 1. Bindings that give the role a factor without a spread, such as shape,
    are left out"""
    opportunity: str = ""
    """what headlines call the help that this study offers against a shortcut"""
    rows: Filled[list[Row]]

    @model_validator(mode="before")
    @classmethod
    def _all_roles_are_bound(cls, value: object) -> object:
        roles = value.get("roles") if isinstance(value, dict) else None
        pairs = roles if isinstance(roles, list) else []
        if pairs and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):  # as dumped
            roles = {str(role): classes for role, classes in pairs}
        if not isinstance(roles, dict):
            return value
        return {"bound": [str(role) for role in roles], **value, "roles": roles}

    @field_serializer("roles")
    def _in_order(self, roles: dict[str, int]) -> list[list]:
        """Pairs, since the keys of a JSON object may get sorted on the way."""
        return [[role, classes] for role, classes in roles.items()]

    @model_validator(mode="after")
    def _fits_together(self) -> Study:
        first_role = next(iter(self.roles))
        if first_role != TARGET:
            raise InvalidField("roles", f"the first role must be `{TARGET}`, not {first_role}")
        if prod(self.roles.values()) > _MOST_CELLS:
            raise InvalidField(
                "roles",
                f"together have more than {_MOST_CELLS:,} cells; use fewer classes or roles",
            )
        in_order = [role for role in self.roles if role in self.bound]
        if self.bound != in_order or self.bound[0] != TARGET:
            raise InvalidField(
                "bound",
                f"must be roles in their order, `{TARGET}` first, not {', '.join(self.bound)}; "
                f"the roles are {', '.join(self.roles)}",
            )
        for role in self.spread or ():
            if role not in self.bound:
                raise InvalidField(
                    f"spread.{role}", f"is not one of the bound roles: {', '.join(self.bound)}"
                )
        for number, row in enumerate(self.rows):
            check_row(f"rows.{number}.cells", row, self.roles)
        for split in SPLITS:
            if not self.rows_of(split):
                raise InvalidField("rows", f"no row names the split {split}")
        check_needs(self.metrics, self.cues, self.groups, bool(self.as_published))
        # A dataset sample adds to each target class a cue class other than the one on the diagonal.
        for added_cue in product((1, 2), (0, 2), (0, 1)) if self.adds else [None]:
            self._check_cells(added_cue)
        return self

    def _check_cells(self, added_cue: tuple[int, ...] | None) -> None:
        """For one choice of added cue classes: no row without cells or with a cell twice, no cell
        in two test groups, no target class that is not trained."""
        row_cells = [self.row_cells(row, added_cue) for row in self.rows]
        trained: dict[str, set[int]] = defaultdict(set)  # target classes by environment
        tested: dict[tuple[int, ...], str] = {}
        for row, cells in zip(self.rows, row_cells, strict=True):
            if "train" in row.splits:
                trained[row.environment] |= {cell[0] for cell in cells}
        training_cells = set().union(*trained.values())
        for environment, environment_cells in trained.items():
            if environment_cells != training_cells:
                raise InvalidField(
                    "rows",
                    f"the environment {environment} has no training images of target class "
                    f"{min(training_cells - environment_cells)}, which other environments have; add a training cell of "
                    "it",
                )
        cues = [list(self.roles).index(cue) for cue in self.cues]
        for number, (row, cells) in enumerate(zip(self.rows, row_cells, strict=True)):
            location = f"rows.{number}.cells"
            if not cells:
                reason = ", because the rows of the train split name them all"
                raise InvalidField(
                    location,
                    f"`{row.cells}` names no cell{reason if row.cells == 'others' else ''}",
                )
            for cell, times in Counter(cells).items():
                if times > 1:
                    raise InvalidField(
                        location,
                        f"{list(cell)} is listed twice, or could be through `added`; list it once, "
                        "and give it a row of its own if it should have more weight",
                    )
                if cell[0] not in training_cells and not self.as_published:
                    raise InvalidField(
                        location,
                        f"target class {cell[0]} is in no row of the train split, so "
                        "no model could learn it; add a training cell of it, or remove its cells",
                    )
                if "test" not in row.splits:
                    continue
                if self.metrics == "gaps":
                    check_gap_cell(location, row.group, cell, cues)
                if tested.setdefault(cell, row.group) != row.group:
                    raise InvalidField(
                        location,
                        f"{list(cell)} is tested in the group {row.group} and in {tested[cell]}, "
                        "or could be through `added`; put it in one of them",
                    )

    @property
    def cues(self) -> tuple[str, ...]:
        """The roles besides the target to which a binding assigns factors."""
        return tuple(self.bound[1:])

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the test split, in the order of the rows."""
        return tuple(self.group_weights)

    @property
    def group_weights(self) -> dict[str, float]:
        """How often each test group occurs relative to the others: the sum of its rows' weights."""
        weights: dict[str, float] = defaultdict(float)
        for row in self.rows_of("test"):
            weights[row.group] += row.weight
        return dict(weights)

    @property
    def environments(self) -> tuple[str, ...]:
        """The training environments, in the order of the rows; (`main`,) if none is named."""
        return tuple(dict.fromkeys(row.environment for row in self.rows_of("train")))

    @property
    def names_environments(self) -> bool:
        return any(row.environment != MAIN for row in self.rows)

    @property
    def adds(self) -> bool:
        """Whether its cells depend on the dataset sample."""
        return any(row.adds for row in self.rows)

    def rows_of(self, split: str) -> list[Row]:
        return [row for row in self.rows if split in row.splits]

    def row_cells(self, row: Row, added_cue: Sequence[int] | None) -> list[tuple[int, ...]]:
        """The cells of one of its rows, one class index per role. added_cue: see `cells`.
        DiagvibError if it is needed and not given."""
        all_cells = product(*map(range, self.roles.values()))
        if row.cells == "others":
            training_cells = [
                self.row_cells(training_row, added_cue) for training_row in self.rows_of("train")
            ]
            trained = set(chain(*training_cells))
            return [cell for cell in all_cells if cell not in trained]
        if isinstance(row.cells, dict):
            roles = list(self.roles)
            conditions = [(roles.index(role), classes) for role, classes in row.cells.items()]
            return [
                cell
                for cell in all_cells
                if all(
                    (cell[role_number] == (cell[0] if isinstance(condition, str) else condition))
                    == (condition != "other")
                    for role_number, condition in conditions
                )
            ]
        if added_cue is None and row.adds:
            raise DiagvibError(
                f"study {self.name}: its cells depend on the dataset sample; give added_cue, such as (1, 2, 0)"
            )
        return [
            tuple(int(added_cue[cell[0]]) if index == "added" else index for index in cell)
            for cell in row.cells
        ]

    def cells(self, split: str, added_cue: Sequence[int] | None = None) -> pd.DataFrame:
        """The cells of a split, one row each.

        added_cue: the cue class index that CGO adds to target class 0, 1, 2. Columns:
        `{role}_class` for every role, group, weight, and environment if the study names any.
        Weights sum to one over train and over val, and within each group of test; an environment's
        share is the sum of its rows' weights. DiagvibError for an unknown split, or if `added_cue`
        is needed and not given.
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        import pandas as pd  # here, so that reading a configuration does not import it: a third of a second

        records = []
        for row in self.rows_of(split):
            cells = self.row_cells(row, added_cue)
            records += [
                (*cell, row.group, row.weight / len(cells), row.environment) for cell in cells
            ]
        columns = [*(f"{role}_class" for role in self.roles), "group", "weight", "environment"]
        frame = pd.DataFrame(records, columns=columns)
        weight = frame["weight"]
        frame["weight"] /= (
            weight.groupby(frame["group"]).transform("sum") if split == "test" else weight.sum()
        )
        return frame if self.names_environments else frame.drop(columns="environment")


class Contrast(Strict):
    """The accuracy on a study's held-out cells minus that of a reference study (paper, Table 2:
    CHGO minus ZGO)."""

    study: Name
    reference: Name
    metric: Name
    title: Line


class Headline(Strict):
    """The studies that the report's first sentence compares."""

    without: Name
    shortcut: Name


class StudyFile(Strict):
    """One file of studies: a benchmark. routes: studies in the order in which curves show them."""

    title: Filled[Line]
    cite: Line = ""
    """the paper to cite, in one paragraph"""
    routes: dict[Name, Annotated[list[Name], Field(min_length=2)]] = Field(default_factory=dict)
    """studies in the order in which curves show them"""
    contrasts: dict[Name, Contrast] = Field(default_factory=dict)
    """a study's accuracy on held-out cells minus that of a reference study"""
    headline: Headline | None = None
    """which studies the report's first sentence compares"""
    studies: Filled[dict[Name, Study]]
    aliases: dict[Name, Name] = Field(default_factory=dict)
    """further names of the file's studies, such as a source's own: alias -> study"""

    @model_validator(mode="before")
    @classmethod
    def _studies_bear_their_keys(cls, value: object) -> object:
        if not isinstance(value, dict) or not isinstance(value.get("studies"), dict):
            return value
        studies = {
            key: {**study, "name": key} if isinstance(study, dict) else study
            for key, study in value["studies"].items()
        }
        return {**value, "studies": studies}

    @model_validator(mode="after")
    def _names_are_studies(self) -> StudyFile:
        study_names = {f"routes.{name}": route for name, route in self.routes.items()}
        study_names |= {
            f"contrasts.{name}": [c.study, c.reference] for name, c in self.contrasts.items()
        }
        study_names |= {f"aliases.{alias}": [study] for alias, study in self.aliases.items()}
        if self.headline:
            study_names["headline"] = [self.headline.without, self.headline.shortcut]
        valid_names = ", ".join(self.studies)
        for location, studies in study_names.items():
            for study in studies:
                if study not in self.studies:
                    raise InvalidField(
                        location, f"{study} is not one of the file's studies: {valid_names}"
                    )
        return self


def parse_study(name: str, definition: Mapping, location: str = "study") -> Study:
    """A study from its definition. DiagvibError, naming study and key or row, for any error in
    it."""
    return validated(Study, {**definition, "name": name}, f"{location} {name}")


@once_per_version
def read_study_file(path: Path) -> StudyFile:
    """A study file. Photo sets that it names as scenes may be relative to it. DiagvibError, naming
    the file, for any error in it."""
    file = read_valid(StudyFile, path)
    studies = {
        name: study.model_copy(update={"scene": named_in(path, study.scene)})
        for name, study in file.studies.items()
    }
    return file.model_copy(update={"studies": studies})


def study_files(more_files: Sequence[str | Path] = ()) -> list[Path]:
    """The shipped study files, and a configuration's own, relative to the current folder."""
    return [
        *sorted(definition_path("studies").glob("*.yaml")),
        *(Path(path) for path in more_files),
    ]


def load_studies(
    more_files: Sequence[str | Path] = (), textures: Sequence[str] = PUBLISHED_TEXTURES
) -> dict[str, Study]:
    """Every study by name: the shipped ones, and those in further files. textures: of the
    configuration, which change the scenes that have some. DiagvibError for a name that occurs
    twice."""
    studies = {name: study for name, study in _known(more_files).items() if study.name == name}
    return {name: _textured(study, textures) for name, study in studies.items()}


def load_study(
    name: str,
    more_files: Sequence[str | Path] = (),
    textures: Sequence[str] = PUBLISHED_TEXTURES,
) -> Study:
    """A study by its name or an alias, as from `load_studies`. DiagvibError, suggesting similar
    names, for an unknown one."""
    studies = _known(more_files)
    if name not in studies:
        raise unknown_name("study", name, studies)
    return _textured(studies[name], textures)


def _textured(study: Study, textures: Sequence[str]) -> Study:
    scene = with_textures(study.scene, textures)
    return study if scene == study.scene else study.model_copy(update={"scene": scene})


def _known(more_files: Sequence[str | Path]) -> dict[str, Study]:
    """Studies by their names and aliases."""
    studies: dict[str, Study] = {}
    for path in study_files(more_files):
        file = read_study_file(path)
        aliases = {alias: file.studies[name] for alias, name in file.aliases.items()}
        for key, entries in (("studies", file.studies), ("aliases", aliases)):
            for name, study in entries.items():
                if name in studies:
                    raise DiagvibError(
                        f"{path}: {key}.{name}: another study has this name; choose a different one"
                    )
                studies[name] = study
    return studies


def study_cells(name: str, split: str, added_cue: Sequence[int] | None = None) -> pd.DataFrame:
    """The cells of a study's split: {role}_class (class index) for every role, group, weight, and
    environment if the study names any.

    name: e.g. `cgo-2`; split: train, val, test, or a test group (id, ood) alone; added_cue: for
    CGO, the cue class index added to target class 0, 1, 2. Weights sum to one over train, over
    val, and within each test group. DiagvibError for an unknown name, or if added_cue is missing or
    wrong.
    """
    study = load_study(name)
    if added_cue is not None and study.adds:
        added_cue = validated(AddedCue, added_cue, "study_cells: added_cue")
    if split not in {*METRICS[study.metrics].groups, *study.groups}:
        return study.cells(split, added_cue)
    cells = study.cells("test", added_cue)
    return cells[cells["group"] == split].reset_index(drop=True)
