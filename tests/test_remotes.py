"""Remotes: what is pushed is pulled completely, by anyone with access; after an interruption, the
same command finishes.

A folder, a real SSH server and a real S3 server (tests/services) are each tested, with outs like
those of dvc.yaml. DVC's messages that docs/remote_errors.md explains are checked here as well.
"""

import configparser
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from conftest import BIN, REPOSITORY
from toy import dvc, environment, git

sys.path.insert(0, str(REPOSITORY / "tests" / "services"))

import s3 as s3_service
import ssh as ssh_service
from loopback import ADDRESS, Line

pytest.importorskip("dvc", reason="dvc is not installed (pip install '.[workflow]')")

# Folder that DVC keeps -> number of files, and bytes of each.
FILES = {
    "data/images": (40, 100_000),
    "results/runs": (80, 2_000),
    "results/tables": (1, 100),
}
BIG, BIG_BYTES = "data/images/big.parquet", 10_000_000
IN_BETWEEN = 2_000_000  # bytes that the line passes on before it is cut
# A copy to or from a folder is killed at this file size: in the big file, or before, in DVC's own
# database.
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


@dataclass
class Remote:
    """A place to push to: how DVC reaches it, and what is really there."""

    objects: Callable[[], dict[str, bytes]]  # by path
    settings: dict[str, str]  # of .dvc/config
    own: dict[str, str] = field(default_factory=dict)  # of .dvc/config.local
    line: Line | None = None

    def use(self, folder: Path) -> None:
        """Make it a repository's default remote."""
        for name, settings in (("config", self.settings), ("config.local", self.own)):
            config = configparser.ConfigParser()
            config.read(folder / ".dvc" / name)
            config.read_dict({"core": {"remote": "lab"}, "'remote \"lab\"'": settings})
            with (folder / ".dvc" / name).open("w") as file:
                config.write(file)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Nothing of the machine's DVC, SSH or AWS settings is seen."""
    for name in os.environ:
        if name.startswith(("AWS_", "DVC_", "GIT_", "SSH_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    own = {
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": s3_service.REGION,
        "AWS_MAX_ATTEMPTS": "1",
        "DVC_SITE_CACHE_DIR": str(tmp_path / "site_cache"),
        "DVC_GLOBAL_CONFIG_DIR": str(tmp_path / "global"),
        "DVC_SYSTEM_CONFIG_DIR": str(tmp_path / "system"),
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository with random files in what DVC keeps, recorded and committed."""
    folder = tmp_path / "repository"
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
    dvc(folder, "commit", "--force")
    git(folder, "add", "--all")
    git(folder, "commit", "-m", "results")
    return folder


@pytest.fixture(scope="module")
def ssh_server() -> Iterator[ssh_service.SSH]:
    if reason := ssh_service.why_not():
        pytest.skip(f"no SSH server here: {reason}")
    pytest.importorskip("dvc_ssh", reason="dvc-ssh is not installed (pip install '.[remotes]')")
    with ssh_service.SSH() as server:
        yield server


@pytest.fixture(scope="module")
def s3_server() -> Iterator[s3_service.S3]:
    if reason := s3_service.why_not():
        pytest.skip(f"no S3 server here: {reason}")
    pytest.importorskip("dvc_s3", reason="dvc-s3 is not installed (pip install '.[remotes]')")
    with s3_service.S3() as server:
        yield server


@pytest.fixture
def folder_remote(tmp_path) -> Remote:
    return Remote(
        functools.partial(contents, tmp_path / "shared"), {"url": str(tmp_path / "shared")}
    )


@pytest.fixture
def ssh_remote(ssh_server, tmp_path) -> Iterator[Remote]:
    storage = Path(ssh_server.storage) / tmp_path.name
    with Line(ssh_server.port) as line:
        url = f"ssh://{ssh_server.user}@{ADDRESS}:{line.port}{storage}"
        own = {"keyfile": ssh_server.key}
        yield Remote(functools.partial(contents, storage), {"url": url}, own, line)


@pytest.fixture
def s3_remote(s3_server) -> Iterator[Remote]:
    s3_server.empty()
    with Line(s3_server.port) as line:
        endpoint = f"http://{ADDRESS}:{line.port}"
        settings = {"url": f"s3://{s3_server.bucket}/dvc", "endpointurl": endpoint}
        own = {"access_key_id": s3_server.key_id, "secret_access_key": s3_server.secret}
        yield Remote(s3_server.objects, settings, own, line)


@pytest.fixture(params=["folder", "ssh", "s3"])
def remote(request) -> Remote:
    return request.getfixturevalue(f"{request.param}_remote")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def complete(objects: dict[str, bytes]) -> int:
    """The number of objects with their final name; each must be complete, as its name, the hash of
    its content, shows."""
    found = {
        match[1] + match[2]: content
        for path, content in objects.items()
        if (match := re.search(r"(?:^|/)md5/(..)/([0-9a-f]{30}(?:\.dir)?)$", path))
    }
    for name, content in found.items():
        assert hashlib.md5(content).hexdigest() == name.removesuffix(".dir")
    return len(found)


def kill_in_a_file(folder: Path, size: int, command: str) -> None:
    killed = [BIN / "python", "-c", KILLED_IN_A_FILE, str(size), command]
    done = subprocess.run(killed, cwd=folder, env=environment(folder), capture_output=True)
    assert done.returncode == -signal.SIGXFSZ, done.stderr


def interrupt(folder: Path, remote: Remote, command: str) -> None:
    """In the middle of a push or pull: kill -9, or a network that goes down and comes back."""
    if remote.line is None:
        return kill_in_a_file(folder, IN_BIG_FILE, command)
    remote.line.cut_after(IN_BETWEEN)
    dvc(folder, command, "--jobs", "2", fails=True)
    remote.line.mend()


def test_what_is_pushed_is_pulled_whole_and_once_whatever_happens_on_the_way(
    repository, remote, tmp_path
):
    remote.use(repository)
    whole = complete(contents(repository / ".dvc/cache"))
    interrupt(repository, remote, "push")
    there = complete(remote.objects())
    pushed = int(re.search(r"(\d+) files? pushed", dvc(repository, "push"))[1])
    assert there < whole and 0 < pushed <= whole - there
    before = remote.objects()
    assert complete(before) == whole
    assert "Everything is up to date" in dvc(repository, "push")
    assert remote.objects() == before
    clone = tmp_path / "clone"
    git(repository, "clone", "--quiet", ".", str(clone))
    remote.use(clone)
    interrupt(clone, remote, "pull")
    assert complete(contents(clone / ".dvc/cache")) < whole
    dvc(clone, "pull")
    for out in FILES:
        assert contents(clone / out) == contents(repository / out)
    assert "in sync" in dvc(clone, "status", "--cloud")


def test_a_push_killed_before_it_transfers_is_completed_with_a_fresh_index(
    repository, folder_remote, tmp_path
):
    """DVC takes the half-written index of what to push for complete: a plain push would push less,
    perhaps the list of a folder's files without the files, and call that in sync."""
    folder_remote.use(repository)
    kill_in_a_file(repository, IN_DATABASE, "push")
    dvc(repository, "push", DVC_SITE_CACHE_DIR=str(tmp_path / "fresh"))
    assert complete(folder_remote.objects()) == complete(contents(repository / ".dvc/cache"))


def test_credentials_stay_out_of_git(repository):
    """The commands of docs/remotes.md, then everything that git would ever see."""
    dvc(repository, "remote", "add", "--default", "bucket", "s3://bucket/dvc")
    dvc(repository, "remote", "modify", "--local", "bucket", "secret_access_key", "hidden")
    assert "hidden" in (repository / ".dvc/config.local").read_text()
    git(repository, "add", "--all")
    assert "s3://bucket/dvc" in git(repository, "show", ":.dvc/config")
    assert ".dvc/config.local" not in git(repository, "ls-files")


def test_what_dvc_says_where_ssh_fails(repository, ssh_remote, tmp_path):
    key = tmp_path / "another_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    replace(ssh_remote, own={"keyfile": str(key)}).use(repository)
    assert "Permission denied for user" in dvc(repository, "push", fails=True)
    ssh_remote.use(repository)
    ssh_remote.line.cut()
    assert "Connect call failed" in dvc(repository, "push", fails=True)


def test_what_dvc_says_where_s3_fails(repository, s3_remote):
    settings, own = s3_remote.settings, s3_remote.own
    s3_remote.use(repository)
    (repository / ".dvc/config.local").unlink()
    assert "Unable to locate credentials" in dvc(repository, "push", fails=True)
    replace(s3_remote, own={**own, "secret_access_key": "wrong"}).use(repository)
    assert "Forbidden" in dvc(repository, "push", fails=True)
    replace(s3_remote, settings={**settings, "url": "s3://another/dvc"}).use(repository)
    assert "The specified bucket does not exist" in dvc(repository, "push", fails=True)
    s3_remote.use(repository)
    s3_remote.line.cut()
    assert "Could not connect to the endpoint URL" in dvc(repository, "push", fails=True)
