"""The ledger: dvc.lock, in git, holds the hash of every artifact of the last complete run of config/config.yaml.

A root other than `.` has a file SHA256SUMS of its own instead. The workflow keeps both by itself: `changed_behind` runs
before its first job, `record_run` after its last. DVC does its hashing in a process of its own; where it is not
installed or set up, the workflow runs without that ledger and says so.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_text
from diagvib.operations.dvc import (
    LOCK,
    any_out_differs,
    commit,
    differing,
    dvc,
    last_line,
    recorded_extent,
    recorded_folders,
    why_no_ledger,
)
from diagvib.operations.records import made_here
from diagvib.operations.sums import SUMS, digests, finished_files, read_sums, write_sums
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout

CONFIG = Path("config/config.yaml")
NOTHING_TO_DO = "Nothing to be done"
METRICS = str(Layout(Path(".")).metrics)
SHOWN = 5


def record(root: str, wanted: Iterable[str] = ()) -> str:
    """Write what is there to dvc.lock, if it is the complete result of config/config.yaml; returns a sentence.

    Under a root other than `.`: write what is there to its SHA256SUMS, complete or not. root: of the run that has just
    ended; wanted: its files, looked for first since Snakemake's own answer takes longer. DiagvibError, saying why, if
    nothing was recorded; the ledger is then as it was.
    """
    if not _is_here(root):
        return _record_sums(Path(root))
    # One after the other: Snakemake need not be asked where there is no ledger.
    _raise_first(why_no_ledger() or _other_root() or _left_to_dvc() or _absent(wanted) or _unfinished())
    for folder in recorded_folders():  # also one that a configuration leaves empty, as embedded sources do data/raw
        folder.mkdir(parents=True, exist_ok=True)
    before = (LOCK.read_text(), LOCK.stat()) if LOCK.exists() else None
    try:
        commit()
    except BaseException:
        if before is not None:
            write_text(LOCK, before[0])
            os.utime(LOCK, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
        else:
            LOCK.unlink(missing_ok=True)
        raise
    files, size = recorded_extent()
    return (f"recorded {files:,} files ({size / 1e9:.1f} GB) in {LOCK}; `git add {LOCK} results/metrics`, `git commit` "
            "and `dvc push` share them")


def configured_root() -> str:
    """The root of config/config.yaml in the current folder; `.` where there is no such file."""
    return load_config(CONFIG)["root"] if CONFIG.exists() else "."


def _is_here(root: str) -> bool:
    # Not its resolved place: Snakemake's records and dvc.yaml name files from the current folder.
    return Path(root) == Path(".")


def _record_sums(root: Path) -> str:
    """`record` for a root of its own. What was not written since keeps its digest, so that `verify` finds a change."""
    names, noted = finished_files(root), read_sums(root)
    if not names:
        raise DiagvibError(f"{root}: holds no data and no results yet; there is nothing to record")
    since = (root / SUMS).stat().st_mtime if noted else 0.0
    found = digests(root, [name for name in names if name not in noted or (root / name).stat().st_mtime >= since])
    changed = [str(root / name) for name, digest in found.items()
               if noted.get(name, digest) != digest and not made_here(str(root / name), since)]
    if changed:
        raise DiagvibError(f"{_listed(changed)}: recorded in {root / SUMS}, but changed since by something else than "
                           "the workflow; delete what is damaged, and `snakemake` makes it again. If all is as it "
                           f"should be, delete {root / SUMS} and record again")
    write_sums(root, {name: found.get(name) or noted[name] for name in names})
    size = sum((root / name).stat().st_size for name in names)
    return (f"recorded {len(names):,} files ({size / 1e9:.1f} GB) in {root / SUMS}; `diagvib verify --root {root}` "
            "reads them anew")


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
    if not _is_here(root):
        return (f"root is '{root}', but `dvc repro` records data/ and results/ of the current folder; set `root: .`, "
                f"or run `snakemake`, which records in {Path(root) / SUMS}") if _left_to_dvc() else None
    if not LOCK.exists():
        return None
    if reason := why_no_ledger():
        _say(f"recorded files not checked: {reason}")
        return None
    # The first question takes a fifth of the second's time, but DVC does not answer it during its own `repro`.
    modified = differing()["modified"] if "DVC_STAGE" in os.environ or any_out_differs() else []
    changed = [path for path in modified if not made_here(path)]
    if not changed:
        return None
    return (f"{_listed(changed)}: recorded in {LOCK}, but changed since by something else than the workflow. Nothing "
            f"was started. `dvc checkout -f {changed[0]}` restores the recorded content (after `git checkout` or `git "
            "pull`: `dvc checkout`); or delete the file, and it is made again")


def verify(root: str = ".") -> dict[str, list[str]]:
    """Read every recorded file and hash it anew: what is `modified`, what `deleted`, what the workflow made `anew`.

    DVC otherwise trusts the size and time of a file that it has hashed before. DiagvibError if nothing is recorded.
    """
    found, since = _compared_bydvc() if _is_here(root) else _compared_by_sums(Path(root))
    anew = {path for path in found["modified"] if made_here(path, since)}
    return {**found, "modified": [path for path in found["modified"] if path not in anew], "anew": sorted(anew)}


def _compared_bydvc() -> tuple[dict[str, list[str]], float]:
    """What is modified and what deleted, and when it was recorded."""
    _raise_first(why_no_ledger(), None if LOCK.exists() else f"nothing is recorded yet: there is no {LOCK}")
    with tempfile.TemporaryDirectory() as fresh:
        found = differing(records=True, DVC_SITE_CACHE_DIR=fresh)
        # `dvc data status` leaves out what is not in DVC's cache but in git.
        stages = json.loads(dvc("status", "--json", METRICS, DVC_SITE_CACHE_DIR=fresh))
    for changes in stages.values():
        for change in changes:
            kind = change.get("changed outs", {}).get(METRICS) if isinstance(change, dict) else None
            if kind in found:
                found[kind].append(METRICS)
    return found, LOCK.stat().st_mtime


def _compared_by_sums(root: Path) -> tuple[dict[str, list[str]], float]:
    noted = read_sums(root)
    if not noted:
        raise DiagvibError(f"nothing is recorded yet: there is no {root / SUMS}; `snakemake` writes it when it ends, "
                           f"and `diagvib record --root {root}` at any time")
    there = digests(root, [name for name in noted if (root / name).is_file()])
    return {"modified": [str(root / name) for name, digest in there.items() if digest != noted[name]],
            "deleted": [str(root / name) for name in noted if name not in there]}, (root / SUMS).stat().st_mtime


def print_verified(found: dict[str, list[str]], root: str = ".") -> bool:
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
        if not _is_here(root):
            print(f"Delete what is changed, as by `rm {first}`, and `snakemake` makes it again")
        elif first == METRICS:
            print(f"`git diff {METRICS}` shows what; `git checkout {METRICS}` restores it")
        else:
            print(f"To restore one: `rm {first}`, then `dvc checkout {first}`; `snakemake` makes it again if it is not "
                  "in DVC's cache")
    return not found["modified"]


def _raise_first(*reasons: str | None) -> None:
    for reason in reasons:
        if reason:
            raise DiagvibError(reason)


def _other_root() -> str | None:
    root = configured_root()
    return None if _is_here(root) else (
        f"{CONFIG}: root is '{root}', but {LOCK} holds data/ and results/ of the current folder, which would be "
        "recorded under settings that did not make them; set `root: .`, or record the other root: `diagvib record "
        f"--root {root}`")


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
        return f"`snakemake -n` fails: {last_line(said)}"
    if NOTHING_TO_DO in said:
        return None
    total = re.search(r"^total\s+(\d+)", said, re.MULTILINE)
    return f"config/config.yaml is not complete; `snakemake -n` lists {total[1] if total else 'the'} jobs that are left"


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def _say(text: str) -> None:
    print(f"ledger: {text}", file=sys.stderr, flush=True)
