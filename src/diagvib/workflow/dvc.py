"""DVC, in a process of its own: what it keeps in a root's dvc.lock, and whether that still
holds."""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from operator import itemgetter
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import read_yaml, shipped_path, write_text
from diagvib.foundation.messages import say

# With a hundred thousand files, garbage collection takes a fifth of DVC's time and frees nothing.
# Without git, DVC also reads a copy that is no git repository, and a dvc.yaml that git ignores.
_DVC = """
import gc, sys
gc.disable()
from dvc.cli import main
from dvc.repo import Repo
from dvc.scm import SCM
Repo.scm = property(lambda repo: SCM(repo.root_dir, no_scm=True))
sys.exit(main(sys.argv[1:]))
"""
_LOCKED = "Unable to acquire lock"
# Of a file that was not copied, as to a full disk, after which `dvc commit` writes dvc.lock and
# exits with 0.
_LOST = "ERROR: failed to transfer"
# Where DVC keeps its indexes, in /var/tmp if nothing else is set, cannot be written to.
_NO_INDEX = "unable to open database file"
# What follows an error that DVC did not expect.
_SUPPORT = "Having any troubles?"
# A root's .gitignore before its first dvc.lock is written.
_HIDDEN = "# Until these results are recorded.\n*\n"


def lock_of(root: str) -> Path:
    """The file that holds the hashes of what a root has."""
    return Path(root) / "dvc.lock"


def stages_of(root: str) -> Path:
    """A root's dvc.yaml; of `.`, where there is none, that of the repository, or of the package."""
    path = Path(root) / "dvc.yaml"
    return path if root != "." or path.exists() else shipped_path("dvc.yaml")


def why_not_checked(root: str) -> str | None:
    """Why DVC cannot compare a root with its ledger; None if it can."""
    if not Path(".dvc/config").exists():
        for folder in Path.cwd().parents:
            if (folder / ".dvc/config").exists():
                return f"the DVC repository is the folder {folder}; call this there"
        return "no DVC repository here; `dvc init` makes one, outside git with --no-scm"
    if root == "." and not Path("dvc.yaml").exists():
        return "no dvc.yaml here, so results are recorded only in a `root:` of their own"
    if importlib.util.find_spec("dvc") is None:
        return "dvc is not installed"
    for path in (Path(root), Path(root, "data"), Path(root, "results")):
        if path.is_absolute() or path.resolve() != Path.cwd() / path:
            return f"{path} is outside the DVC repository or a link, which DVC does not follow"
    return None


def why_no_ledger(root: str) -> str | None:
    """Why DVC keeps no ledger of a root, which is in git unless DVC was told that there is none; None
    if it can."""
    if reason := why_not_checked(root):
        return reason
    if is_without_git():
        return None
    if not shutil.which("git"):
        return "git is not installed"
    if is_hidden(root):  # a recording was stopped
        return None
    command = ["git", "check-ignore", "--quiet", stages_of(root)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    if "safe.directory" in answer.stderr:
        return (
            "git does not trust this folder, which belongs to another user; `git config --global --add "
            f"safe.directory {shlex.quote(str(Path.cwd()))}`"
        )
    obstacles = {
        0: f"git ignores {stages_of(root)}, so that this folder has no versions",
        128: "no git repository here, which DVC needs unless it was set up by `dvc init --no-scm`",
    }
    return obstacles.get(answer.returncode)


def is_without_git() -> bool:
    """Whether the DVC repository is one outside git, as `dvc init --no-scm` makes it."""
    return bool(re.search(r"^\s*no_scm *= *true", Path(".dvc/config").read_text(), re.I | re.M))


def hide(root: str) -> None:
    """Have git ignore everything in a root, while it has a dvc.yaml and no dvc.lock: what was
    committed then could not be pulled."""
    write_text(Path(root) / ".gitignore", _HIDDEN)


def is_hidden(root: str) -> bool:
    path = Path(root) / ".gitignore"
    return path.exists() and path.read_text() == _HIDDEN


def dvc(*arguments: str | Path, **environment: str) -> str:
    """Standard output of DVC, run here, after any other DVC process that locks this repository.
    DiagvibError with its reason if it fails."""
    command, variables = [sys.executable, "-c", _DVC], {**os.environ, **environment}
    run = partial(subprocess.run, capture_output=True, text=True, check=False, env=variables)
    process = run([*command, *arguments])
    if process.returncode and _LOCKED in process.stderr:
        say("another DVC process is at work in this repository; this one waits")
        process = run([*command, "--wait-for-lock", *arguments])
    if process.returncode or _LOST in process.stderr:
        reason = one_line(process.stderr.partition(_SUPPORT)[0])
        remedy = "; set DVC_SITE_CACHE_DIR to a folder that can be written to"
        raise DiagvibError(
            f"`dvc {' '.join(map(str, arguments[:2]))}` failed: {reason}{remedy * (_NO_INDEX in reason)}"
        )
    return process.stdout


def changes(root: str, *options: str, **environment: str) -> dict[str, list[str]]:
    """The recorded files and folders (ending with /) of a root by how they differ from the ledger,
    such as `modified` or `deleted`. options: --granular names also the files in folders, which
    takes five times as long for 54,000 files."""
    status = ("data", "status", "--json", *options, *outs_of(root))
    return json.loads(dvc(*status, **environment)).get("uncommitted", {})


def file_md5(path: Path) -> str:
    """The hash by which DVC records a file."""
    return hashlib.md5(path.read_bytes()).hexdigest()


def folder_md5(folder: Path) -> str:
    """The hash by which DVC records a folder: that of the list of its files with theirs."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    files = [
        {"md5": file_md5(path), "relpath": path.relative_to(folder).as_posix()} for path in paths
    ]
    text = json.dumps(sorted(files, key=itemgetter("relpath")), sort_keys=True)
    return f"{hashlib.md5(text.encode()).hexdigest()}.dir"


def outs_of(root: str) -> list[Path]:
    """The folders and files that a root's dvc.yaml has DVC keep; without those that are in git."""
    stages = read_yaml(stages_of(root))["stages"].values()
    outs = [
        {out: {}} if isinstance(out, str) else out
        for stage in stages
        for kind in ("outs", "metrics")
        for out in stage.get(kind, [])
    ]
    return [Path(path) for out in outs for path in out if out[path].get("cache", True)]


def recorded_outs(root: str) -> dict[str, str]:
    """The folders and files that a root's dvc.lock records, with their hashes. A store with versions
    (`version_aware`) leaves folders none: it has those of their files."""
    stages = read_yaml(lock_of(root))["stages"].values()
    return {out["path"]: out["md5"] for stage in stages for out in stage["outs"] if "md5" in out}
