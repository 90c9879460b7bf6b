"""The ledger: a root's dvc.lock, in git, holds the hash of every artifact of its last complete run.

The root `.` is that of config/config.yaml, and dvc.yaml is written by hand; another root has a
dvc.yaml of its own, written here. The workflow keeps both by itself: `changed_behind` runs before
its first job, `record_run` after its last. DVC does its hashing in a process of its own; where it
is not installed or set up, or cannot track a root (outside the repository, or ignored by git), the
workflow runs without a ledger and says so.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from diagvib.foundation.errors import DiagvibError
from diagvib.operations.dvc import (
    any_out_differs,
    changed_outs,
    commit,
    differing,
    dvc,
    last_line,
    lock_of,
    recorded_extent,
    recorded_folders,
    stages_of,
    why_no_ledger,
)
from diagvib.operations.provenance import pack
from diagvib.operations.records import made_here
from diagvib.operations.root_stages import config_of, configuration_text, write_root_stages
from diagvib.settings.config import load_config
from diagvib.settings.configuration import Configuration
from diagvib.settings.grid import Layout, scenes

CONFIG = Path("config/config.yaml")
METRICS = str(Layout(Path(".")).metrics)
_SHOWN = 5


def record(
    root: str,
    wanted: Iterable[str] = (),
    config: Configuration | None = None,
    file: Path | None = None,
) -> str:
    """Commit a complete root to its dvc.lock. Returns a summary for the user.

    root: of the run that has just ended; wanted: its listed files, looked for first since
    Snakemake's own answer takes longer; config: resolved, of that root; None: the one it was
    recorded with; file: its file, for messages. DiagvibError, saying why, if nothing was recorded;
    the ledger is then as it was.
    """
    here = _is_here(root)
    if not here and config is None and config_of(root).exists():
        file = config_of(root)
        config = load_config(file)
    reason = (
        why_no_ledger(root)
        or (_other_root() if here else None)
        or _left_to_dvc(root)
        or _absent(wanted)
        or _unfinished(root, config, file)
    )
    if reason:
        raise DiagvibError(reason)
    if not here:
        pack(root)
        write_root_stages(root, config)
    # Also one that a configuration leaves empty, as embedded sources do data/raw.
    for folder in recorded_folders(root):
        folder.mkdir(parents=True, exist_ok=True)
    _commit_or_restore(root)
    files, size = recorded_extent(root)
    lock = lock_of(root)
    shared, push = (f"{lock} {METRICS}", "") if here else (quote(root), f" -R {quote(root)}")
    return (
        f"recorded {files:,} files ({size / 1e9:.1f} GB) in {lock}; `git add {shared}`, `git commit` and `dvc push"
        f"{push}` share them" + _also_for_git(load_config(CONFIG) if config is None else config)
    )


def _commit_or_restore(root: str) -> None:
    """`commit`; if that fails, dvc.lock is as it was."""
    lock = lock_of(root)
    with tempfile.TemporaryDirectory() as aside:
        before = shutil.copy2(lock, aside) if lock.exists() else None
        try:
            commit(root)
        except BaseException:
            lock.unlink(missing_ok=True)
            if before:
                shutil.copy2(before, lock)
            raise


def _also_for_git(config: Configuration) -> str:
    """A sentence that names those of the user's own files that a clone needs and git does not have:
    definitions, what baselines depend on, and own modules, each with its package."""
    settings = [entry.settings for entry in config.baselines]
    parts = [part for own in settings for part in (own["method"], own["model"]) if part]
    named = [*scenes(config), *(part["name"] for part in parts)]
    packages = {name.partition(":")[0].partition(".")[0] for name in named if ":" in name}
    paths = [
        *config.studies_from,
        *config.baselines_from,
        *(path for own in settings for path in own.get("depends", [])),
        *(path for package in sorted(packages) for path in (package, f"{package}.py")),
    ]
    inside = [path for path in paths if Path(path).resolve().is_relative_to(Path.cwd())]
    untracked = ["git", "ls-files", "--others", "--exclude-standard", "--", *inside]
    asked = (
        subprocess.run(untracked, check=False, capture_output=True, text=True) if inside else None
    )
    files = [quote(line) for line in asked.stdout.splitlines()] if asked else []
    return f". A clone needs your own files, too: `git add {' '.join(files)}`" if files else ""


def configured_root() -> str:
    """The root of config/config.yaml in the current folder; `.` where there is no such file."""
    return load_config(CONFIG).root if CONFIG.exists() else "."


def _is_here(root: str) -> bool:
    # Not its resolved place: Snakemake's records and dvc.yaml name files from the current folder.
    return Path(root) == Path(".")


def record_run(config: Configuration, wanted: Iterable[str], touched: bool) -> None:
    """`record` at the end of a workflow, which has succeeded whether or not it can be recorded:
    prints one line."""
    try:
        if touched:
            raise DiagvibError("`--touch` vouches for files without making them")
        if "DVC_STAGE" in os.environ and not _is_here(config.root):
            pack(config.root)  # an out of the stages that `dvc repro` runs
        _say(record(config.root, wanted, config))
    except DiagvibError as error:
        _say(f"not recorded: {error}")


def changed_behind(root: str) -> str | None:
    """Before anything runs: a message naming recorded files that something other than the workflow
    changed, if any.

    What the workflow itself made or was making since, finished or interrupted, is no such change;
    nor is a deleted file, which it makes again. DiagvibError for a damaged ledger.
    """
    if "DVC_STAGE" in os.environ and not _left_to_dvc(root):
        return (
            f"root is '{root}', but `dvc repro` records data/ and results/ of the current folder; set `root: .`, "
            f"or run `snakemake`, which records that root; then `dvc repro {stages_of(root)}` works, too"
        )
    if not lock_of(root).exists():
        return None
    if reason := why_no_ledger(root):
        _say(f"recorded files not checked: {reason}")
        return None
    # The first question takes a fifth of the second's time, but DVC does not answer it during its
    # own `repro`.
    if "DVC_STAGE" not in os.environ and not any_out_differs(root):
        return None
    found = differing(root)
    changed = [path for path in found["modified"] if not made_here(Path(path), found["deleted"])]
    if not changed:
        return None
    more = f" and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else ""
    return (
        f"{', '.join(changed[:_SHOWN])}{more}: recorded in {lock_of(root)}, but changed since by something other "
        f"than the workflow. Nothing was started. `dvc checkout -f {changed[0]}` restores the recorded content "
        "(after `git checkout` or `git pull`: `dvc checkout`); or delete the file, and it is made again"
    )


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
        found = differing(root, records=True, DVC_SITE_CACHE_DIR=fresh)
        if _is_here(root):  # `dvc data status` leaves out what is not in DVC's cache but in git
            stages = json.loads(dvc("status", "--json", METRICS, DVC_SITE_CACHE_DIR=fresh))
            if kind := changed_outs(stages).get(METRICS):
                found[kind].append(METRICS)
    since = lock.stat().st_mtime
    anew = [path for path in found["modified"] if made_here(Path(path), found["deleted"], since)]
    modified = [path for path in found["modified"] if path not in anew]
    return {**found, "modified": modified, "anew": anew}


def print_verified(found: dict[str, list[str]], root: str = ".") -> bool:
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
    if found["modified"] == [METRICS]:
        print(f"`git diff {METRICS}` shows what; `git checkout {METRICS}` restores it")
    elif found["modified"]:
        first = found["modified"][0]
        print(
            f"To restore one: `rm {first}`, then `dvc checkout {first}`; `snakemake` makes it again if it is not "
            "in DVC's cache"
        )
    return not found["modified"]


def _other_root() -> str | None:
    root = configured_root()
    if _is_here(root):
        return None
    return (
        f"{CONFIG}: root is '{root}', but dvc.lock holds data/ and results/ of the current folder, which would be "
        "recorded under settings that did not make them; set `root: .`, or record the other root: `diagvib record "
        f"--root {root}`"
    )


def _left_to_dvc(root: str) -> str | None:
    """Why a run that `dvc repro` started for a stage of this root is not recorded."""
    # For a dvc.yaml outside the current folder it begins with that file's path.
    stage = os.environ.get("DVC_STAGE")
    if stage is None or (not _is_here(root) and ".yaml:" not in stage):
        return None
    return "`dvc repro` runs this stage and records it itself"


def _absent(wanted: Iterable[str]) -> str | None:
    wanted = [str(path) for path in wanted]
    absent = [path for path in wanted if not os.path.exists(path)]
    if not absent:
        return None
    return f"{len(absent):,} of {len(wanted):,} files are not there yet, such as {absent[0]}"


def _unfinished(root: str, config: Configuration | None, named: Path | None) -> str | None:
    """Why Snakemake does not take everything of a root's configuration for finished and up to
    date."""
    if _is_here(root):
        return _left(str(CONFIG), [], "snakemake -n")
    if config is None:
        return (
            f"there is no {config_of(root)}; name the configuration: `diagvib record --config FILE`"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(configuration_text(config))
        file.flush()
        command = f"snakemake -n --configfile {named or 'FILE'}"
        return _left(root, ["--configfile", file.name], command)


def _left(what: str, arguments: list[str], command: str) -> str | None:
    dry_run = ["snakemake", "--dry-run", "--cores", "1", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", *dry_run, "--quiet", "rules", "reason", "host"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        return f"`{command}` fails: {last_line(said)}"
    if "Nothing to be done" in said:
        return None
    total = re.search(r"^total\s+(\d+)", said, re.MULTILINE)
    return f"{what} is not complete; `{command}` lists {total[1] if total else 'the'} jobs that are left"


def _say(text: str) -> None:
    print(f"ledger: {text}", file=sys.stderr, flush=True)
