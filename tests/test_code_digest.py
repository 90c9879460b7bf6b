"""What counts as a run's code, and that nothing trained by other code passes for this code's."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conftest import REPOSITORY
from diagvib.foundation.code import code_of
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.training.code_digest import baseline_modules, code_digest, git_state
from synthetic_images import write_dataset
from warm import programs


def settings(model: str | None, method: str = "erm") -> dict:
    return {"model": model and {"name": model}, "method": {"name": method}}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with the user's own package, which must not be executed."""
    for name, text in {
        "mine/__init__.py": "1 / 0\n",
        "mine/nets.py": "import json, torch\nfrom mine import parts\nfrom . import more\n1 / 0\n",
        "mine/parts/__init__.py": "",
        "mine/more.py": "def late():\n    import helpers.deep\n",
        "mine/unused.py": "",
        "helpers/deep.py": "from diagvib.methods.vae import Vae\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_own_files_are_found_without_being_executed(own):
    files = sorted(code_of(["mine.nets"]).modules.values())
    assert [str(path.relative_to(own)) for path in files if path.is_relative_to(own)] == [
        "helpers/deep.py",
        "mine/__init__.py",
        "mine/more.py",
        "mine/nets.py",
        "mine/parts/__init__.py",
    ]
    assert REPOSITORY / "src/diagvib/methods/vae.py" in files, "what it takes from here counts too"
    assert not any("site-packages" in path.parts for path in files)
    assert {
        name.partition(".")[0] for name in code_of(baseline_modules(settings("small_cnn"))).modules
    } == {"diagvib"}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mine/nets.py", True),
        ("mine/__init__.py", True),
        ("helpers/deep.py", True),
        ("mine/unused.py", False),
    ],
)
def test_every_file_counts_that_is_imported(own, name, counts):
    before = code_digest(settings("mine.nets:make"), "diagvib.training.run")
    assert code_digest(settings("mine.nets:make"), "diagvib.training.run") == before
    with (own / name).open("a") as file:
        file.write("ANOTHER = 1\n")
    assert (code_digest(settings("mine.nets:make"), "diagvib.training.run") != before) == counts


def test_own_module_that_is_not_there_or_no_python(own):
    with pytest.raises(DiagvibError, match="there is no module mine.nest"):
        code_digest(settings("mine.nest:make"), "diagvib.training.run")
    (own / "mine/more.py").write_text("def (\n")
    with pytest.raises(DiagvibError, match=r"more.py: not valid Python"):
        code_digest(settings("mine.nets:make"), "diagvib.training.run")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A copy of the package that may be changed."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(
        REPOSITORY / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(REPOSITORY / "config", folder / "config")
    return folder


@pytest.fixture(scope="module")
def unchanged(elsewhere) -> dict[str, str]:
    return digests(elsewhere, sys.executable)


def digests(folder: Path, python: str | Path) -> dict[str, str]:
    script = textwrap.dedent("""
        from diagvib.training.code_digest import code_digest
        def settings(model, method="erm"):
            return {"model": model and {"name": model}, "method": {"name": method}}
        for name, chosen in {"small_cnn": settings("small_cnn"), "resnet18": settings("resnet18"),
                             "vae": settings(None, "vae"), "factor_vae": settings(None, "factor_vae"),
                             "jtt": settings("small_cnn", "jtt")}.items():
            print(name, code_digest(chosen, "diagvib.training.run", "digits"))
        print("tuning", code_digest(settings("small_cnn"), "diagvib.training.tuning", "digits"))
        """)
    done = subprocess.run(
        [python, "-c", script],
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("module", "changes"),
    [
        ("methods/vae", {"vae", "factor_vae"}),
        ("models/small_cnn", {"small_cnn", "jtt", "tuning"}),
        ("methods/jtt", {"jtt"}),
        ("scenes/digits/renderer", {"small_cnn", "resnet18", "vae", "factor_vae", "jtt", "tuning"}),
        ("training/tuning", {"tuning"}),
        ("report/figures", set()),
        ("foundation/errors", set()),
    ],
)
def test_a_module_counts_for_those_that_use_it(elsewhere, unchanged, module, changes):
    path = elsewhere / f"src/diagvib/{module}.py"
    text = path.read_text()
    path.write_text(f"{text}ANOTHER = 1\n")
    changed = digests(elsewhere, programs() / "python")
    path.write_text(text)
    assert {name for name in unchanged if unchanged[name] != changed[name]} == changes


def test_the_place_of_the_code_does_not_count(elsewhere, unchanged, tmp_path):
    assert (
        digests(Path(shutil.copytree(elsewhere, tmp_path / "again")), sys.executable) == unchanged
    )


TRAIN = """
    import os, signal, sys, torch
    from contextlib import contextmanager
    from pathlib import Path
    from diagvib.training import run as runs
    from diagvib.images.datasets import ImageFiles
    from diagvib.settings.baselines import complete
    from diagvib.settings.grid import make_run
    from diagvib.training.callbacks import Callback
    from diagvib.training.protocol import Protocol

    class Killer(Callback):
        def on_epoch(self, row):
            if row["epoch"] == int(sys.argv[3]):
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def killer(name, curves):
        yield Killer()

    runs.training_callback = killer
    root = Path(sys.argv[1])
    settings = complete({"model": sys.argv[2], "method": "erm", "optimiser": {"name": "adam", "lr": 1e-3},
                         "batch_size": 16, "origin": "test"})
    job = runs.Job(settings, Protocol(3, None, 1), torch.device("cpu"), ImageFiles(root / "images"))
    runs.train_runs(job, [make_run("mine", "zgo", "hue-shape", 0)], runs.Folders(root / "runs", root / "checkpoints"))
"""


def train(root: Path, kind: str, kill_behind: int = 0) -> subprocess.CompletedProcess:
    return subprocess.run(
        [programs() / "python", "-c", textwrap.dedent(TRAIN), str(root), kind, str(kill_behind)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("kind", "file"),
    [("small_cnn", "src/diagvib/models/small_cnn.py"), ("my_nets:make", "my_parts.py")],
)
def test_a_killed_run_is_not_continued_by_another_code(elsewhere, tmp_path, kind, file):
    """SIGKILL after the second epoch, ReLU becomes Sigmoid, the same command again: the run is that
    of Sigmoid alone."""
    shutil.copytree(elsewhere / "src", tmp_path / "src")
    shutil.copytree(elsewhere / "config", tmp_path / "config")
    write_dataset(tmp_path / "images", "zgo", "hue-shape", 0)
    (tmp_path / "my_nets.py").write_text(
        textwrap.dedent("""
        from torch import nn
        import my_parts

        def make(n_classes, image_size):
            return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * (image_size // 8)**2, 16),
                                 my_parts.Activation(), nn.Linear(16, n_classes))
        """)
    )
    (tmp_path / "my_parts.py").write_text("from torch.nn import ReLU as Activation\n")
    assert train(tmp_path, kind, kill_behind=2).returncode == -signal.SIGKILL
    code = (tmp_path / file).read_text()
    (tmp_path / file).write_text(
        code.replace("ReLU(inplace=True)", "Sigmoid()").replace("ReLU", "Sigmoid")
    )
    again = train(tmp_path, kind)
    assert again.returncode == 0, again.stderr
    assert "made with other settings, images or code" in again.stderr
    continued = {
        name: (tmp_path / "runs/0" / name).read_bytes()
        for name in ("history.jsonl", "predictions.parquet")
    }
    noted = read_json(tmp_path / "runs/0/run.json")
    assert len(noted["code"]) == 64 and noted["git"] is None, "a copy is no checkout"
    shutil.rmtree(tmp_path / "runs")
    assert train(tmp_path, kind).returncode == 0
    for name, content in continued.items():
        assert (tmp_path / "runs/0" / name).read_bytes() == content


def test_git_state_of_this_checkout():
    if not (REPOSITORY / ".git").exists():
        pytest.skip("no checkout")
    state = git_state()
    assert len(state["commit"]) == 40 and isinstance(state["changed"], bool)


def test_git_state_tells_a_change(elsewhere, tmp_path):
    folder = Path(shutil.copytree(elsewhere, tmp_path / "checkout"))

    def git(*command):
        subprocess.run(
            ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *command],
            cwd=folder,
            check=True,
            capture_output=True,
        )

    def found():
        script = "from diagvib.training.code_digest import git_state; print(git_state())"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        return done.stdout.strip()

    git("init", "-q")
    (folder / ".gitignore").write_text("__pycache__\n")
    git("add", ".")
    git("commit", "-qm", "One")
    assert found().endswith("'changed': False}")
    (folder / "results").mkdir()
    (folder / "results/new.json").write_text("{}")
    assert found().endswith("'changed': False}"), "results are no code"
    (folder / "src/diagvib/training/tuning.py").write_text("")
    assert found().endswith("'changed': True}")
