"""Jobs run again after a change of what they use. Every row is a line added to a file, and the jobs whose code it
then is; what else follows from that, dry runs under the real rules say, where the jobs' command is a
stand-in."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BIN
from stand_in import repository_with_stand_in, snakemake
from toy import count, environment

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
ENDS = {"tabulate": 1, "plot": 1}
# Three datasets; small_cnn is trained on each, the others on zgo.
RENDERING = {"prepare": 2, "draw": 3, "render": 3, **ENDS}
MINE = {"prepare": 1, "draw": 1, "render": 1, **ENDS}
CHANGES = {
    "src/diagvib/models/small_cnn.py": {"train": 3},
    "src/diagvib/methods/vae.py": {"train": 2},  # factor_vae extends it
    "src/diagvib/methods/factor_vae.py": {"train": 1},
    "src/diagvib/training/trainer.py": {"train": 6},
    "src/diagvib/scenes/digits/renderer.py": RENDERING,
    "src/diagvib/images/files.py": {"render": 3, "train": 6},
    "src/diagvib/results/metrics.py": ENDS,
    "src/diagvib/report/page.py": {"plot": 1},
    "src/diagvib/report/page.html.j2": {"plot": 1},
    "src/diagvib/report/page.js": {"plot": 1},  # which page.html.j2 includes
    "src/diagvib/report/explorer.js": {"plot": 1},
    "src/diagvib/report/playground.js": {"plot": 1},
    "config/papers/diagvib6.csv": ENDS,
    "mine.yaml": ENDS,
    "scenery/own.py": MINE,
    "scenery/rendering.py": MINE,
    "scenery/colours.csv": MINE,
}

# Other methods and scenes, tuning, what is in settings, rooms that decide no result, and tables.
NOTHING = [
    "src/diagvib/methods/asr.py",
    "src/diagvib/training/tuning.py",
    "src/diagvib/commands/plan.py",
    "src/diagvib/settings/layout.py",
    "src/diagvib/foundation/errors.py",
    "src/diagvib/stages.py",
    "src/diagvib/cli/stage_commands.py",
    "src/diagvib/scenes/__init__.py",
    "src/diagvib/scenes/photos/scene.py",
    "src/diagvib/methods/registry.py",
    "rules/train.smk",
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A repository in which everything has been made once."""
    top = tmp_path_factory.mktemp("dependencies")
    folder = repository_with_stand_in(top, CONFIG)
    (folder / "scenery").mkdir()
    for name, text in {"mine.yaml": STUDIES, **SCENE}.items():
        (folder / name).write_text(text)
    snakemake(folder, cores=2)
    return folder


ADDITIONS = {".py": "\nMORE = 1\n", ".j2": "\n{# why #}", ".yaml": "\ncite: My paper.\n"}


# For each change of files in turn, prints the rules that get another digest of their code, job by job.
DIGESTS = """
import json, sys
from pathlib import Path
from diagvib.provenance.code import entries_code, stage_code
from diagvib.settings.resolve import load_config

config = load_config("toy.yaml")
jobs = [("tabulate", None, None, None), ("plot", None, None, None)]
jobs += [("prepare", scene, None, None) for scene in config.scenes]
jobs += [(stage, None, study, None) for stage in ("draw", "render") for study, _ in config.datasets]
jobs += [("train", None, study, baseline) for baseline, study, _ in config.train_jobs]

def digests():
    entries_code.cache_clear()
    return [stage_code(config, *job).digest for job in jobs]

usual = digests()
for additions in json.load(sys.stdin):
    before = {path: path.read_bytes() for path in map(Path, additions)}
    for path, more in zip(before, additions.values()):
        path.write_bytes(before[path] + more.encode())
    print(json.dumps([job[0] for job, old, new in zip(jobs, usual, digests()) if old != new]))
    for path, content in before.items():
        path.write_bytes(content)
"""


def of_other_code(folder: Path, *changes: dict[str, str]) -> list[dict[str, int]]:
    """For each change, which has files, and what is added at their ends: rule -> number of jobs that
    are of other code then."""
    process = subprocess.run(
        [BIN / "python", "-c", DIGESTS],
        cwd=folder,
        env=environment(folder),
        input=json.dumps(changes),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    content = [json.loads(line) for line in process.stdout.splitlines()]
    return [{rule: rules.count(rule) for rule in rules} for rules in content]


def test_a_change_in_a_file_is_one_in_the_code_of_what_uses_it_and_of_nothing_else(checkout):
    additions = [{file: ADDITIONS.get(Path(file).suffix, "\n# why\n")} for file in CHANGES]
    comments = {file: "\n# why\n" for file in CHANGES if file.endswith(".py")}
    elsewhere = dict.fromkeys(NOTHING, "\nMORE = 1\n")
    *result, of_comments, of_nothing = of_other_code(checkout, *additions, comments, elsewhere)
    assert dict(zip(CHANGES, result, strict=True)) == CHANGES
    assert not of_comments and not of_nothing


RENAMED = {
    "training.trainer": "training.fitting",
    "images.files": "images.parquet",
    "methods.method": "methods.base",
}


def test_renamed_modules_and_reworded_messages_run_nothing_again(checkout, tmp_path):
    """Also after isort has put the imports into the new names' order."""
    sources = checkout / "src/diagvib"
    retained, messages = shutil.copytree(sources, tmp_path / "diagvib"), 0
    for path in sources.rglob("*.py"):
        text, count = re.subn(r'((?:DiagvibError|say)\(\s*f?")', r"\1Note: ", path.read_text())
        messages += count * ("training" in path.parts)
        for old, new in RENAMED.items():
            text = text.replace(f"diagvib.{old}", f"diagvib.{new}")
        path.write_text(text)
    for old, new in RENAMED.items():
        before, after = (sources / f"{name.replace('.', '/')}.py" for name in (old, new))
        before.rename(after)
    subprocess.run([BIN / "ruff", "check", "--quiet", "--select=I", "--fix", sources], check=True)
    try:
        assert messages >= 10 and planned(checkout) == {}
        path = sources / "methods/vae.py"
        path.write_text(path.read_text().replace("32, 32,", "32, 48,"))
        assert planned(checkout) == {"train": 2, **ENDS, "all": 1}
    finally:
        shutil.rmtree(sources)
        shutil.move(retained, sources)


def planned(repository: Path) -> dict[str, int]:
    """Rule -> number of jobs of a dry run."""
    return count(snakemake(repository, "-n", "--quiet", "rules", "reason", "host"))


def test_what_follows_from_a_change_runs_again_too_and_nothing_else(checkout):
    runs, images = checkout / "toy/results/runs", checkout / "toy/data/images"
    programs = {
        checkout / name: ADDITIONS[".py"]
        for name in ("src/diagvib/methods/vae.py", "scenery/own.py")
    }
    before = {path: path.read_text() for path in programs}
    for path, additions in programs.items():
        path.write_text(before[path] + additions)
    shutil.rmtree(runs / "small_cnn/zgo")
    assert planned(checkout) == {**MINE, "train": 4, "all": 1}
    for path, text in before.items():
        path.write_text(text)
    # Files that others stand for, and a study.
    (runs / "vae/zgo/hue-shape/3/history.jsonl").unlink()
    (images / "zso/hue/1/val.parquet").unlink()
    path = checkout / "mine.yaml"
    path.write_text(path.read_text().replace("group: id, cells", "group: id, weight: 2.0, cells"))
    assert planned(checkout) == {"draw": 1, "render": 2, "train": 4, **ENDS, "all": 1}
