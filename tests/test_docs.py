"""Repository paths on the pages for readers, in backticks or links, exist."""

import json
import re
from itertools import combinations

import pandas as pd
import pytest

from conftest import REPOSITORY

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "profiles/README.md",
    *sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs").glob("*.md")),
]
FOLDERS = ("src", "config", "rules", "tests", "docs", "profiles", "benchmarks", ".ci")
# Paths that a page tells its reader to make.
OF_THE_READER = ("profiles/mysite",)


def paths(text: str) -> list[str]:
    """The paths of the repository that a page's text names in backticks: src/..., config/... and
    the like."""
    spans = re.findall(r"```.*?```|`[^`\n]+`", text, re.S)
    found = [
        path.rstrip(".,:;")
        for span in spans
        for path in re.findall(
            rf"(?<![\w./:-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*", span
        )
    ]
    return [path for path in found if not path.startswith(OF_THE_READER)]


def links(text: str) -> list[str]:
    """The targets of a page's relative links, without anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.partition("#")[0] for target in targets if not target.startswith(("http", "#"))]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page):
    text = (REPOSITORY / page).read_text()
    missing = [path for path in paths(text) if not any(REPOSITORY.glob(path.rstrip("/")))]
    missing += [
        target for target in links(text) if not ((REPOSITORY / page).parent / target).exists()
    ]
    assert missing == []


def test_the_rooms_that_the_pages_name_are_those_of_the_package():
    rooms = {
        path.name
        for path in (REPOSITORY / "src/diagvib").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    }
    of_contributing = re.findall(
        r"^\| `(\w+)/` \|", (REPOSITORY / "CONTRIBUTING.md").read_text(), re.M
    )
    assert set(of_contributing) == rooms and len(of_contributing) == len(rooms)
    of_readme = re.search(
        r"^src/diagvib/.*?^config/", (REPOSITORY / "README.md").read_text(), re.M | re.S
    )[0]
    named = [
        room
        for line in of_readme.splitlines()[1:]
        if line.startswith("  ")
        for room in re.findall(r"(\w+)/", line[:22])
    ]
    assert set(named) == rooms


def test_what_is_no_path_of_the_repository_is_not_looked_for():
    assert paths("`src/absent.py` and `config/x.yaml`, `data/src/x`; src/bare.py") == [
        "src/absent.py",
        "config/x.yaml",
    ]


@pytest.mark.parametrize(
    ("folder", "heading"),
    [("laptop", "small_cnn on all nine studies"), ("laptop_resnet18", "resnet18 on ZSO and ZGO")],
)
def test_the_page_of_results_shows_the_numbers_of_its_tables(folder, heading):
    page = (
        (REPOSITORY / "docs/results.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    )
    folder = REPOSITORY / "docs/results" / folder
    reference = pd.read_csv(folder / "reference.csv").query("metric == 'faavg'")
    names = re.search(r"^\| study \| (.+) \|$", page, re.M)[1].split(" | ")
    shown = {
        cells[0].lower(): cells[1:]
        for cells in re.findall(
            r"^\| ([A-Z]+(?:-\d+)?) \|" + r" (\d+ / \d+) \|" * len(names), page, re.M
        )
    }
    assert list(shown) == list(reference["study"].unique())
    for study, own in reference.groupby("study"):
        own = own.set_index("target")
        assert shown[study] == tuple(
            f"{100 * own['ours'][name]:.0f} / {100 * own['paper_resnet18'][name]:.0f}"
            for name in names
        )
    winners = pd.read_csv(folder / "pair_winners.csv")["verdict"]
    assert len(winners) == 15 and not (winners == "differs").any()
    assert f"In {(winners == 'agrees').sum()} of 15 pairs" in page
    orders = (
        pd.read_csv(folder / "factor_orders.csv")
        .query("metric == 'faavg' and study != study")
        .iloc[0]
    )
    for row in (
        orders,
        pd.read_csv(folder / "pair_orders.csv").query("study == 'zgo' and paper").iloc[0],
    ):
        assert f"{row['spearman']:.2f}, 95 % interval {row['low']:.2f} to {row['high']:.2f}" in page


def test_the_page_says_how_far_dataset_samples_differ():
    page = (REPOSITORY / "docs/results.md").read_text()
    runs = pd.read_csv(REPOSITORY / "docs/results/laptop/runs.csv").dropna(subset="cue")
    pairs = runs[runs["study"] == "zgo"].pivot_table(
        index=["target", "cue"], columns="sample", values="ood_accuracy"
    )
    alike = [pairs[one].corr(pairs[other], "spearman") for one, other in combinations(pairs, 2)]
    assert (
        f"the {len(pairs)} P_ij have rank correlations of {min(alike):.2f} to {max(alike):.2f}"
        in page
    )
    means = runs.groupby(["study", "target", "sample"])["ood_accuracy"].mean().unstack("sample")
    apart = 100 * (means.max(axis=1) - means.min(axis=1))
    most = apart.groupby("target").agg(["max", "idxmax"])
    told = {
        name: f"{row['max']:.0f} for {name} ({row['idxmax'][0].upper()})"
        for name, row in most.iterrows()
    }
    assert (
        f"spans {apart.median():.0f} points in the median, and up to {told['shape']}, {told['scale']} and "
        f"{told['lightness']}"
    ) in page
    orders = [tuple(own.sort_values(ascending=False).index) for _, own in means.loc["zgo"].items()]
    assert orders[0] == orders[1] and [
        a for a, b in zip(orders[0], orders[2], strict=True) if a != b
    ] == ["shape", "scale"]
    assert (
        "but for shape and scale in sample {} ({:.0f} and {:.0f} %)".format(
            2, *(100 * means.loc[("zgo", name), 2] for name in ("shape", "scale"))
        )
        in page
    )
    found = pd.read_csv(REPOSITORY / "docs/results/laptop/closeness.csv")[
        "closeness"
    ].value_counts()
    assert (
        f"{found['close']} within 5 points, {found['apart']} apart" in page
        and f"{found['cannot tell']} undecided" in page
    )


def section(page: str, heading: str) -> str:
    return (REPOSITORY / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def measured(name: str) -> str:
    """The content of a file of results."""
    return (REPOSITORY / "benchmarks/results" / name).read_text()


def test_the_page_of_measurements_shows_what_each_method_costs():
    page = section("benchmarks/README.md", "Methods")
    shown = dict(re.findall(r"(?<=\| )(\w+)(?:, \w+ phase)? \| ([\d.]+)(?= \|)", page))
    phases = {"jtt": "classify", "eiil": "classify", "dfr": "classify"}
    rows = {
        row["method"]: row["ratio_to_erm"]
        for name in ("methods-cpu", "methods-two-cues-cpu")
        for row in json.loads(measured(f"{name}-2026-11-22.json"))["rows"]
        if row["phase"] == phases.get(row["method"], row["phase"])
    }
    assert len(shown) == 15 and shown == {name: f"{rows[name]:.2f}" for name in shown}


def test_the_page_of_measurements_shows_the_gaps_of_its_table():
    shown = {
        cells[0]: cells[2:]
        for cells in (
            line.strip("| ").split(" | ")
            for line in section("benchmarks/README.md", "Whac-A-Mole").splitlines()
            if line.startswith("| ")
        )
    }
    table = pd.read_csv(
        REPOSITORY / "benchmarks/results/whac-95-cpu-2026-11-22.csv"
    ).drop_duplicates("baseline")
    columns = ("id_accuracy", "cue_1_gap", "cue_2_gap", "joint_gap")
    for row in table.to_dict("records"):
        assert [cell.partition(" (")[0] for cell in shown[row["baseline"]]] == [
            f"{100 * row[name]:.1f} ± {100 * row[f'{name}_stderr']:.1f}" for name in columns
        ]
        factors = [re.findall(r"x([\d.]+)", cell) for cell in shown[row["baseline"]][1:3]]
        found = [row[f"cue_{cue}_factor"] for cue in (1, 2)]
        assert factors == [[f"{factor:.1f}"] if factor > 1 else [] for factor in found]


def test_the_page_of_measurements_shows_the_accuracies_in_environments():
    names = {
        "ERM": "erm_env",
        "group DRO": "group_dro_env",
        "CORAL": "coral",
        "LISA": "lisa",
        "Mixup": "mixup_env",
    }
    table = pd.read_csv(REPOSITORY / "benchmarks/results/environments-cpu-2026-11-22.csv")
    table = table.set_index(["study", "baseline", "metric"])
    study, count = "", 0
    for line in section("benchmarks/README.md", "Environments").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[-1] and len(cells) == 5 and cells[1] in names:
            study, count = cells[0] or study, count + 1
            own = [
                table.loc[(study, names[cells[1]], metric)]
                for metric in ("id_accuracy", "accuracy", "confusion")
            ]
            assert cells[2:] == [
                f"{100 * row['mean']:.1f} ± {100 * row['stderr']:.1f}" for row in own
            ]
    assert count == 14
