"""DVC, in a process of its own: what it keeps in a root's dvc.lock, and whether that still
holds."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_yaml

# With a hundred thousand files, garbage collection takes a fifth of DVC's time and frees nothing.
_DVC = "import gc, sys; gc.disable(); from dvc.cli import main; sys.exit(main(sys.argv[1:]))"


def lock_of(root: str) -> Path:
    """The file that holds the hashes of what a root has."""
    return Path(root) / "dvc.lock"


def stages_of(root: str) -> Path:
    return Path(root) / "dvc.yaml"


def why_no_ledger(root: str = ".") -> str | None:
    """Why DVC keeps no ledger of a root; None if it can. DiagvibError for a damaged one."""
    here = Path.cwd()
    if not (stages_of(".").exists() and Path(".dvc/config").exists()):
        return (
            "no DVC repository here (dvc.yaml and .dvc/config are not both in the current folder)"
        )
    if not any((folder / ".git").exists() for folder in (here, *here.parents)):
        return "no git repository here; DVC's ledger needs one"
    if importlib.util.find_spec("dvc") is None:
        return "dvc is not installed in this environment"
    if Path(root).is_absolute() or ".." in Path(root).parts:
        return f"{root} is not written as a folder inside the DVC repository"
    for path in (Path(root), Path(root, "data"), Path(root, "results")):
        if path.resolve() != here / path:
            return f"{path} is a link, which DVC and git do not follow"
    if lock_of(root).exists():
        recorded_extent(root)
    asked = ["git", "check-ignore", "--quiet", stages_of(root)]
    ignored = subprocess.run(asked, check=False, capture_output=True).returncode == 0
    return f"git ignores {stages_of(root)}" if ignored else None


def dvc(*arguments: str | Path, **environment: str) -> str:
    """Standard output of DVC, run here. DiagvibError with its reason if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", _DVC, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        said = f"`dvc {' '.join(map(str, arguments))}` failed: {last_line(done.stderr)}"
        raise DiagvibError(said)
    return done.stdout


def last_line(text: str) -> str:
    """The last error of a program's output, or else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or ["no message"])[-1]


def changed_files(root: str, **environment: str) -> dict[str, list[str]]:
    """The recorded files of a root that are `modified` since, and those that are `deleted`."""
    status = ("data", "status", "--granular", "--json", *outs_of(root))
    found = json.loads(dvc(*status, **environment)).get("uncommitted", {})
    return {
        kind: sorted(path for path in found.get(kind, []) if not path.endswith("/"))
        for kind in ("modified", "deleted")
    }


def changed_outs(target: str | Path, **environment: str) -> dict[str, str]:
    """The folders and files of a dvc.yaml, or the one of this name, that are no longer as recorded:
    path -> modified or deleted."""
    stages = json.loads(dvc("status", "--json", target, **environment))
    changes = [change for stage in stages.values() for change in stage if isinstance(change, dict)]
    return {
        path: kind for change in changes for path, kind in change.get("changed outs", {}).items()
    }


def outs_of(root: str) -> list[Path]:
    """The folders and files that a root's dvc.yaml declares as outs."""
    stages = read_yaml(stages_of(root))["stages"].values()
    outs = [out for stage in stages for out in stage.get("outs", [])]
    return [Path(out if isinstance(out, str) else next(iter(out))) for out in outs]


def recorded_extent(root: str) -> tuple[int, int]:
    """Number of files and bytes that a root's dvc.lock holds. DiagvibError if it is damaged."""
    lock = lock_of(root)
    try:
        stages = read_yaml(lock)["stages"].values()
        outs = [out for stage in stages for out in stage.get("outs", [])]
        return sum(out.get("nfiles", 1) for out in outs), sum(out["size"] for out in outs)
    except (DiagvibError, KeyError, TypeError, AttributeError):
        raise DiagvibError(
            f"{lock}: empty, damaged, or with the conflict markers of a merge; `git checkout --ours {lock}` "
            f"takes one side of a merge, `git checkout HEAD {lock}` what was committed"
        ) from None
