"""A folder of a user's photos that changes between runs."""

import os
import re
from pathlib import Path

from photo_folders import make_photos
from toy import copy_of_the_repository, toy

CONFIG = """
root: out
mirror: photos
studies: [urbancars]
bindings: [car-background-object]
samples: 2
counts: {train: 20, val: 9, test: 9}
image_size: 64
baselines: [erm]
training: {max_epochs: 1}
"""


def planned(folder: Path) -> set[str]:
    """The stages with a job to do, up to the recipes."""
    return set(
        re.findall(r"^Job \d+: (\w+)", toy(folder, "--dry-run", "--", "recipes", cores=1), re.M)
    )


def test_a_photo_less_runs_again_what_it_must(tmp_path):
    folder = copy_of_the_repository(tmp_path)
    (folder / "toy.yaml").write_text(CONFIG)
    cars = make_photos(folder / "photos" / "cars", 50) / "cars" / "urban"
    (cars / "notes.txt").write_text("no photo")
    assert planned(folder) == {"fetch", "prepare", "draw"}
    said = toy(folder, "--", "recipes", cores=1)
    count = len([path for path in (folder / "photos").rglob("*") if path.is_file()])
    assert f"cars: made from official (1 of {count} files left out) sources" in said
    assert (
        "photos/cars/cars/urban/notes.txt: left out"
        in (folder / "out/logs/fetch/cars.log").read_text()
    )
    (cars / ".hidden").touch()
    assert planned(folder) == set()
    os.utime(cars / "notes.txt", (0, 0))
    assert planned(folder) == {"fetch", "prepare", "draw"}, "until it is listed again"
    toy(folder, "--", "fetched", cores=1)
    assert planned(folder) == set(), "the same photos are on the list"
    (cars / "000.png").unlink()
    toy(folder, "--", "fetched", cores=1)
    assert planned(folder) == {"prepare", "draw"}
