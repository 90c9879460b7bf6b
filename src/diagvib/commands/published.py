"""Published roots: finished results that come with the repository. In git are a root's ledger,
configuration and metrics, and in STORE, a DVC remote, its other files; but not those that are drawn
again, the same, when it is pulled."""

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

from diagvib.commands.prune import find_unneeded
from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import DIGESTS_FILE, read_json, writing
from diagvib.scenes import PUBLISHED_TEXTURES, has_textures, load_scene
from diagvib.settings.keys import ResolvedConfiguration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import PROVENANCE, PUBLISHED, load_config
from diagvib.workflow.dvc import (
    dvc,
    file_md5,
    is_without_git,
    lock_of,
    outs_of,
    recorded_outs,
    stages_of,
    why_no_ledger,
)
from diagvib.workflow.ledger import changed_files, changed_metrics, check_complete, record
from diagvib.workflow.records import copy_records, is_noted, unpack
from diagvib.workflow.root_stages import code_files, config_of

STORE = Path(PUBLISHED, "store")
# All published roots together, as git keeps them.
MOST_MB = 30


def publish(config: ResolvedConfiguration) -> str:
    """Copy what a configuration asks for of its finished root to the folder of published ones,
    record it there and push it to STORE. Returns a summary for the user. DiagvibError if it is not
    complete, or no clone has the files that it names."""
    root = config.root
    if root == ".":
        raise DiagvibError(
            "root: . is too large for git; push it to a store of yours (docs/remotes.md)"
        )
    copy = f"{PUBLISHED}/{Path(os.path.abspath(root)).name}"
    if reason := why_no_ledger(copy) or why_no_clone(config):
        raise DiagvibError(f"not published: {reason}")
    published, replaced = config.model_copy(update={"root": copy}), ""
    if Path(root).resolve() != Path(copy).resolve():  # however it is written, also as a link
        check_complete(config)
        replaced = (
            f", in place of what was published there from {root} or another root of this name"
        )
        replaced *= lock_of(copy).exists()
        for name in ("data", "results"):
            shutil.rmtree(Path(copy, name), ignore_errors=True)
            shutil.copytree(Path(root, name), Path(copy, name), copy_function=_copied)
        copy_records(root, copy)
        # Such as runs of another configuration, or unfinished ones, under the same root.
        for path in find_unneeded([published]):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    record(copy, published)
    dvc("push", stages_of(copy))
    used = {path for name in published_roots() for path in _objects(name)}
    unused = [path for path in STORE.glob("files/md5/*/*") if path not in used]
    for path in unused:
        path.unlink()
    count, size = git_size(Path(PUBLISHED))
    excess = f", more than the {MOST_MB} MB that all may have" if size > MOST_MB * 1e6 else ""
    return (
        f"published in {copy}{replaced}; {len(unused):,} files of earlier versions left out. {PUBLISHED}: {count:,} files, "
        f"{size / 1e6:.1f} MB in git{excess}. `git add {PUBLISHED}` and `git commit` share it"
    )


def _copied(source: str, target: str) -> None:
    """Not an OSError, many of which `copytree` gathers."""
    with writing(Path(target)):
        shutil.copy2(source, target)


def why_no_clone(config: ResolvedConfiguration) -> str | None:
    """Which of the user's own files, that a configuration names or is run with, a clone would lack;
    None if it has them all, or there is no git here."""
    keys = ("studies_from", "baselines_from", "textures")
    user_files = [
        (f"{key}: ", os.path.normpath(path)) for key in keys for path in getattr(config, key)
    ]
    user_files = [name for name in user_files if name[1] not in PUBLISHED_TEXTURES]
    for label, path in user_files:
        if Path(path).is_absolute() or path.startswith(".."):
            return f"{label}{path} is outside this folder; copy it here, and name the copy"
    if is_without_git():
        return None
    scenes = [load_scene(name) for name in config.scenes if has_textures(name)]
    user_files += [
        ("textures: ", str(photo)) for scene in scenes for photo in scene.photos.values()
    ]
    user_files += [("", path) for path in sorted(code_files(config))]
    command = ["git", "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tracked = {*listing.split("\0")}
    for label, path in user_files:
        if path not in tracked and not Path(path).is_dir():
            return f"{label}{path} is not in git; `git add` and `git commit` it first"
    return None


def _objects(root: str) -> set[Path]:
    """The files in STORE that a published root has."""
    outs, objects = recorded_outs(root), set()
    outs.pop(str(Layout(root).metrics), None)  # in git
    for digest in outs.values():
        objects.add(path := _object(digest))
        if digest.endswith(".dir"):
            with suppress(FileNotFoundError, ValueError):  # absent or damaged itself
                objects |= {_object(entry["md5"]) for entry in json.loads(path.read_text())}
    return objects


def _object(digest: str) -> Path:
    return STORE / "files/md5" / digest[:2] / digest[2:]


def _is_damaged(path: Path) -> bool:
    """Whether a file in STORE is absent or not the one that its name says."""
    digest = f"{path.parent.name}{path.name}".removesuffix(".dir")
    return not path.exists() or file_md5(path) != digest


def git_size(folder: Path) -> tuple[int, int]:
    """The number of files of published roots in a folder, and their compressed size in bytes, as in
    git."""
    paths = [path for path in (folder / STORE.name).rglob("*") if path.is_file()]
    paths += folder.glob("*/dvc.*")
    return len(paths), sum(len(zlib.compress(path.read_bytes())) for path in paths)


def pull(root: str) -> ResolvedConfiguration:
    """Bring the stored files of a published root that are absent or not those of its ledger, unless
    the workflow has made them since; returns its configuration. If the root was published again,
    what is drawn is removed, to be drawn anew. DiagvibError if there is no such root here, a file to
    replace was made or edited here, or STORE is damaged."""
    if not lock_of(root).exists():
        roots = published_roots()
        inside = any(Path(root).is_relative_to(name) for name in roots)
        part = f"; a part of one is got by `dvc pull {quote(root)}`" * inside
        names = ", ".join(roots) or f"none in {PUBLISHED}"
        raise DiagvibError(f"{lock_of(root)}: no such file; published roots: {names}{part}")
    config = load_config(config_of(root))
    if config.root != root:  # or other folders than this root's would be filled
        raise DiagvibError(
            f"{config_of(root)}: root: is {config.root}, not {root}; call this in the folder where it is that"
        )
    files = _changed_files(root)
    # Snakemake's records alone are made anew by no workflow: others were published.
    replaced = files["modified"] or files["anew"] == [str(Path(root, PROVENANCE))]
    if replaced or files["deleted"] or files["unknown"]:
        try:
            dvc("pull", stages_of(root))
        except DiagvibError as error:
            if "unsaved" in str(error):
                remedy = f"`dvc checkout --force -R {quote(root)}` replaces them; then pull again"
                raise DiagvibError(f"{error}; {remedy}") from None
            # A remote elsewhere needs no STORE.
            damaged = [str(path) for path in sorted(_objects(root)) if _is_damaged(path)]
            if not damaged or not STORE.exists():
                raise
            raise DiagvibError(
                f"{some_names(damaged)}: damaged or absent, so that not all was pulled; `git checkout -- {STORE}` "
                "brings what is in git; then pull again"
            ) from None
    # Only now: a pull that fails costs no images. The second is so after one that was killed, too.
    if replaced or not is_noted(Path(root, PROVENANCE)):
        drawn_folders = {Path(root, "data", name) for name in ("prepared", "recipes", "images")}
        for folder in drawn_folders - {*outs_of(root)}:
            shutil.rmtree(folder, ignore_errors=True)
        unpack(root)  # which notes that what is drawn from here on is of these results
    return config


def _changed_files(root: str) -> dict[str, list[str]]:
    return changed_files(root, lock_of(root).stat().st_mtime)


def jobs_left(config: ResolvedConfiguration) -> str:
    """For a user who has pulled a root: whether this version of the code would make any of it
    again."""
    root, file = config.root, config_of(config.root)
    folder = changed_metrics(root)
    if folder and not any(_changed_files(root).values()):  # those no pull brings
        return f"{root}: not all is as it was published: `git checkout -- {quote(str(folder))}` restores the metrics"
    try:
        check_complete(config)
    except DiagvibError as error:
        if any(_changed_files(root).values()):
            return f"{root}: not all is as it was published: {error}"
        return (
            f"{root}: is there, but made by another version of the code or of its packages: {error}, or check "
            f"out the commit that published it (`git log {lock_of(root)}`)"
        )
    return f"{root}: all is there; `snakemake -n --configfile {file}` has nothing to do"


def published_roots() -> list[str]:
    return [str(path.parent) for path in sorted(Path(PUBLISHED).glob("*/dvc.lock"))]


def missing_jobs(config: ResolvedConfiguration) -> Iterator[tuple[str, dict]]:
    """Stages and names of the jobs that draw again what a root is stored without; each is to be run
    before the next is asked for."""
    layout = Layout(config.root)
    for scene in config.scenes:
        has_sources = bool(load_scene(scene).raw_files(config.sources))
        if has_sources and not _is_whole(layout.raw(scene)):
            yield "fetch", {"scene": scene}
        if not _is_whole(layout.prepared(scene)):
            yield "prepare", {"scene": scene}
    tuned = [(config.tuning.study, name) for name in config.tuning.bindings if config.tuned_first]
    for study, binding in dict.fromkeys([*config.datasets, *tuned]):
        if not layout.recipes(study, binding).exists():
            yield "draw", {"study": study, "binding": binding}
        if config.images == "parquet" and not _is_whole(layout.images(study, binding)):
            yield "render", {"study": study, "binding": binding}


def _is_whole(folder: Path) -> bool:
    """Whether a folder has its digests, and every file that they name."""
    try:
        digests = read_json(folder / DIGESTS_FILE)
    except DiagvibError:
        return False
    # Those of images also say what these were made from.
    return all((folder / name).exists() for name in digests if isinstance(digests[name], str))
