"""The ledger: dvc.lock, in git, holds the hash of every artifact of the last complete run of config/config.yaml.

The workflow keeps it by itself: `changed_behind` before its first job, `record_run` after its last. DVC does the
hashing, in a process of its own; where it is not installed or set up, the workflow runs without a ledger and says so.
"""

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from diagvib.errors import DiagvibError
from diagvib.files import read_json, read_yaml, write_text

LOCK = Path("dvc.lock")
STAGES = Path("dvc.yaml")
RECORDS = Path(".snakemake")
NOTHING_TO_DO = "Nothing to be done"
SHOWN = 5
# With a hundred thousand files, looking for garbage takes DVC a fifth of its time and finds none.
_DVC = "import gc, sys; gc.disable(); from dvc.cli import main; sys.exit(main(sys.argv[1:]))"


def record(root: str, wanted: Iterable[str] = ()) -> str:
    """Write what is there to dvc.lock, if it is the complete result of config/config.yaml; returns a sentence.

    root: of the run that has just ended; wanted: its files, looked for first since Snakemake's own answer takes longer.
    DiagvibError, saying why, if nothing was recorded; dvc.lock is then as it was.
    """
    _raise_first(_no_ledger(root), _left_to_dvc(), _absent(wanted), _unfinished())
    for folder in _outs():  # also one that a configuration leaves empty, such as data/raw with embedded sources
        folder.mkdir(parents=True, exist_ok=True)
    before = LOCK.read_text() if LOCK.exists() else None
    try:
        commit()
    except BaseException:
        if before is not None:
            write_text(LOCK, before)
        else:
            LOCK.unlink(missing_ok=True)
        raise
    files, size = _extent()
    return (f"recorded {files:,} files ({size / 1e9:.1f} GB) in {LOCK}; `git add {LOCK} results/metrics`, `git commit` "
            "and `dvc push` share them")


def commit() -> None:
    """Have DVC hash and keep all artifacts and write dvc.lock, whatever is there. DiagvibError if it fails."""
    _dvc("commit", "--force", "--no-relink")  # not --quiet, which silences errors, too


def record_run(root: str, wanted: Iterable[str], touched: bool) -> None:
    """`record` at the end of a workflow, which has succeeded whether or not it can be recorded: prints one line."""
    try:
        _raise_first("`--touch` vouches for files without making them" if touched else None)
        _say(record(root, wanted))
    except DiagvibError as error:
        _say(f"not recorded: {error}")


def changed_behind(root: str) -> str | None:
    """Before anything runs: a message naming recorded files that something other than the workflow changed, if any.

    What the workflow itself made or was making since, finished or interrupted, is no such change; nor is a deleted
    file, which it makes again.
    """
    if root != "." or not LOCK.exists():
        return None
    if reason := _no_ledger(root):
        _say(f"recorded files not checked: {reason}")
        return None
    # The first question takes a fifth of the second's time, but DVC does not answer it during its own `repro`.
    differing = _differing()["modified"] if "DVC_STAGE" in os.environ or _any_out_differs() else []
    changed = [path for path in differing if not _made_here(path)]
    if not changed:
        return None
    return (f"{_listed(changed)}: recorded in {LOCK}, but changed since by something else than the workflow. Nothing "
            f"was started. `dvc checkout -f {changed[0]}` restores the recorded content (after `git checkout` or `git "
            "pull`: `dvc checkout`); or delete the file, and it is made again")


def verify() -> dict[str, list[str]]:
    """Read every recorded file and hash it anew: what is `modified`, what `deleted`, what the workflow made `anew`.

    DVC otherwise trusts the size and time of a file that it has hashed before.
    """
    _raise_first(_no_ledger("."), None if LOCK.exists() else f"nothing is recorded yet: there is no {LOCK}")
    with tempfile.TemporaryDirectory() as fresh:
        found = _differing(DVC_SITE_CACHE_DIR=fresh)
    anew = [path for path in _differing()["modified"] if _made_here(path)]
    return {**found, "modified": [path for path in found["modified"] if path not in set(anew)], "anew": anew}


def print_verified(found: dict[str, list[str]]) -> bool:
    """Say what `verify` found; returns whether nothing recorded was changed (deleted files are no damage)."""
    for path in found["modified"]:
        print(f"changed  {path}")
    for path in found["deleted"][:SHOWN]:
        print(f"absent   {path}")
    changed, absent, anew = (len(found[kind]) for kind in ("modified", "deleted", "anew"))
    print(f"{changed:,} recorded files are changed, {absent:,} absent, {anew:,} made anew by the workflow and not "
          "recorded yet")
    if found["modified"]:
        first = found["modified"][0]
        print(f"To restore one: `rm {first}`, then `dvc checkout {first}`; `snakemake` makes it again if it is not in "
              "DVC's cache")
    return not found["modified"]


def _raise_first(*reasons: str | None) -> None:
    for reason in reasons:
        if reason:
            raise DiagvibError(reason)


def _no_ledger(root: str) -> str | None:
    """Why there is no ledger here at all."""
    here = Path.cwd()
    if root != ".":
        return f"the ledger holds config/config.yaml, whose root is '.'; this run's is '{root}'"
    if not (STAGES.exists() and Path(".dvc/config").exists()):
        return f"no DVC repository here ({STAGES} and .dvc/config are not both in the current folder)"
    if not any((folder / ".git").exists() for folder in (here, *here.parents)):
        return "no git repository here; DVC's ledger lives in one"
    if importlib.util.find_spec("dvc") is None:
        return "dvc is not installed in this environment"
    return None


def _left_to_dvc() -> str | None:
    return "`dvc repro` runs this stage and records it itself" if "DVC_STAGE" in os.environ else None


def _absent(wanted: Iterable[str]) -> str | None:
    wanted = [str(path) for path in wanted]
    absent = [path for path in wanted if not os.path.exists(path)]
    return f"{len(absent):,} of {len(wanted):,} files are not there yet, such as {absent[0]}" if absent else None


def _unfinished() -> str | None:
    """Why Snakemake does not take everything of config/config.yaml for finished and up to date."""
    quiet = ["--quiet", "rules", "reason", "host"]
    done = subprocess.run([sys.executable, "-m", "snakemake", "--dry-run", "--cores", "1", *quiet],
                          capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        return f"`snakemake -n` fails: {_last_line(said)}"
    if NOTHING_TO_DO in said:
        return None
    total = re.search(r"^total\s+(\d+)", said, re.MULTILINE)
    return f"config/config.yaml is not complete; `snakemake -n` lists {total[1] if total else 'the'} jobs that are left"


def _dvc(*arguments: str, **environment: str) -> str:
    """Standard output of DVC, run here. DiagvibError with its reason if it fails."""
    done = subprocess.run([sys.executable, "-c", _DVC, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    if done.returncode:
        raise DiagvibError(f"`dvc {' '.join(arguments)}` failed: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "dvc.org/support" not in line]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or ["no message"])[-1]


def _differing(**environment: str) -> dict[str, list[str]]:
    """Recorded artifacts under data/ and results/ whose content differs from dvc.lock, and those that are gone."""
    found = json.loads(_dvc("data", "status", "--granular", "--json", **environment)).get("uncommitted", {})
    return {kind: sorted(path for path in found.get(kind, []) if not path.endswith("/")
                         and not path.startswith(str(RECORDS))) for kind in ("modified", "deleted")}


def _any_out_differs() -> bool:
    """Whether any recorded folder or file under data/ and results/ differs from dvc.lock, whichever it is."""
    stages = json.loads(_dvc("status", "--json"))
    return any(not path.startswith(str(RECORDS)) for changes in stages.values() for change in changes
               if isinstance(change, dict) for path in change.get("changed outs", ()))


def _made_here(path: str) -> bool:
    """Whether the workflow made this file, or was making it when it was stopped: its own records say when."""
    artifact = next((str(p) for p in (Path(path), *Path(path).parents) if _record("metadata", str(p)).exists()
                     or _record("incomplete", str(p)).exists()), None)
    if artifact is None:
        return False
    if _record("incomplete", artifact).exists():
        return True
    ended = read_json(_record("metadata", artifact)).get("endtime") or 0
    changed = os.stat(path).st_mtime
    return changed == ended if artifact == path else changed <= ended


def _record(kind: str, path: str) -> Path:
    """Snakemake's record of an output: the file's name is the output's, in base64."""
    return RECORDS / kind / base64.urlsafe_b64encode(path.encode()).decode()


def _outs() -> list[Path]:
    """The folders that dvc.yaml declares as outs."""
    outs = [out for stage in read_yaml(STAGES)["stages"].values() for out in stage.get("outs", [])]
    names = [next(iter(out)) if isinstance(out, dict) else out for out in outs]
    return [Path(name) for name in names if not Path(name).suffix]


def _extent() -> tuple[int, int]:
    """Number of files and bytes that dvc.lock holds."""
    outs = [out for stage in read_yaml(LOCK)["stages"].values() for out in stage.get("outs", [])]
    return sum(out.get("nfiles", 1) for out in outs), sum(out["size"] for out in outs)


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def _say(text: str) -> None:
    print(f"ledger: {text}", file=sys.stderr, flush=True)
