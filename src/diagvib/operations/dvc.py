"""DVC, in a process of its own: what it keeps in dvc.lock, and whether that is still so."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_yaml
from diagvib.operations.records import RECORDS

LOCK = Path("dvc.lock")
STAGES = Path("dvc.yaml")
# With a hundred thousand files, looking for garbage takes DVC a fifth of its time and finds none.
_DVC = "import gc, sys; gc.disable(); from dvc.cli import main; sys.exit(main(sys.argv[1:]))"


def why_no_ledger() -> str | None:
    """Why there is no DVC ledger here at all."""
    here = Path.cwd()
    if not (STAGES.exists() and Path(".dvc/config").exists()):
        return f"no DVC repository here ({STAGES} and .dvc/config are not both in the current folder)"
    if not any((folder / ".git").exists() for folder in (here, *here.parents)):
        return "no git repository here; DVC's ledger lives in one"
    if importlib.util.find_spec("dvc") is None:
        return "dvc is not installed in this environment"
    return None


def commit() -> None:
    """Have DVC hash and keep all artifacts and write dvc.lock, whatever is there. DiagvibError if it fails."""
    dvc("commit", "--force", "--no-relink")  # not --quiet, which silences errors, too


def dvc(*arguments: str, **environment: str) -> str:
    """Standard output of DVC, run here. DiagvibError with its reason if it fails."""
    done = subprocess.run([sys.executable, "-c", _DVC, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    if done.returncode:
        raise DiagvibError(f"`dvc {' '.join(arguments)}` failed: {last_line(done.stderr)}")
    return done.stdout


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "dvc.org/support" not in line]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or ["no message"])[-1]


def differing(records: bool = False, **environment: str) -> dict[str, list[str]]:
    """Recorded artifacts under data/ and results/ whose content differs from dvc.lock, and those that are gone.

    records: also Snakemake's records of them.
    """
    found = json.loads(dvc("data", "status", "--granular", "--json", **environment)).get("uncommitted", {})
    return {kind: sorted(path for path in found.get(kind, []) if not path.endswith("/")
                         and (records or not path.startswith(str(RECORDS)))) for kind in ("modified", "deleted")}


def any_out_differs() -> bool:
    """Whether any recorded folder or file under data/ and results/ differs from dvc.lock, whichever it is."""
    stages = json.loads(dvc("status", "--json"))
    return any(not path.startswith(str(RECORDS)) for changes in stages.values() for change in changes
               if isinstance(change, dict) for path in change.get("changed outs", ()))


def recorded_folders() -> list[Path]:
    """The folders that dvc.yaml declares as outs."""
    outs = [out for stage in read_yaml(STAGES)["stages"].values() for out in stage.get("outs", [])]
    names = [next(iter(out)) if isinstance(out, dict) else out for out in outs]
    return [Path(name) for name in names if not Path(name).suffix]


def recorded_extent() -> tuple[int, int]:
    """Number of files and bytes that dvc.lock holds."""
    outs = [out for stage in read_yaml(LOCK)["stages"].values() for out in stage.get("outs", [])]
    return sum(out.get("nfiles", 1) for out in outs), sum(out["size"] for out in outs)
