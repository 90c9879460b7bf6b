"""Files as contracts: whole or absent, and carrying in their metadata what made them."""

import errno
import glob
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from diagvib import __version__
from diagvib.foundation.errors import DiagvibError, one_line

# Key under which every Parquet file of ours carries a JSON object: what made it (names, seed, code version, sources).
METADATA_KEY = b"diagvib"
# Stands for the files of a folder: the sha256 of each.
DIGESTS_FILE = "sha256.json"

_PACKAGE = Path(__file__).parent.parent
# A temporary file from another machine is taken for left over after so long without a write.
_ABANDONED_SECONDS = 86_400


def definition_path(name: str) -> Path:
    """Where the repository's own facts live: `config/` of a checkout, or its copy inside an installed wheel."""
    checkout = checkout_path("config") / name
    return checkout if checkout.exists() else _PACKAGE / "config" / name


def checkout_path(name: str) -> Path:
    """A path in the checkout that the package stands in (nothing need be there in an installed wheel)."""
    return _PACKAGE.parent.parent / name


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, remove it if not.

    The file is on disk, not only in memory, when the block has ended. Several processes, on several machines, may write
    the same file: the last one wins. What killed writers of it left is removed. A full disk becomes a DiagvibError.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(path)
        temporary = path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        try:
            yield temporary
            _to_disk(temporary)
            os.replace(temporary, path)
            _to_disk(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        if readable := _readable(error, path):
            raise readable from error
        raise


def _host() -> str:
    """The machine's name, without the dots that separate the parts of a temporary file's name."""
    return socket.gethostname().replace(".", "-").replace("/", "-")


def _remove_left_over(path: Path) -> None:
    """Remove the temporary files of `path` whose writer has ended, or cannot be asked and has been silent for a day."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        host, pid, *_ = [*left.name.removeprefix(f".{path.name}.").split("."), ""]
        try:
            if host == _host() and pid.isdecimal():
                ended = not _is_alive(int(pid))
            else:
                ended = time.time() - left.stat().st_mtime > _ABANDONED_SECONDS
        except FileNotFoundError:
            continue
        if ended:
            left.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot do it for folders
            raise
    finally:
        os.close(descriptor)


def _readable(error: BaseException | None, path: Path) -> DiagvibError | None:
    """What to tell the user if an error, or the one that led to it, is a full disk or a folder not to be written to."""
    while error is not None:
        number = getattr(error, "errno", None)
        if number in (errno.ENOSPC, errno.EDQUOT):
            return DiagvibError(f"{path}: the disk is full; free some space, or set `root:` in the configuration to a "
                                "larger disk (`diagvib plan` says how much is needed), then run the same command again")
        if number in (errno.EACCES, errno.EROFS, errno.EPERM):
            return DiagvibError(f"{path}: cannot write here ({error.strerror}); set `root:` in the configuration to a "
                                "folder that you may write to")
        error = error.__cause__ or error.__context__
    return None


def file_sha256(path: str | Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_digests(folder: str | Path, names: Iterable[str]) -> None:
    """The sha256 of each of these files of a folder, to DIGESTS_FILE in it: to be written after them."""
    write_json(Path(folder) / DIGESTS_FILE, {name: file_sha256(Path(folder) / name) for name in names})


def write_text(path: str | Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str | Path) -> dict:
    """A JSON file as a dict. DiagvibError if it is absent or damaged."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except (ValueError, OSError, RecursionError) as error:
        raise DiagvibError(f"{path}: not readable as JSON ({one_line(error)}); delete it and run again") from None
    if not isinstance(value, dict):
        raise DiagvibError(f"{path}: holds no JSON object; delete it and run again")
    return value


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, which by itself would let the later of two equal keys win."""

    def compose_mapping_node(self, anchor):
        node, seen = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                raise yaml.MarkedYAMLError(None, None, f"the key '{key.value}' stands here a second time",
                                           key.start_mark)
            seen.add(name)
        return node


def parse_yaml(text: str, where: str):
    """YAML as Python values; None for an empty text. DiagvibError naming `where`, the line and what is wrong."""
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, " ".join(filter(None, [error.context, error.problem]))
        line = f", line {mark.line + 1}" if mark else ""
        raise DiagvibError(f"{where}: not valid YAML{line}: {one_line(problem)}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise DiagvibError(f"{where}: not valid YAML: {one_line(error)}") from None


def read_yaml(path: str | Path):
    """A YAML file as Python values, an empty one as {}. DiagvibError, with the line, if it is absent or malformed."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise DiagvibError(f"{path}: not a text file in UTF-8 ({error})") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DiagvibError(f"{path}: cannot be read ({reason}); a YAML file is needed") from None
    value = parse_yaml(text, str(path))
    return {} if value is None else value


def with_metadata(schema: pa.Schema, metadata: dict) -> pa.Schema:
    """The schema carrying `metadata` (and the code version) under the key `diagvib`."""
    value = json.dumps({**metadata, "code_version": __version__}, sort_keys=True)
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: value.encode()})


def write_table(path: str | Path, table: pa.Table, metadata: dict) -> None:
    """Write a Parquet file whole (zstd), with `metadata` inside."""
    table = table.replace_schema_metadata(with_metadata(table.schema, metadata).metadata)
    with whole_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


@contextmanager
def open_parquet(path: str | Path, **options) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; whatever is wrong with its bytes, also found later while reading, is a DiagvibError.

    Its pages' checksums, which all files of ours have, are checked as they are read.
    options: pyarrow's, such as read_dictionary.
    """
    if not Path(path).exists():
        raise DiagvibError(f"{path}: no such file; the stage that makes it has not run yet "
                           "(`snakemake` runs them in order)")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, **options) as file:
            yield file
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = " ".join(str(error).split())[:160]
        raise DiagvibError(f"{path}: damaged or not a Parquet file ({reason}); "
                           "delete it and run again, it will be made anew") from None


def file_metadata(file: pq.ParquetFile, path: str | Path) -> dict:
    """What made an open Parquet file, as its writer noted it."""
    value = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    if value is None:
        raise DiagvibError(f"{path}: was not written by diagvib (its metadata lacks the key 'diagvib')")
    try:
        noted = json.loads(value)
    except (ValueError, RecursionError):
        noted = None
    if not isinstance(noted, dict):
        raise DiagvibError(f"{path}: its metadata under the key 'diagvib' are no JSON object; delete it and run again, "
                           "it will be made anew")
    return noted


def read_metadata(path: str | Path) -> dict:
    with open_parquet(path) as file:
        return file_metadata(file, path)


def is_noted(path: str | Path, key: str, value: object) -> bool:
    """Whether a Parquet file of ours is there, not damaged, and notes this value: whether it need not be made again."""
    try:
        return Path(path).exists() and read_metadata(path).get(key) == value
    except DiagvibError:
        return False


def read_table(path: str | Path, columns: list[str] | None = None, filters=None) -> pa.Table:
    """A Parquet file of ours as a table. DiagvibError if it is absent, damaged, or lacks one of `columns`."""
    with open_parquet(path) as file:
        missing = [c for c in columns or [] if c not in file.schema_arrow.names]
        if missing:
            raise DiagvibError(f"{path}: lacks column {missing[0]}; it holds {', '.join(file.schema_arrow.names)}")
        table = file.read(columns=columns)
    return table.filter(filters) if filters is not None else table
