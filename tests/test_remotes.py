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

from conftest import BIN

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "services"))

import s3 as s3_service  # noqa: E402
import ssh as ssh_service  # noqa: E402
from loopback import ADDRESS, Line  # noqa: E402

pytest.importorskip("dvc", reason="dvc is not installed (pip install '.[workflow]')")

# Folder that DVC keeps -> number of files, and bytes of each.
FILES = {
    "data/images": (40, 100_000),
    "results/runs": (80, 2_000),
    "results/tables": (1, 100),
}
BIG, BIG_BYTES = "data/images/big.parquet", 10_000_000
IN_BETWEEN = 2_000_000  # bytes that the line passes on before it is held or cut
# A copy to or from a folder is killed at this file size: in the big file, or before, in DVC's own
# database.
IN_BIG_FILE, IN_DATABASE = 8_000_000, 200_000
JOBS = ("--jobs", "2")

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
    environment: dict[str, str] = field(default_factory=dict)
    line: Line | None = None


class Repository:
    """A git and DVC repository with a separate home; nothing of the machine's DVC, SSH or AWS
    settings is seen."""

    def __init__(self, folder: Path, home: Path):
        self.folder, self.home = folder, home
        home.mkdir(exist_ok=True)
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("AWS_", "DVC_", "GIT_", "SSH_"))
            and not k.lower().endswith("_proxy")
        }
        author = {
            f"GIT_{who}_{what}": "me@localhost"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        self.environment = {
            **kept,
            **author,
            "HOME": str(home),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": s3_service.REGION,
            "AWS_MAX_ATTEMPTS": "1",
            "DVC_NO_ANALYTICS": "1",
            **{
                f"DVC_{name}_DIR": str(home / name)
                for name in ("SITE_CACHE", "GLOBAL_CONFIG", "SYSTEM_CONFIG")
            },
        }

    def start(self, *command: str | Path) -> subprocess.Popen:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *command: str | Path) -> tuple[int, str]:
        process = self.start(*command)
        output = process.communicate()[0]
        return process.returncode, output

    def git(self, *arguments: str) -> str:
        code, said = self.run("git", *arguments)
        assert code == 0, said
        return said

    def dvc(self, *arguments: str) -> str:
        code, said = self.run(BIN / "dvc", *arguments)
        assert code == 0, said
        return said

    def dvc_fails(self, *arguments: str) -> str:
        code, said = self.run(BIN / "dvc", *arguments)
        assert code != 0, said
        return said

    def use(self, remote: Remote) -> None:
        """Make it the default remote."""
        _write_config(self.folder / ".dvc" / "config", remote.settings)
        _write_config(self.folder / ".dvc" / "config.local", remote.own)
        self.environment.update(remote.environment)

    def clone(self, folder: Path, remote: Remote) -> "Repository":
        """As a colleague has it: what is in git, and this remote."""
        self.git("clone", "--quiet", ".", str(folder))
        clone = Repository(folder, folder.with_name(f"home-of-{folder.name}"))
        clone.use(remote)
        return clone

    def artifacts(self) -> dict[str, bytes]:
        """Every file that DVC should transfer."""
        return {
            f"{out}/{name}": content
            for out in FILES
            for name, content in _contents(self.folder / out).items()
        }


def _write_config(path: Path, settings: dict[str, str]) -> None:
    config = configparser.ConfigParser()
    config.read(path)
    config.read_dict({"core": {"remote": "lab"}, "'remote \"lab\"'": settings})
    with path.open("w") as file:
        config.write(file)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A repository with random files in what DVC keeps, recorded and committed."""
    folder = tmp_path_factory.mktemp("recorded") / "repository"
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
    repository = Repository(folder, folder.parent / "home")
    repository.git("init", "--quiet")
    repository.dvc("commit", "--force", "--quiet")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "results")
    return folder


@pytest.fixture
def repository(recorded, tmp_path) -> Repository:
    shutil.copytree(recorded, tmp_path / "repository", symlinks=True)
    return Repository(tmp_path / "repository", tmp_path / "home")


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
    folder = tmp_path / "shared"
    return Remote(functools.partial(_contents, folder), {"url": str(folder)})


@pytest.fixture
def ssh_remote(ssh_server, tmp_path) -> Iterator[Remote]:
    storage = Path(ssh_server.storage) / tmp_path.name
    with Line(ssh_server.port) as line:
        url = f"ssh://{ssh_server.user}@{ADDRESS}:{line.port}{storage}"
        yield Remote(
            functools.partial(_contents, storage),
            {"url": url},
            {"keyfile": ssh_server.key},
            line=line,
        )


@pytest.fixture
def s3_remote(s3_server) -> Iterator[Remote]:
    s3_server.empty()
    with Line(s3_server.port) as line:
        settings = {
            "url": f"s3://{s3_server.bucket}/dvc",
            "endpointurl": f"http://{ADDRESS}:{line.port}",
        }
        environment = {
            "AWS_ACCESS_KEY_ID": s3_server.key_id,
            "AWS_SECRET_ACCESS_KEY": s3_server.secret,
        }
        yield Remote(s3_server.objects, settings, environment=environment, line=line)


@pytest.fixture(params=["folder", "ssh", "s3"])
def remote(request) -> Remote:
    return request.getfixturevalue(f"{request.param}_remote")


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _finished(objects: dict[str, bytes]) -> int:
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


def _moved(said: str) -> int:
    """The number of files that DVC reports as pushed or fetched."""
    return int(re.search(r"(\d+) files? (?:pushed|fetched)", said)[1])


def _kill_in_between(repository: Repository, remote: Remote, command: str) -> None:
    """Kill -9 of a push or pull when half of it has been transferred."""
    if remote.line is None:
        code, said = repository.run(
            BIN / "python", "-c", KILLED_IN_A_FILE, str(IN_BIG_FILE), command
        )
        assert code == -signal.SIGXFSZ, said
        return
    remote.line.hold_after(IN_BETWEEN)
    process = repository.start(BIN / "dvc", command, *JOBS)
    reached = remote.line.held.wait(120)
    process.kill()
    said = process.communicate()[0]
    remote.line.mend()
    assert reached, said


def _cut_in_between(repository: Repository, remote: Remote, command: str) -> None:
    """The network goes down in the middle of a push or pull, which fails, and comes back."""
    if remote.line is not None:
        remote.line.cut_after(IN_BETWEEN)
        repository.dvc_fails(command, *JOBS)
        remote.line.mend()


def test_what_is_pushed_is_pulled_whole_and_once_whatever_happens_on_the_way(
    repository, remote, tmp_path
):
    repository.use(remote)
    whole = _finished(_contents(repository.folder / ".dvc" / "cache"))
    _cut_in_between(repository, remote, "push")
    _kill_in_between(repository, remote, "push")
    there = _finished(remote.objects())
    # A store may yet finish a file whose last bytes it had when the push was killed.
    assert there < whole and 0 < _moved(repository.dvc("push")) <= whole - there
    before = remote.objects()
    assert _finished(before) == whole
    assert "Everything is up to date" in repository.dvc("push")
    assert remote.objects() == before
    clone = repository.clone(tmp_path / "clone", remote)
    _cut_in_between(clone, remote, "pull")
    _kill_in_between(clone, remote, "pull")
    assert _finished(_contents(clone.folder / ".dvc" / "cache")) < whole
    clone.dvc("pull")
    assert clone.artifacts() == repository.artifacts()
    assert "in sync" in clone.dvc("status", "--cloud")


def test_a_push_killed_before_it_transfers_is_completed_with_a_fresh_index(
    repository, folder_remote, tmp_path
):
    """DVC takes the half-written index of what to push for complete, reports nothing, and pushes
    less."""
    repository.use(folder_remote)
    whole = _finished(_contents(repository.folder / ".dvc" / "cache"))
    code, said = repository.run(BIN / "python", "-c", KILLED_IN_A_FILE, str(IN_DATABASE), "push")
    assert code == -signal.SIGXFSZ, said
    repository.dvc("push")
    repository.environment["DVC_SITE_CACHE_DIR"] = str(tmp_path / "fresh")
    repository.dvc("push")
    assert _finished(folder_remote.objects()) == whole
    assert "in sync" in repository.dvc("status", "--cloud")


def test_credentials_stay_out_of_git(repository):
    """The commands of docs/remotes.md, then everything that git would ever see."""
    repository.dvc("remote", "add", "--default", "bucket", "s3://bucket/dvc")
    repository.dvc("remote", "add", "lab", "ssh://lab.example.org/srv/dvc")
    for remote, name in (
        ("bucket", "access_key_id"),
        ("bucket", "secret_access_key"),
        ("lab", "keyfile"),
    ):
        repository.dvc("remote", "modify", "--local", remote, name, f"hidden-{name}")
    assert (repository.folder / ".dvc" / "config.local").read_text().count("hidden-") == 3
    repository.git("add", "--all")
    assert "s3://bucket/dvc" in repository.git("show", ":.dvc/config")
    assert ".dvc/config.local" not in repository.git("ls-files")
    assert repository.run("git", "grep", "--cached", "hidden-") == (1, "")


def _wrong_key(repository: Repository) -> dict[str, str]:
    key = repository.home / "another_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return {"keyfile": str(key)}


def test_what_dvc_says_where_ssh_fails(repository, ssh_remote):
    repository.use(replace(ssh_remote, own=_wrong_key(repository)))
    assert "Permission denied for user" in repository.dvc_fails("push")
    repository.use(ssh_remote)
    ssh_remote.line.cut()
    assert "Connect call failed" in repository.dvc_fails("push")


def test_what_dvc_says_where_s3_fails(repository, s3_remote):
    repository.use(replace(s3_remote, environment={}))
    assert "Unable to locate credentials" in repository.dvc_fails("push")
    repository.use(
        replace(s3_remote, environment={**s3_remote.environment, "AWS_SECRET_ACCESS_KEY": "wrong"})
    )
    assert "Forbidden" in repository.dvc_fails("push")
    repository.use(replace(s3_remote, settings={**s3_remote.settings, "url": "s3://another/dvc"}))
    assert "The specified bucket does not exist" in repository.dvc_fails("push")
    repository.use(s3_remote)
    s3_remote.line.cut()
    assert "Could not connect to the endpoint URL" in repository.dvc_fails("push")
