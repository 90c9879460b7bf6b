"""What is rerun after which change, under the real rules; the jobs' command is a stand-in. Every
row is a line added to a file, and the jobs that a dry run then plans."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from stand_in import repository_with_stand_in, snakemake
from test_workflow import count

CONFIG = """
root: toy
sources: embedded
studies: [zso, zgo, mine]
studies_from: [mine.yaml]
bindings: [hue-shape]
samples: 5
counts: {train: 64, val: 18, id: 18, ood: 18}
baselines: [small_cnn, {name: resnet18, studies: [zgo]}, {name: vae, studies: [zgo]},
            {name: factor_vae, studies: [zgo]}]
"""
STUDIES = """
title: Mine
studies:
  mine:
    title: Mine
    meaning: on a scene of my own
    scene: scenery.own:Own
    roles: {target: 3, cue: 3}
    rows:
      - {splits: [train, val, test], group: id, cells: {cue: same}}
      - {splits: [test], group: ood, cells: {cue: other}}
"""
SCENE = {
    "scenery/__init__.py": "",
    "scenery/own.py": """
from diagvib.scenes.digits.scene import Digits

class Own(Digits):
    name = "scenery.own:Own"
    depends = ("scenery/colours.csv",)

    def renderer(self, prepared, size, device):
        import scenery.rendering
""",
    "scenery/rendering.py": "",
    "scenery/colours.csv": "red\n",
}
ENDS = {"tabulate": 1, "plot": 1, "all": 1}
# Three datasets; small_cnn is trained on each, the others on zgo.
ALL_TRAININGS = {"train": 6, **ENDS}
PREPARED_AGAIN = {"prepare": 2, "draw": 3, "render": 3, **ALL_TRAININGS}
OWN = {"prepare": 1, "draw": 1, "render": 1, "train": 1, **ENDS}
CHANGES = {
    "src/diagvib/models/small_cnn.py": {"train": 3, **ENDS},
    "src/diagvib/methods/vae.py": {"train": 2, **ENDS},  # factor_vae extends it
    "src/diagvib/methods/factor_vae.py": {"train": 1, **ENDS},
    "src/diagvib/training/trainer.py": ALL_TRAININGS,
    "src/diagvib/scenes/digits/renderer.py": PREPARED_AGAIN,
    "src/diagvib/studies/recipes.py": {"draw": 3, "render": 3, **ALL_TRAININGS},
    "src/diagvib/images/files.py": {"render": 3, **ALL_TRAININGS},
    "src/diagvib/results/metrics.py": ENDS,
    "src/diagvib/report/page.py": {"plot": 1, "all": 1},
    "src/diagvib/report/page.html.j2": {"plot": 1, "all": 1},
    "src/diagvib/report/gaps.js": {"plot": 1, "all": 1},  # which page.html.j2 includes
    "config/papers/diagvib6.csv": ENDS,
    "mine.yaml": ENDS,
    "scenery/own.py": OWN,
    "scenery/rendering.py": OWN,
    "scenery/colours.csv": OWN,
}

# Other methods, tuning, a second renderer for tests, what is in settings, rooms that decide no
# result, and tables.
NOTHING = [
    "src/diagvib/methods/asr.py",
    "src/diagvib/training/tuning.py",
    "src/diagvib/operations/plan.py",
    "src/diagvib/scenes/digits/plain_renderer.py",
    "src/diagvib/settings/grid.py",
    "src/diagvib/foundation/errors.py",
    "src/diagvib/stages.py",
    "src/diagvib/cli.py",
    "src/diagvib/scenes/__init__.py",
    "src/diagvib/methods/registry.py",
    "rules/train.smk",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A repository in which everything has been made once."""
    top = tmp_path_factory.mktemp("dependencies")
    folder = repository_with_stand_in(top, CONFIG)
    (folder / "scenery").mkdir()
    for name, text in {"mine.yaml": STUDIES, **SCENE}.items():
        (folder / name).write_text(text)
    snakemake(folder, cores=2)
    return folder


def plan(repository: Path, *arguments: str) -> dict[str, int]:
    said = snakemake(repository, *arguments, "-n", "--quiet", "rules", "reason", "host")
    assert count(said) or "Nothing to be done" in said, said
    return count(said)


MORE = {".py": b"\nMORE = 1\n", ".j2": b"\n{# why #}"}


@contextmanager
def changed(*files: Path, more: dict[str, bytes] = MORE):
    """Files with a line added at their end, by default a comment; restored afterwards."""
    before = {file: file.read_bytes() for file in files}
    try:
        for file, content in before.items():
            file.write_bytes(content + more.get(file.suffix, b"\n# why\n"))
        yield
    finally:
        for file, content in before.items():
            file.write_bytes(content)


@pytest.mark.parametrize("file", CHANGES)
def test_what_depends_on_a_file_runs_again_and_nothing_else(made, file):
    with changed(made / file):
        assert plan(made) == CHANGES[file]


def test_a_change_elsewhere_runs_nothing_again(made):
    assert all((made / file).is_file() for file in NOTHING)
    with changed(*(made / file for file in NOTHING)):
        assert plan(made) == {}
    assert plan(made) == {}


def test_a_comment_in_a_program_runs_nothing_again(made):
    programs = [made / file for file in CHANGES if file.endswith(".py")]
    with changed(*programs, more={}):
        assert plan(made) == {}


TRAINED = {"train": 1, "tabulate": 1, "tables": 1}


@pytest.mark.parametrize(
    ("gone", "jobs"),
    [
        ("results/runs/small_cnn/zgo", TRAINED),
        ("results/runs/vae/zgo/hue-shape/3/history.jsonl", TRAINED),
        ("data/images/zgo/hue-shape/1/val.parquet", {"render": 1, **TRAINED, "train": 4}),
    ],
)
def test_a_file_that_is_gone_is_made_again_also_if_another_stands_for_it(made, gone, jobs):
    aside = (made / "toy" / gone).rename(made / "aside")
    try:
        assert plan(made, "tables") == jobs
    finally:
        aside.rename(made / "toy" / gone)
    assert plan(made, "tables") == {}


def test_a_study_that_changes_is_drawn_again_alone(made):
    path = made / "mine.yaml"
    before = path.read_text()
    try:
        path.write_text(before.replace("group: id, cells", "group: id, weight: 2.0, cells"))
        assert plan(made) == {"draw": 1, "render": 1, "train": 1, **ENDS}
    finally:
        path.write_text(before)


def test_rendered_on_the_spot_trainings_depend_on_the_renderer(made):
    """Without image files, training jobs have the scene's code and recipes among their inputs."""
    without = ("--config", "images=render")
    snakemake(made, *without, cores=2)
    with changed(made / "scenery/rendering.py"):
        assert plan(made, *without) == {"prepare": 1, "draw": 1, "train": 1, **ENDS}
