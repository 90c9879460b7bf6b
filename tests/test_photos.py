"""Photos from a user's folder: what is listed, what is left out and why, how they are decoded."""

import os

import numpy as np
import pytest
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.scenes.photos.decoding import MOST_PIXELS, open_photo
from diagvib.scenes.photos.listing import (
    list_photos,
    listed_sources,
    read_listed,
    read_listing,
    state,
    write_listing,
)

PLACES = ("cars/urban", "cars/country")
RNG = np.random.default_rng(0)
PIXELS = np.kron(RNG.integers(0, 256, (4, 6, 3)), np.ones((8, 8, 1))).astype(
    np.uint8
)  # 32 x 48, survives JPEG


def save(path, image: np.ndarray | Image.Image = PIXELS, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """Two good photos in the first place, one in the second."""
    for name in ("urban/b.jpg", "urban/a.PNG", "country/c.webp"):
        save(tmp_path / "photos" / "cars" / name, PIXELS + np.uint8(len(name)), quality=95)
    return tmp_path / "photos"


def huge_png(path) -> None:
    """A file of a few bytes that claims to have 20,000 x 20,000 pixels."""
    import struct
    import zlib

    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0")),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_photos_are_listed_with_their_hashes(folder, capsys):
    (folder / "cars" / ".DS_Store").write_bytes(b"x")
    table = list_photos(folder, PLACES)
    assert table["path"].to_pylist() == [
        "cars/country/c.webp",
        "cars/urban/a.PNG",
        "cars/urban/b.jpg",
    ]
    assert table["place"].to_pylist() == ["cars/country", "cars/urban", "cars/urban"]
    for row in table.to_pylist():
        assert row["sha256"] == file_sha256(folder / row["path"])
        assert row["bytes"] == (folder / row["path"]).stat().st_size
    assert capsys.readouterr().err == ""


def test_what_cannot_be_used_is_left_out_with_a_line(folder, capsys):
    urban = folder / "cars" / "urban"
    whole = (urban / "b.jpg").read_bytes()
    (urban / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (urban / "empty.png").touch()
    (urban / "text.jpg").write_text("no photo")
    (urban / "notes.txt").write_text("notes")
    (urban / "gone.jpg").symlink_to(urban / "absent.jpg")
    huge_png(urban / "huge.png")
    save(folder / "cars" / "suburban" / "d.jpg")
    assert len(list_photos(folder, PLACES)) == 3
    lines = capsys.readouterr().err.splitlines()
    wanted = {
        "cut.jpg": "damaged",
        "empty.png": "empty",
        "text.jpg": "not an image",
        "notes.txt": "name",
        "gone.jpg": "No such file",
        "huge.png": "million pixels",
        "suburban/d.jpg": "is in none of",
    }
    assert len(lines) == len(wanted)
    for name, why in wanted.items():
        (line,) = (line for line in lines if name in line)
        assert line.startswith(str(folder)) and "left out" in line and why in line


def test_a_folder_that_links_to_itself_is_named(folder):
    (folder / "cars" / "again").symlink_to(folder)
    for use in (state, lambda where: list_photos(where, PLACES)):
        with pytest.raises(DiagvibError, match="again: Too many levels of symbolic links; remove"):
            use(folder)
    (folder / "cars" / "again").unlink()
    (folder / "cars" / "again").symlink_to("again")
    with pytest.raises(DiagvibError, match="cars/again: Too many levels of symbolic links; remove"):
        state(folder)


def test_the_number_of_files_left_out_is_said_and_kept(folder, tmp_path, capsys):
    raw = tmp_path / "raw"
    write_listing(raw, list_photos(folder, PLACES), folder)
    assert listed_sources(raw) == "official" and capsys.readouterr().err == ""
    for name in ("urban/text.jpg", "notes.txt"):
        (folder / "cars" / name).write_text("no photo")
    listing = (raw / "files.parquet").read_bytes()
    write_listing(raw, list_photos(folder, PLACES), folder)
    assert (raw / "files.parquet").read_bytes() == listing
    assert listed_sources(raw) == "official (2 of 5 files left out)"
    assert capsys.readouterr().err.endswith(f"{folder}: 2 of 5 files left out\n")


def test_a_place_without_photos_is_an_error(folder):
    (folder / "cars" / "country" / "c.webp").write_bytes(b"")
    with pytest.raises(DiagvibError, match="cars/country: no photo"):
        list_photos(folder, PLACES)
    with pytest.raises(
        DiagvibError, match="absent: no such folder; it should hold the photos, in cars/urban"
    ):
        list_photos(folder / "absent", PLACES)


def test_the_state_follows_every_change_of_the_folder(folder):
    (folder / "cars" / ".hidden").touch()
    first = state(folder)
    (folder / "cars" / ".hidden").write_bytes(b"x")
    assert state(folder) == first
    photo = folder / "cars" / "urban" / "b.jpg"
    seen, times = {first}, photo.stat()
    os.utime(photo, ns=(times.st_atime_ns, times.st_mtime_ns + 10))
    seen.add(state(folder))
    os.utime(photo, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert state(folder) == first
    save(folder / "cars" / "urban" / "new.jpg")
    seen.add(state(folder))
    (folder / "cars" / "urban" / "new.jpg").unlink()
    photo.rename(photo.with_name("z.jpg"))
    seen |= {state(folder), state(folder / "absent")}
    assert len(seen) == 5 and state(folder / "absent") == state(None)


def test_the_list_is_read_back_and_stays_where_nothing_changed(folder, tmp_path):
    raw, photos = tmp_path / "raw", list_photos(folder, PLACES)
    write_listing(raw, photos, folder)
    assert read_listing(raw) == (photos, folder)
    before = (raw / "files.parquet").stat()
    moved = folder.rename(tmp_path / "moved")
    write_listing(raw, list_photos(moved, PLACES), moved)
    assert read_listing(raw) == (photos, moved)
    after = (raw / "files.parquet").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    (raw / "folder.json").unlink()
    with pytest.raises(DiagvibError, match="folder.json: no such file; run `diagvib fetch` first"):
        read_listing(raw)


def test_a_listed_photo_must_be_the_one_that_was_listed(folder):
    path = folder / "cars" / "urban" / "b.jpg"
    wanted = file_sha256(path)
    assert read_listed(path, wanted) == path.read_bytes()
    save(path, PIXELS[::-1])
    with pytest.raises(DiagvibError, match=r"b.jpg: changed since .* `diagvib fetch` again"):
        read_listed(path, wanted)
    path.unlink()
    with pytest.raises(DiagvibError, match="b.jpg: No such file"):
        read_listed(path, wanted)


GREY = np.asarray(Image.fromarray(PIXELS).convert("L"))
EXIF = Image.Exif()
EXIF[0x0112] = 6  # the camera was turned: rows of the photo are columns of the file


@pytest.mark.parametrize(
    ("name", "image", "wanted", "tolerance"),
    [
        ("plain.png", PIXELS, PIXELS, 0),
        ("lossy.jpg", PIXELS, PIXELS, 40),
        ("grey.png", GREY, np.stack([GREY] * 3, 2), 0),
        ("grey.jpg", GREY, np.stack([GREY] * 3, 2), 40),
        ("deep.png", Image.fromarray(GREY.astype(np.uint16) * 257), np.stack([GREY] * 3, 2), 0),
        ("cmyk.jpg", Image.fromarray(PIXELS).convert("CMYK"), PIXELS, 60),
        ("palette.png", Image.fromarray(PIXELS).quantize(256), PIXELS, 8),
        ("alpha.png", np.dstack([PIXELS, np.full(PIXELS.shape[:2], 7, np.uint8)]), PIXELS, 0),
        (
            "bits.png",
            Image.fromarray(GREY > 128),
            np.stack([(GREY > 128) * np.uint8(255)] * 3, 2),
            0,
        ),
    ],
)
def test_every_kind_of_image_becomes_rgb(tmp_path, name, image, wanted, tolerance):
    path = save(
        tmp_path / name,
        image,
        **({"quality": 98, "subsampling": 0} if name.endswith("jpg") else {}),
    )
    photo = open_photo(path)
    assert photo.dtype == np.uint8 and photo.shape == wanted.shape
    assert np.abs(photo.astype(int) - wanted).mean() <= tolerance / 8
    assert open_photo(path, "RGBA").shape == (*wanted.shape[:2], 4)
    assert open_photo(path, "L").shape == wanted.shape[:2]


def test_photos_stand_upright(tmp_path):
    turned = np.rot90(PIXELS)  # what the camera wrote
    assert np.array_equal(
        open_photo(save(tmp_path / "a.png", np.ascontiguousarray(turned), exif=EXIF)), PIXELS
    )


def test_transparency_of_a_palette_is_alpha(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    path = save(tmp_path / "a.png", image, transparency=1)
    assert open_photo(path, "RGBA")[0].tolist() == [[10, 20, 30, 255], [40, 50, 60, 0]]


def test_an_image_beyond_all_memory_is_not_decoded(tmp_path):
    huge_png(tmp_path / "huge.png")
    with pytest.raises(DiagvibError, match=f"huge.png: .*{MOST_PIXELS // 10**6} million"):
        open_photo(tmp_path / "huge.png")
    with pytest.raises(DiagvibError, match="absent.png: no such file"):
        open_photo(tmp_path / "absent.png")
