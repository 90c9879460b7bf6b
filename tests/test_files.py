"""Files are complete or absent: real processes write the same one, are killed, and meet a disk that
is really full."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from conftest import largest_file, refused
from diagvib.foundation import files
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    cache_folder,
    is_noted,
    read_table,
    whole_file,
    write_table,
    write_text,
)

# argv: path, letter. Says `ready` inside the block, and leaves it when told to.
WAITING_WRITER = """
import sys
from diagvib.foundation.files import whole_file
with whole_file(sys.argv[1]) as temporary:
    temporary.write_text(sys.argv[2] * 1000)
    print("ready", flush=True)
    sys.stdin.readline()
"""


def python(program: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def waiting_writer(path: Path, letter: str) -> subprocess.Popen:
    writer = python(WAITING_WRITER, path, letter)
    assert writer.stdout.readline() == "ready\n"
    return writer


def test_a_living_writer_keeps_its_temporary_file_and_the_last_one_wins(tmp_path):
    path = tmp_path / "a.txt"
    slow = waiting_writer(path, "S")
    write_text(path, "quick")
    assert path.read_text() == "quick"
    _, message = slow.communicate("\n")
    assert slow.returncode == 0, message
    assert path.read_text() == "S" * 1000
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    path, alternative = tmp_path / "a.txt", tmp_path / "a.txt.txt"
    fresh, old = tmp_path / ".a.txt.elsewhere.1.00ff.tmp", tmp_path / ".a.txt.elsewhere.2.00ff.tmp"
    killed, living = waiting_writer(path, "K"), waiting_writer(alternative, "L")
    killed.kill()
    killed.communicate()
    for remaining in (fresh, old):
        remaining.write_text("x")
    os.utime(old, (time.time() - 90_000,) * 2)
    write_text(path, "next")
    remaining = [p.name for p in tmp_path.glob(".a.txt.*.tmp")]
    assert len(remaining) == 2, "those of the other file, and of another machine for a day, stay"
    assert fresh.name in remaining
    living.communicate("\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == [fresh.name, "a.txt", "a.txt.txt"]


def test_content_is_on_disk_before_the_name(tmp_path, monkeypatch):
    finished_part, fsync, replace = [], os.fsync, os.replace

    def noted_fsync(descriptor):
        finished_part.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def noted_replace(source, target):
        finished_part.append("renamed")
        replace(source, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc here to tell which file a descriptor is of")
    monkeypatch.setattr(files.os, "fsync", noted_fsync)
    monkeypatch.setattr(files.os, "replace", noted_replace)
    write_text(tmp_path / "a.txt", "x")
    assert finished_part[0].startswith(".a.txt.") and finished_part[1:] == ["renamed"]


# A separate disk in a separate namespace.
ON_A_SMALL_DISK = 'mkdir disk && mount -t tmpfs -o size=1M tmpfs disk && exec "$@"'
FILL_IT = """
import torch
from pathlib import Path
from diagvib.training.checkpoints import Checkpoint
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import whole_file
path, state = Path("disk/folder/0.pt"), {"a": [torch.zeros(1_000_000)]}

def by_hand():
    with whole_file(path) as temporary:
        temporary.write_bytes(bytes(4_000_000))

for write in (by_hand, lambda: Checkpoint(path, "x").write(state)):
    try:
        write()
    except DiagvibError as error:
        print(error)
    assert list(path.parent.iterdir()) == []
Checkpoint(path, "x").write({"a": torch.zeros(1000)})
print(len(Checkpoint(path, "x").read()["a"]))
"""


def test_a_full_disk_is_told_also_by_checkpoints_and_leaves_nothing(tmp_path, own_disk):
    process = subprocess.run(
        [*own_disk, ON_A_SMALL_DISK, "sh", sys.executable, "-c", FILL_IT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    message = process.stdout.splitlines()
    assert len(message) == 3 and message[2] == "1000"
    assert all(
        line.startswith("disk/folder/0.pt: the disk is full; free some space")
        for line in message[:2]
    ), message


def test_a_flipped_bit_in_a_table_is_found_on_reading_or_changes_nothing(tmp_path):
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "whole": random.integers(0, 1000, 5000),
            "fraction": random.random(5000),
            "name": random.choice(["red", "green", "blue"], 5000),
            "image": [random.bytes(20) for _ in range(5000)],
        }
    )
    path, result = tmp_path / "a.parquet", 0
    write_table(path, table, {})
    content = path.read_bytes()
    body = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for _ in range(50):
        flipped, place = bytearray(content), int(random.integers(4, body))
        flipped[place] ^= 1 << int(random.integers(8))
        path.write_bytes(flipped)
        try:
            read = read_table(path)
        except DiagvibError as error:
            assert "damaged" in str(error) and "delete it and run again" in str(error)
            result += 1
        else:
            assert read.equals(table)
    assert result > 45  # undetected changes are in a page's header, where they change no value


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EIO, errno.ESTALE])
def test_what_the_system_does_not_write_names_the_file(tmp_path, number):
    says = rf"a\.txt: cannot be written \({os.strerror(number)}\)"
    with refused(says), whole_file(tmp_path / "a.txt"):
        raise OSError(number, os.strerror(number))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_not_taken_for_the_one_that_is_written(tmp_path):
    read = tmp_path / "mirror/b.bin"
    with pytest.raises(PermissionError, match=r"mirror/b\.bin"), whole_file(tmp_path / "out/a.txt"):
        raise PermissionError(errno.EACCES, "Permission denied", str(read))
    message = r"a\.txt: cannot be written"
    with (
        refused(message),
        whole_file(tmp_path / "out/a.txt") as temporary,
    ):
        raise PermissionError(errno.EACCES, "Permission denied", str(temporary))


def test_a_copy_that_cannot_be_written_is_not_taken_for_its_source(tmp_path):
    (tmp_path / "mirror").mkdir()
    source = tmp_path / "mirror/b.bin"
    source.write_bytes(bytes(2**18))
    with (
        refused(r"a\.txt: cannot be written \(File too large\)"),
        largest_file(2**17),
        whole_file(tmp_path / "out/a.txt") as temporary,
    ):
        shutil.copyfile(source, temporary)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_or_a_share_of_it_that_is_full_is_named(tmp_path, number):
    with (
        refused(r"a\.txt: the disk is full"),
        whole_file(tmp_path / "a.txt"),
    ):
        raise OSError(number, os.strerror(number))


def test_another_place_for_the_cache_is_not_named_by_the_root(tmp_path, monkeypatch):
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path))
    for number, says in (
        (errno.ENOSPC, "or set DIAGVIB_CACHE to a folder on a larger disk, then run the same"),
        (
            errno.EROFS,
            "; set DIAGVIB_CACHE to a folder that you may write to, on a sound disk, and",
        ),
    ):
        with refused(says), whole_file(tmp_path / "a.txt"):
            raise OSError(number, os.strerror(number))


def test_a_name_with_brackets_is_no_pattern(tmp_path):
    path = tmp_path / "a[1].txt"
    killed = waiting_writer(path, "K")
    killed.kill()
    killed.communicate()
    write_text(path, "next")
    assert [item.name for item in tmp_path.iterdir()] == ["a[1].txt"]


def test_a_file_is_kept_only_if_it_notes_the_same_value(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(path, pa.table({"a": [1]}), {"made_from": "x"})
    assert is_noted(path, "made_from", "x")
    assert not is_noted(path, "made_from", "y") and not is_noted(tmp_path / "b", "made_from", "x")


def test_a_file_with_a_wrong_bit_is_not_kept(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(path, pa.table({"a": [bytes(range(250))] * 9}), {"made_from": "x"})
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(bytes(range(100, 200))) + 50] ^= 1
    path.write_bytes(damaged)
    assert not is_noted(path, "made_from", "x")


def test_without_a_home_the_cache_is_no_folder_called_like_one(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "DIAGVIB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    with refused("this user has no home; set DIAGVIB_CACHE"):
        cache_folder()
