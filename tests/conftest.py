"""Fixtures that several tests share: the local mirror of the real sources, where there is one, and a core
for each."""

import gc
import itertools
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Tests take turns on the cores already; threads of their own would mostly wait for one another.
# Before torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from diagvib.foundation.errors import DiagvibError

# Fixtures: output, finished, repository; holder; chromium.
pytest_plugins = ["toy", "slot_holder", "browser"]
gc.set_threshold(100_000, 50, 100)  # as the program does
REPOSITORY = Path(__file__).parent.parent
BIN = Path(sys.executable).parent  # with the programs diagvib, dvc, snakemake and python
MEMORY = Path("/dev/shm")
NUMBERS = itertools.count()
INTEGRATION = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.integration", re.M)
MIRROR = REPOSITORY.parent / "shared" / "data"
# Beside the first, which makes `output`, two that do without it.
LONGEST = (
    "test_ledger",
    "test_dependencies",
    "test_grid",
    "test_slurm",
    "test_workflow",
    "test_published",
    "test_on_a_gpu",
    "test_trust",
    "test_types",
    "test_slots",
    "test_machines",
    "test_package",
    "test_evaluate",
    "test_new_photos",
    "test_methods",
    "test_adapters",
    "test_site",
    "test_remotes",
    "test_library",
    "test_photo_sets",
    "test_tables",
    "test_urbancars",
    "test_snakemake",
)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as by `ulimit -f`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def has_room(folder: Path) -> bool:
    """Whether the files of all tests fit into a folder, and programs among them may run there."""
    return (
        os.access(folder, os.W_OK)
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(folder).free >= 8 << 30
    )


def pytest_configure(config):
    """Files are in memory if they fit: most of the wait is for the disk, to which each is written
    before it counts as whole. What is kept between commands is kept for these tests alone."""
    if hasattr(config, "workerinput"):
        return
    if has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    os.environ["DIAGVIB_CACHE"] = tempfile.mkdtemp(prefix="diagvib-cache-")
    config.add_cleanup(lambda: shutil.rmtree(os.environ["DIAGVIB_CACHE"]))


def pytest_ignore_collect(collection_path, config):
    """No process loads a file without a test of the kind that is asked for: the packages that files
    need take seconds."""
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    unneeded = {
        "integration": "mark.integration" not in text,
        "not integration": INTEGRATION.search(text),
    }
    return True if unneeded.get(config.option.markexpr) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: tests often wait, for files, timers and services."""
    return os.cpu_count() + 1


def refused(message: str):
    """Where bad input is refused, by a DiagvibError whose text matches."""
    return pytest.raises(DiagvibError, match=message)


@pytest.fixture
def tmp_path(tmp_path):
    """A fresh path for each test: pytest reuses names, and diagvib caches files by path."""
    folder = tmp_path / str(next(NUMBERS))
    folder.mkdir()
    return folder


def no_modules_left(tmp_path_factory):
    """The program adds its current folder to sys.path for good, and keeps scenes by their names;
    later tests must find no modules of these ones', and no scenes from them."""
    path, modules, folder = sys.path[:], set(sys.modules), str(tmp_path_factory.getbasetemp())
    yield
    sys.path[:] = path
    values = [
        name
        for name in set(sys.modules) - modules
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder)
    ]
    for name in values:
        del sys.modules[name]
    if values and "diagvib.scenes" in sys.modules:
        sys.modules["diagvib.scenes"].scene_of_class.cache_clear()
    if values and "diagvib.scenes.cache" in sys.modules:
        sys.modules["diagvib.scenes.cache"].loaded_code.clear()


no_modules_of_a_test = pytest.fixture(autouse=True)(no_modules_left)
no_modules_of_a_file = pytest.fixture(autouse=True, scope="module")(
    no_modules_left
)  # from its fixtures


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder with the real MNIST files, textures and golden renders."""
    if not (MIRROR / "mnist").is_dir():
        pytest.skip(
            f"no local mirror of the real sources beside the repository ({MIRROR.name} folder absent)"
        )
    return MIRROR


@pytest.fixture
def own_disk() -> list[str]:
    """The start of a command, before a script: in a namespace in which it may mount a disk."""
    start = ["unshare", "--mount", "--map-root-user", "sh", "-e", "-c"]
    trial = [*start, "mount -t tmpfs tmpfs /mnt"]
    if not shutil.which("unshare") or subprocess.run(trial, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here, not even in a namespace, to be filled")
    return start


@pytest.fixture(scope="session")
def golden(mirror) -> dict[str, np.ndarray]:
    """400 recipes with the images that the published generator made from them."""
    with np.load(mirror / "golden" / "diagvib6_renders.npz") as file:
        return {name: file[name] for name in file.files}


def pytest_collection_modifyitems(items):
    """Where several processes take file by file, the longest ones first, so that none is left to
    the end."""
    items.sort(
        key=lambda item: (
            LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)
        )
    )
