"""Files as contracts: either complete or absent, with metadata about what made them."""

import errno
import glob
import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from yaml.composer import Composer

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.messages import say
from diagvib.foundation.version import __version__

# The key under which all our Parquet files carry a JSON object: what made them (names, seed, code
# version, sources).
METADATA_KEY = b"diagvib"
# Represents the files of a folder: the sha256 of each.
DIGESTS_FILE = "sha256.json"

_PACKAGE = Path(__file__).parent.parent
_NOT_YAML = yaml.YAMLError, ValueError, OverflowError, RecursionError
_LIBYAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML can be built without it
# The numbers and truth values without quotes that mean the same in YAML 1.1 and 1.2.
_SAME_IN_ALL_YAML = re.compile(
    r"[-+]?(0|[1-9]\d*|\.\d+|\d+\.\d*)([eE][-+]?\d+)?|0x[\da-fA-F]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|true|True|TRUE|false|False|FALSE"
)
_TYPED = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "timestamp")}
# Seconds without a write after which a temporary file from another machine counts as left over.
_ABANDONED_SECONDS = 86_400
# Part of a temporary file's name, whose parts are separated by dots.
_HOST = re.sub("[./]", "-", socket.gethostname())
FULL = errno.ENOSPC, errno.EDQUOT
_REFUSED = errno.EACCES, errno.EROFS, errno.EPERM, errno.EFBIG, errno.EIO, errno.ESTALE


def definition_path(name: str) -> Path:
    """The path of a definition file, in `config/`."""
    return shipped_path(f"config/{name}")


def shipped_path(name: str) -> Path:
    """The path of a file of the repository: in a checkout, or its copy inside an installed
    wheel."""
    checkout = checkout_path(name)
    return checkout if checkout.exists() else _PACKAGE / name


def definition_name(path: Path) -> str:
    """The name of what a YAML file defines: the file's, or its folder's if it is a scene.yaml."""
    return (path.stem == "scene" and path.parent.name) or path.stem


def named_in(file: Path, name: str, exists: Callable[[Path], bool] = Path.is_file) -> str:
    """The path of a file that another one names: relative to the latter, if it is there, or else to
    the current folder. Below that it is relative, so that a copy elsewhere has the same settings."""
    near, folder = Path(os.path.normpath(file.parent / name)), Path.cwd()
    if not exists(near):
        return name
    return str(near.relative_to(folder) if near.is_relative_to(folder) else near)


def checkout_path(name: str) -> Path:
    """A path in the checkout that contains the package (in an installed wheel it need not
    exist)."""
    return _PACKAGE.parent.parent / name


def cache_folder() -> Path:
    """The folder for data that can be made again: $DIAGVIB_CACHE, by default ~/.cache/diagvib."""
    default = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "diagvib")
    folder = Path(os.path.expanduser(os.environ.get("DIAGVIB_CACHE") or default))
    if str(folder).startswith("~"):
        raise DiagvibError(f"{folder}: this user has no home; set DIAGVIB_CACHE to a folder")
    return folder


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` if the block succeeds, remove it
    if not.

    Several processes, on several machines, may write the same file: the last one wins. Temporary
    files of killed writers are removed. A full disk raises DiagvibError.
    """
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(path)
        temporary = path.with_name(f".{path.name}.{_HOST}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        try:
            yield temporary
            # Or a power cut could leave the name without the content.
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Let one process at a time make `path`, and what it stands for; others wait until that one has
    ended, however it ends. On a file system without locks, none waits."""
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f"{path.name}.lock.tmp"))
    with suppress(OSError, NotImplementedError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"{path}: another job is making it; this one waits")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """DiagvibError if the system does not let the block write `path`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if readable := _readable(error, path):
            raise readable from error
        raise


def forget(path: Path) -> None:
    """Before files are made of which `path` is the last: if that is stopped, none of them may be taken
    for finished."""
    with writing(path):
        path.unlink(missing_ok=True)


def _remove_left_over(path: Path) -> None:
    """Remove temporary files of `path` whose writer has ended, or is on another machine and silent
    for a day."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        host, pid, *_ = [*temporary.name.removeprefix(f".{path.name}.").split("."), ""]
        try:
            if host == _HOST and pid.isdecimal():
                ended = not _is_alive(int(pid))
            else:
                ended = time.time() - temporary.stat().st_mtime > _ABANDONED_SECONDS
        except FileNotFoundError:
            continue
        if ended:
            temporary.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _readable(error: BaseException | None, path: Path) -> DiagvibError | None:
    """The message if an error, or its cause, is that the system does not let us write; otherwise
    None."""
    while error is not None:
        number = getattr(error, "errno", None)
        # Of a copy, the second is the one that is written.
        name = getattr(error, "filename2", None) or getattr(error, "filename", None)
        if isinstance(name, str | os.PathLike) and Path(name).parent not in path.parents:
            return None  # another file, which the block reads
        if number in (*FULL, *_REFUSED):
            return _unwritable(path, number)
        error = error.__cause__ or error.__context__
    return None


def _unwritable(path: Path, number: int) -> DiagvibError:
    place, by_root = "name a folder", ", for results by `root:` in the configuration"
    size = " (`diagvib plan` says how much is needed)"
    if _is_cached(path):
        place, by_root, size = "set DIAGVIB_CACHE to a folder", "", ""
    if number in FULL:
        return DiagvibError(
            f"{path}: the disk is full; free some space, or {place} on a larger disk{by_root}{size}, then "
            "run the same command again"
        )
    return DiagvibError(
        f"{path}: cannot be written ({os.strerror(number)}); {place} that you may write to, on a sound "
        f"disk{by_root}, and check `ulimit -f`"
    )


def _is_cached(path: Path) -> bool:
    try:
        return path.is_relative_to(cache_folder())
    except DiagvibError:  # no home
        return False


def file_sha256(path: str | Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(text: str) -> str:
    """The sha256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def named_hash(url: str) -> str:
    """The first digits of the sha256 in the name of a file of torchvision's weights, such as
    resnet50-0676ba61.pth."""
    return Path(url).stem.rpartition("-")[2]


def write_digests(folder: str | Path, names: Iterable[str], **made_from: object) -> None:
    """Write the sha256 of each of these files of a folder, and what they were made from, to its
    DIGESTS_FILE; to be called after they are written."""
    digests = {name: file_sha256(Path(folder) / name) for name in names}
    write_json(Path(folder) / DIGESTS_FILE, {**digests, **made_from})


def write_text(path: str | Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_yaml(path: str | Path, value: object) -> None:
    """Write plain data with its keys in their order."""
    write_text(path, yaml.safe_dump(value, sort_keys=False))


def read_json(path: str | Path, remedy: str = "delete it and run again") -> dict:
    """A JSON file as a dict. DiagvibError if it is missing or, with the remedy, damaged."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except (ValueError, OSError, RecursionError) as error:
        raise DiagvibError(f"{path}: not readable as JSON ({one_line(error)}); {remedy}") from None
    if not isinstance(value, dict):
        raise DiagvibError(f"{path}: is not a JSON object; {remedy}")
    return value


class _Loader(Composer, _LIBYAML):
    """By default, the later of two equal keys wins, 010 is 8, 1:30 is 90 and `no` is false; here
    they are errors. libyaml's own composer is not used: very deep nesting crashes it."""

    def __init__(self, text: str):
        Composer.__init__(self)
        _LIBYAML.__init__(self, text)

    def compose_scalar_node(self, anchor):
        plain, node = self.peek_event().implicit[0], super().compose_scalar_node(anchor)
        if plain and node.tag in _TYPED and not _SAME_IN_ALL_YAML.fullmatch(node.value):
            raise yaml.MarkedYAMLError(
                None,
                None,
                f"{node.value} has several meanings in YAML; write true, false, a decimal number "
                "without leading zeros, or text in quotes",
                node.start_mark,
            )
        return node

    def compose_mapping_node(self, anchor):
        node, keys = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in keys:
                raise yaml.MarkedYAMLError(
                    None, None, f"the key '{key.value}' is given twice", key.start_mark
                )
            keys.add(name)
        return node


def parse_yaml(text: str, location: str):
    """YAML as Python values; None for an empty text. DiagvibError naming `location`, the line and the
    problem."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, [error.context, error.problem]))
        line = f", line {mark.line + 1}" if mark else ""
        raise DiagvibError(f"{location}: not valid YAML{line}: {one_line(problem)}") from None
    except _NOT_YAML as error:
        raise DiagvibError(f"{location}: not valid YAML: {one_line(error)}") from None


def read_yaml(path: str | Path):
    """A YAML file as Python values. DiagvibError, with the line, if it is missing, malformed or
    empty."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise DiagvibError(
            f"{path}: cannot be read ({one_line(error)}); a YAML file in UTF-8 is needed"
        ) from None
    value = parse_yaml(text, str(path))
    if value is None:
        raise DiagvibError(f"{path}: is empty; give at least one key")
    return value


def with_metadata(schema: pa.Schema, metadata: dict) -> pa.Schema:
    """The schema with `metadata` (and the code version) under the key `diagvib`."""
    value = json.dumps({**metadata, "code_version": __version__}, sort_keys=True)
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: value.encode()})


def write_table(path: str | Path, table: pa.Table, metadata: dict) -> None:
    """Write a Parquet file atomically (zstd), with `metadata` inside."""
    table = table.replace_schema_metadata(with_metadata(table.schema, metadata).metadata)
    with whole_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


@contextmanager
def open_parquet(path: str | Path, **options) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; any damage, even if found only while reading, raises DiagvibError.

    The checksums of its pages, which all our files have, are checked while reading.
    options: pyarrow's, such as read_dictionary.
    """
    if not Path(path).exists():
        raise DiagvibError(
            f"{path}: no such file; the stage that makes it has not run yet "
            "(`snakemake` runs them in order)"
        )
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, **options) as file:
            yield file
    except (pa.ArrowException, OSError, EOFError) as error:
        if getattr(error, "filename", None) not in (
            None,
            str(path),
        ):  # another file, which the caller uses meanwhile
            raise
        raise DiagvibError(
            f"{path}: damaged or not a Parquet file ({one_line(error, 160)}); delete it and run again "
            "to make a new one"
        ) from None


def file_metadata(file: pq.ParquetFile, path: str | Path) -> dict:
    """The metadata of an open Parquet file, as its writer recorded them."""
    try:
        metadata = json.loads((file.schema_arrow.metadata or {})[METADATA_KEY])
    except (KeyError, ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise DiagvibError(
            f"{path}: was not written by diagvib (its metadata has no JSON object under the key "
            "'diagvib'); delete it and run again to make a new one"
        )
    return metadata


def read_metadata(path: str | Path) -> dict:
    with open_parquet(path) as file:
        return file_metadata(file, path)


def is_noted(path: str | Path, key: str, value: object) -> bool:
    """Whether one of our Parquet files exists, is intact and records this value, so that it need
    not be made again."""
    try:
        with open_parquet(path) as file:
            # Reading checks the checksums.
            for number in range(file.num_row_groups):
                file.read_row_group(number)
            return file_metadata(file, path).get(key) == value
    except (DiagvibError, OSError):
        return False


def read_table(path: str | Path, columns: list[str] | None = None) -> pa.Table:
    """One of our Parquet files as a table. DiagvibError if it is missing, damaged, or lacks one of
    `columns`."""
    with open_parquet(path) as file:
        missing = [c for c in columns or [] if c not in file.schema_arrow.names]
        if missing:
            raise DiagvibError(
                f"{path}: lacks column {missing[0]}; it has {', '.join(file.schema_arrow.names)}"
            )
        return file.read(columns=columns)
