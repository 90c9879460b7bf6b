"""The ledger: a root's dvc.lock, in git, holds the hash of every artifact of its last complete run.

The root `.` is that of config/config.yaml, and dvc.yaml is written by hand; another root has a
dvc.yaml of its own, written here. The workflow keeps both by itself: `check_recorded` runs before
its first job, `record_run` after its last. DVC does its hashing in a process of its own; where it
is not installed or set up, or cannot track a root (outside the repository, or ignored by git), the
workflow runs without a ledger and says so.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shlex import quote

from diagvib.foundation.errors import DiagvibError
from diagvib.operations.dvc import (
    changed_files,
    changed_outs,
    dvc,
    last_line,
    lock_of,
    outs_of,
    recorded_extent,
    stages_of,
    why_no_ledger,
)
from diagvib.operations.records import PROVENANCE, RECORDS, made_here, pack
from diagvib.operations.root_stages import config_of, configuration_text, write_root_stages
from diagvib.settings.config import load_config
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout

CONFIG = Path("config/config.yaml")
METRICS = str(Layout(Path(".")).metrics)
_SHOWN = 5


def record(root: str, config: Configuration | None = None) -> str:
    """Commit a complete root to its dvc.lock. Returns a summary for the user.

    config: resolved, of that root; None: the one it was recorded with. DiagvibError, saying why, if
    nothing was recorded; the ledger is then as it was.
    """
    if reason := why_no_ledger(root):
        raise DiagvibError(reason)
    if "DVC_STAGE" in os.environ:
        raise DiagvibError("`dvc repro` runs this stage and records it itself")
    here = _is_here(root)
    if here:
        config = load_config(CONFIG)
        if not _is_here(config.root):
            raise DiagvibError(
                f"{CONFIG}: root is '{config.root}', but dvc.lock holds data/ and results/ of the "
                "current folder, which would be recorded under settings that did not make them; set "
                f"`root: .`, or record the other root: `diagvib record --root {config.root}`"
            )
    elif config is None and not config_of(root).exists():
        raise DiagvibError(
            f"there is no {config_of(root)}; name the configuration: `diagvib record --config FILE`"
        )
    config = config or load_config(config_of(root))
    _check_complete(config)
    if not here:
        pack(root)
        write_root_stages(root, config)
    commit(root)
    files, size = recorded_extent(root)
    lock = lock_of(root)
    shared, push = (f"{lock} {METRICS}", "") if here else (quote(root), f" -R {quote(root)}")
    own = "; a clone needs your own studies, baselines and models in git, too"
    also = own if config.studies_from or config.baselines_from else ""
    return (
        f"recorded {files:,} files ({size / 1e9:.1f} GB) in {lock}; `git add {shared}`, `git commit` and `dvc push"
        f"{push}` share them{also}"
    )


def commit(root: str) -> None:
    """Have DVC hash and keep a root's artifacts and write its dvc.lock, whatever is there.
    DiagvibError if it fails; dvc.lock is then as it was."""
    for out in outs_of(root):  # also one that is left empty, as embedded sources do data/raw
        if not out.suffix:
            out.mkdir(parents=True, exist_ok=True)
    lock = lock_of(root)
    before = lock.read_bytes() if lock.exists() else None
    try:
        # Not --quiet, which silences errors, too.
        dvc("commit", "--force", "--no-relink", stages_of(root))
    except BaseException:
        lock.unlink(missing_ok=True)
        if before is not None:
            lock.write_bytes(before)
        raise


def configured_root() -> str:
    """The root of config/config.yaml in the current folder; `.` where there is no such file."""
    return load_config(CONFIG).root if CONFIG.exists() else "."


def _is_here(root: str) -> bool:
    # Not its resolved place: Snakemake's records and dvc.yaml name files from the current folder.
    return Path(root) == Path(".")


def record_run(config: Configuration, touched: bool) -> None:
    """`record` at the end of a workflow, which has succeeded whether or not it can be recorded:
    prints one line."""
    try:
        if touched:
            raise DiagvibError("`--touch` vouches for files without making them")
        if "DVC_STAGE" in os.environ and not _is_here(config.root):
            pack(config.root)  # an out of the stages that `dvc repro` runs
        _say(record(config.root, config))
    except DiagvibError as error:
        _say(f"not recorded: {error}")


def check_recorded(root: str) -> None:
    """Before anything runs: DiagvibError naming recorded files that something other than the
    workflow changed, or a damaged ledger.

    What the workflow itself made or was making since, finished or interrupted, is no such change;
    nor is a deleted file, which it makes again.
    """
    stage = os.environ.get("DVC_STAGE")
    # For a dvc.yaml outside the current folder it begins with that file's path.
    if stage and not _is_here(root) and ".yaml:" not in stage:
        raise DiagvibError(
            f"root is '{root}', but `dvc repro` records data/ and results/ of the current folder; set `root: .`, "
            f"or run `snakemake`, which records that root; then `dvc repro {stages_of(root)}` works, too"
        )
    if not lock_of(root).exists():
        return
    if reason := why_no_ledger(root):
        _say(f"recorded files not checked: {reason}")
        return
    # The first question takes a fifth of the second's time, but DVC does not answer it during its
    # own `repro`.
    if not stage and all(map(_is_record, changed_outs(stages_of(root)))):
        return
    found = changed_files(root)
    changed = [
        path
        for path in found["modified"]
        if not _is_record(path) and not made_here(Path(path), found["deleted"])
    ]
    if changed:
        more = f" and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else ""
        raise DiagvibError(
            f"{', '.join(changed[:_SHOWN])}{more}: recorded in {lock_of(root)}, but changed since by something other "
            f"than the workflow. Nothing was started. `dvc checkout -f {changed[0]}` restores the recorded content "
            "(after `git checkout` or `git pull`: `dvc checkout`); or delete the file, and it is made again"
        )


def _is_record(path: str) -> bool:
    """Whether a path is that of Snakemake's records."""
    return Path(path).is_relative_to(RECORDS) or Path(path).name == PROVENANCE


def verify(root: str = ".") -> dict[str, list[str]]:
    """Read every recorded file and hash it again: what is `modified`, what `deleted`, what the
    workflow made `anew`.

    DVC otherwise trusts the size and time of a file that it has hashed before. DiagvibError if
    nothing is recorded.
    """
    lock = lock_of(root)
    reason = why_no_ledger(root)
    if not reason and not lock.exists():
        reason = f"nothing is recorded yet: there is no {lock}"
    if reason:
        raise DiagvibError(reason)
    with tempfile.TemporaryDirectory() as fresh:
        found = changed_files(root, DVC_SITE_CACHE_DIR=fresh)
        if _is_here(root):  # `dvc data status` leaves out what is not in DVC's cache but in git
            for path, kind in changed_outs(METRICS, DVC_SITE_CACHE_DIR=fresh).items():
                found[kind].append(path)
    since = lock.stat().st_mtime
    anew = [path for path in found["modified"] if made_here(Path(path), found["deleted"], since)]
    modified = [path for path in found["modified"] if path not in anew]
    return {**found, "modified": modified, "anew": anew}


def print_verified(found: dict[str, list[str]]) -> bool:
    """Say what `verify` found; returns whether nothing recorded was changed (deleted files are no
    damage)."""
    for path in found["modified"]:
        print(f"changed  {path}")
    for path in found["deleted"][:_SHOWN]:
        print(f"absent   {path}")
    changed, absent, anew = (len(found[kind]) for kind in ("modified", "deleted", "anew"))
    print(
        f"{changed:,} recorded files are changed, {absent:,} absent, {anew:,} made again by the workflow and not "
        "recorded yet"
    )
    if found["modified"]:
        first = found["modified"][0]
        print(
            f"To restore one: `rm {first}`, then `dvc checkout {first}`; `snakemake` makes it again if it is not "
            f"in DVC's cache. `git checkout {METRICS}` restores that folder"
        )
    return not found["modified"]


def _check_complete(config: Configuration) -> None:
    """DiagvibError unless Snakemake takes everything of a configuration for finished and up to
    date."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(configuration_text(config))
        file.flush()
        dry_run = ["snakemake", "--dry-run", "--cores", "1", "--configfile", file.name]
        done = subprocess.run(
            [sys.executable, "-m", *dry_run, "--quiet", "rules", "reason", "host"],
            capture_output=True,
            text=True,
            check=False,
        )
    said, what = done.stdout + done.stderr, f"what is in {config.root}"
    if _is_here(config.root):
        what = str(CONFIG)
    if done.returncode:
        raise DiagvibError(f"`snakemake -n` fails: {last_line(said)}")
    if "Nothing to be done" not in said:
        total = re.search(r"^total\s+(\d+)", said, re.MULTILINE)
        left = total[1] if total else "the"
        raise DiagvibError(
            f"{what} is not complete; `snakemake -n` lists {left} jobs that are left"
        )


def _say(text: str) -> None:
    print(f"ledger: {text}", file=sys.stderr, flush=True)
