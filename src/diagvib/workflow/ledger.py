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
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from urllib.parse import quote_plus

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import read_json, shipped_path, write_text
from diagvib.foundation.messages import say
from diagvib.provenance.conditions import trained_on
from diagvib.provenance.finished import RUN_RECORD
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import command_for, is_published, load_config
from diagvib.workflow.dvc import (
    changes,
    dvc,
    folder_md5,
    hide,
    is_without_git,
    lock_of,
    outs_of,
    recorded_outs,
    stages_of,
    why_no_ledger,
    why_not_checked,
)
from diagvib.workflow.records import RECORDS, made_here, pack, snakemake_environment
from diagvib.workflow.root_stages import (
    config_of,
    configuration_text,
    in_repository,
    write_ignored,
    write_root_stages,
)

_MOST_FILES = 5


def record(root: str, config: Configuration | None = None) -> str:
    """Commit a complete root to its dvc.lock. Returns a summary for the user.

    config: resolved, of that root; None: the one it was recorded with. The root `.` always has that
    of config/config.yaml. DiagvibError, saying why, if nothing was recorded.
    """
    if reason := why_no_ledger(root):
        raise DiagvibError(reason)
    if root == ".":
        config = load_config(config_of(root), ["root=."])
    config = config or load_config(config_of(root))
    check_complete(config)
    pack(root)
    lock = lock_of(root)
    if root == ".":
        commit(root)
    else:
        if not lock.exists():
            hide(root)
        write_root_stages(root, config)
        commit(root)
        write_ignored(root)
    _unrecorded(root).unlink(missing_ok=True)
    shared, push = f"{lock} {Layout(root).metrics}", ""
    if root != ".":
        shared, push = quote(root), f" -R {quote(root)}"
    git = f"`git add {shared}`, `git commit` and " * (not is_without_git())
    return f"recorded in {lock}; {git}`dvc push{push}` share{'s' * (not git)} it"


def commit(root: str) -> None:
    """Have DVC hash and keep a root's artifacts and write its dvc.lock, whatever is there. If not all
    can be kept, the earlier dvc.lock stays."""
    lock = lock_of(root)
    before = lock.read_text() if lock.exists() else None
    for out in outs_of(root):  # also one that is left empty, as embedded sources do data/raw
        if not out.suffix:
            out.mkdir(parents=True, exist_ok=True)
    # Not --quiet, which silences errors, too.
    try:
        dvc("commit", "--force", "--no-relink", stages_of(root))
    except DiagvibError as error:
        if before is None:
            lock.unlink(missing_ok=True)
        else:
            write_text(lock, before)
        again = f"once that is mended, `diagvib record --root {quote(root)}` records it"
        raise DiagvibError(f"{error}; {again}") from None


def record_run(config: Configuration, touched: bool) -> None:
    """`record` at the end of a workflow, which has succeeded whether or not it can be recorded:
    prints one line."""
    try:
        if "DVC_STAGE" in os.environ:
            pack(config.root)
            raise DiagvibError("`dvc repro` runs this stage and records it itself")
        if touched:
            raise DiagvibError("`--touch` vouches for files without making them")
        say(f"ledger: {record(config.root, config)}")
    except DiagvibError as error:
        say(f"ledger: not recorded: {error}")
        _unrecorded(config.root).unlink(missing_ok=True)


def to_be_recorded(root: str) -> None:
    """Before the first job: from here on, a workflow that is killed has recorded nothing."""
    write_text(_unrecorded(root), "")


def say_unrecorded(workflow, root: str) -> None:
    """At the end of a workflow without jobs, after which nothing is recorded: say so if an earlier one
    was killed before it had recorded its results."""
    nothing_to_do = workflow.dag is not None and not [*workflow.dag.needrun_jobs()]
    if nothing_to_do and _unrecorded(root).exists():
        say(
            "ledger: not recorded, since an earlier workflow did not get that far; once all is there, `diagvib "
            "record --config FILE` does it"
        )


def _unrecorded(root: str) -> Path:
    return RECORDS / "diagvib" / f"{quote_plus(root)}.unrecorded"


def check_recorded(root: str) -> None:
    """Before anything runs: DiagvibError naming recorded files that something other than the
    workflow changed.

    What the workflow itself made or was making since, finished or interrupted, is no such change;
    nor is a deleted file, which it makes again.
    """
    if not lock_of(root).exists():
        return
    if reason := why_not_checked(root):
        say(f"ledger: recorded files not checked: {reason}")
        return
    tuning = Layout(root).tuning  # also made by hand
    modified = changed_files(root)["modified"] if changes(root) else []
    if changed := [path for path in modified if not Path(path).is_relative_to(tuning)]:
        raise DiagvibError(
            f"{some_names(changed, _MOST_FILES)}: recorded in {lock_of(root)}, but changed since by something "
            f"other than the workflow. Nothing was started. {_remedy(root, changed[0])}"
        )


def changed_files(root: str, since: float = 0.0, **environment: str) -> dict[str, list[str]]:
    """The recorded files that are `modified` or `deleted`, those that the workflow made `anew` after
    `since`, and the folders that are not as recorded but whose recorded files are `unknown`, as
    neither DVC's cache nor a remote has the list of them."""
    differences = changes(root, "--granular", **environment)
    kinds = {kind: sorted(differences.get(kind, [])) for kind in ("modified", "deleted", "added")}
    files = {path for paths in kinds.values() for path in paths if path[-1] != "/"}
    explained = {f"{folder}/" for path in files for folder in Path(path).parents}
    changed, deleted = (
        [path for path in kinds[kind] if path not in explained] for kind in ("modified", "deleted")
    )
    unknown = [path for path in changed if path[-1] == "/"]
    changed = [path for path in changed if path[-1] != "/"]
    remade = {path for path in changed if made_here(Path(path), deleted, since)}
    modified = [path for path in changed if path not in remade]
    return {"modified": modified, "deleted": deleted, "anew": sorted(remade), "unknown": unknown}


def verify(root: str = ".") -> dict[str, list[str]]:
    """Read every recorded file and hash it again: the names of `changed_files`.

    DVC otherwise trusts the size and time of a file that it has hashed before. DiagvibError if
    nothing is recorded.
    """
    lock = lock_of(root)
    reason = why_not_checked(root)
    if not reason and not lock.exists():
        reason = f"nothing is recorded yet: there is no {lock}"
    if reason:
        raise DiagvibError(reason)
    since = lock.stat().st_mtime
    with tempfile.TemporaryDirectory() as fresh:
        files = changed_files(root, since, DVC_SITE_CACHE_DIR=fresh)
    if folder := changed_metrics(root):
        made_anew = any(made_here(path, files["deleted"], since) for path in folder.rglob("*.json"))
        kind = "deleted" if not folder.exists() else "anew" if made_anew else "modified"
        files[kind].append(f"{folder}/")
    return files


def changed_metrics(root: str) -> Path | None:
    """The folder of metrics that are in git instead of DVC's cache, if it is not the recorded one;
    DVC does not compare it."""
    outs = {*map(str, outs_of(root))}
    in_git = {path: md5 for path, md5 in recorded_outs(root).items() if path not in outs}
    return next((Path(path) for path, md5 in in_git.items() if folder_md5(Path(path)) != md5), None)


def print_verified(differences: dict[str, list[str]], root: str = ".") -> bool:
    """Say what `verify` found in a root; returns whether nothing recorded was changed, as far as it
    is known (deleted files are no damage)."""
    for path in differences["modified"]:
        print(f"changed  {path}")
    for path in differences["deleted"][:_MOST_FILES]:
        print(f"absent   {path}")
    changed, missing, anew = (len(differences[kind]) for kind in ("modified", "deleted", "anew"))
    print(
        f"{changed:,} recorded files are changed, {missing:,} absent, {anew:,} made again by the workflow and not "
        "recorded yet"
    )
    if other_runs := _other_runs(differences["anew"], root):
        print(other_runs)
    if unknown := differences.get("unknown", []):
        print(
            f"{some_names(unknown)}: not as recorded; which files differ is not known, since the list of them is "
            "neither in DVC's cache nor in a remote that can be read"
        )
    if missing and is_published(root):
        print(f"`diagvib pull {quote(root)}` brings what is absent")
    if differences["modified"]:
        print(_remedy(root, differences["modified"][0]))
    return not differences["modified"] and not unknown


def _other_runs(paths: Sequence[str], root: str) -> str:
    """Of the files that were made again: where runs were trained whose predictions are not those
    recorded, and how to compare them. Empty without any."""
    files = [Path(path) for path in paths if path.endswith("/predictions.parquet")]
    finished = [path for file in files if (path := file.with_name(RUN_RECORD)).exists()]
    if not finished:
        return ""
    places = sorted({trained_on(read_json(path)) for path in finished})
    runs, recorded = quote(str(Layout(root).all_runs)), "recorded_runs"
    return (
        f"other predictions than those recorded: {len(finished):,} of the runs made again, on "
        f"{' and '.join(places)}. Of the same settings and code, only CPUs of one kind, with the same "
        f"packages and threads, make the same bytes. `dvc get --rev HEAD --out {recorded} . {runs}` and "
        f"`diagvib compare {recorded} {quote(root)}` say how far they are apart"
    )


def _remedy(root: str, path: str) -> str:
    """For a recorded file that was changed. DVC checks out no file that looks as it was, whatever its
    bytes; and removes one whose recorded content was never fetched."""
    name, option = quote(path), f" -R {quote(root)}" * (root != ".")
    if path == f"{Layout(root).metrics}/":
        command = command_for(root, "snakemake --cores all --forcerun tabulate")
        return f"`git checkout -- {name}` restores what is in git; {command} makes it again"
    update = f"After `git pull`: `dvc pull{option}`; after `git checkout`: `dvc checkout{option}`"
    if is_published(root):
        update = f"After `git pull` or `git checkout`: `diagvib pull {quote(root)}`"
    return (
        f"{update}. Otherwise `rm {name}`; then `dvc checkout {name}` restores the recorded content, "
        "or `snakemake` makes it again"
    )


def check_complete(config: Configuration) -> None:
    """DiagvibError unless Snakemake takes everything of a configuration for finished and up to
    date."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(configuration_text(config))
        file.flush()
        dry_run = ["snakemake", "--dry-run", "--cores", "1", "--configfile", file.name]
        if not in_repository():
            dry_run += ["--snakefile", str(shipped_path("Snakefile"))]
        process = subprocess.run(
            [sys.executable, "-m", *dry_run, "--quiet", "rules", "reason", "host"],
            capture_output=True,
            text=True,
            check=False,
            env=snakemake_environment(),
        )
    output = process.stderr + process.stdout  # which ends with an exception
    if process.returncode < 0:
        raise DiagvibError("the check whether all is complete was stopped; run `diagvib record`")
    if process.returncode:
        last_line = output.strip().rpartition("\n")[2]
        raise DiagvibError(f"`snakemake -n` fails: {last_line}")
    if "Nothing to be done" not in output:
        subject = "config/config.yaml" if config.root == "." else f"what is in {config.root}"
        total = re.search(r"^total\s+(\d+)", output, re.MULTILINE)
        jobs = f"{total[1]} jobs" if total else "jobs"
        command = command_for(config.root, "snakemake --cores all")
        raise DiagvibError(
            f"{subject} is not complete: {jobs} are left; finish them with {command}"
        )
