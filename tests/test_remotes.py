"""A remote: what is pushed is pulled completely, by anyone with access; after kill -9, the same
command finishes.

With outs like those of dvc.yaml, to a folder. What docs/remotes.md says of interrupted
transfers is checked here as well.
"""

import hashlib
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conftest import BIN, REPOSITORY
from toy import contents, dvc, environment, git

pytestmark = pytest.mark.integration
pytest.importorskip("dvc", reason="dvc is not installed (pip install '.[workflow]')")

# Folder that DVC keeps -> number of files, and bytes of each.
FILES = {
    "data/images": (40, 100_000),
    "results/runs": (80, 2_000),
    "results/tables": (1, 100),
}
BIG, BIG_BYTES = "data/images/big.parquet", 10_000_000
# A copy is killed at this file size: in the big file, or before, in DVC's own database.
IN_BIG_FILE, IN_DATABASE = 8_000_000, 200_000

# Ends as by kill -9, without handlers, in the middle of the first file that grows beyond the limit.
KILLED_IN_A_FILE = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(sys.argv[1]),))
from dvc.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module", autouse=True)
def own_settings(tmp_path_factory) -> Iterator[None]:
    """Nothing of the machine's DVC settings is seen."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SITE_CACHE", "GLOBAL_CONFIG", "SYSTEM_CONFIG"):
            patch.setenv(f"DVC_{name}_DIR", str(tmp_path_factory.mktemp(name)))
        yield


@pytest.fixture
def remote(tmp_path) -> Path:
    return tmp_path / "shared"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A repository with random files in what DVC keeps, recorded and committed."""
    folder = tmp_path_factory.mktemp("remotes") / "repository"
    (folder / ".dvc").mkdir(parents=True)
    for name in (".dvc/config", ".dvc/.gitignore", ".gitignore"):
        shutil.copy(REPOSITORY / name, folder / name)
    generator, stages = np.random.default_rng(1), {}
    for out, (count, size) in FILES.items():
        stages[Path(out).name] = {"cmd": "true", "outs": [out]}
        (folder / out).mkdir(parents=True)
        for number in range(count):
            (folder / out / f"{number}.parquet").write_bytes(generator.bytes(size))
    (folder / BIG).write_bytes(generator.bytes(BIG_BYTES))
    (folder / "dvc.yaml").write_text(json.dumps({"stages": stages}))
    git(folder, "init")
    dvc(folder, "remote", "add", "--default", "lab", "../shared")
    dvc(folder, "commit", "--force")
    git(folder, "add", "--all")
    git(folder, "commit", "-m", "results")
    return folder


@pytest.fixture
def repository(recorded, tmp_path) -> Path:
    return shutil.copytree(recorded, tmp_path / "repository")


def complete(objects: dict[str, bytes]) -> int:
    """The number of objects with their final name; each must be complete, as its name, the hash of
    its content, shows."""
    result = {
        match[1] + match[2]: content
        for path, content in objects.items()
        if (match := re.search(r"(?:^|/)md5/(..)/([0-9a-f]{30}(?:\.dir)?)$", path))
    }
    for name, content in result.items():
        assert hashlib.md5(content).hexdigest() == name.removesuffix(".dir")
    return len(result)


def kill_in_a_file(folder: Path, size: int, command: str) -> None:
    killed = [BIN / "python", "-c", KILLED_IN_A_FILE, str(size), command]
    process = subprocess.run(killed, cwd=folder, env=environment(folder), capture_output=True)
    assert process.returncode == -signal.SIGXFSZ, process.stderr


def test_what_is_pushed_is_pulled_whole_and_once_whatever_happens_on_the_way(
    repository, remote, tmp_path
):
    entire = complete(contents(repository / ".dvc/cache"))
    kill_in_a_file(repository, IN_BIG_FILE, "push")
    present = complete(contents(remote))
    pushed = int(re.search(r"(\d+) files? pushed", dvc(repository, "push"))[1])
    assert present < entire and 0 < pushed <= entire - present
    before = contents(remote)
    assert complete(before) == entire
    assert "Everything is up to date" in dvc(repository, "push")
    assert contents(remote) == before
    clone = tmp_path / "clone"
    git(repository, "clone", "--quiet", ".", str(clone))
    kill_in_a_file(clone, IN_BIG_FILE, "pull")
    assert complete(contents(clone / ".dvc/cache")) < entire
    dvc(clone, "pull")
    for out in FILES:
        assert contents(clone / out) == contents(repository / out)
    assert "in sync" in dvc(clone, "status", "--cloud")


def test_a_push_killed_before_it_transfers_is_completed_with_a_fresh_index(
    repository, remote, tmp_path
):
    """DVC takes the half-written index of what to push for complete: a plain push would push less,
    perhaps the list of a folder's files without the files, and call that in sync."""
    kill_in_a_file(repository, IN_DATABASE, "push")
    dvc(repository, "push", DVC_SITE_CACHE_DIR=str(tmp_path / "fresh"))
    assert complete(contents(remote)) == complete(contents(repository / ".dvc/cache"))


def test_credentials_stay_out_of_git(repository):
    """The commands of docs/remotes.md, then everything that git would ever see."""
    dvc(repository, "remote", "add", "bucket", "s3://bucket/dvc")
    dvc(repository, "remote", "modify", "--local", "bucket", "secret_access_key", "hidden")
    assert "hidden" in (repository / ".dvc/config.local").read_text()
    git(repository, "add", "--all")
    assert "s3://bucket/dvc" in git(repository, "show", ":.dvc/config")
    assert ".dvc/config.local" not in git(repository, "ls-files")
