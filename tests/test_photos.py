"""Photos from a user's folder: what is listed, what is left out and why, how they are decoded."""

import os
import struct
import time
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageOps

from conftest import refused
from diagvib.foundation.files import file_sha256
from diagvib.scenes.photos.alike import look_alikes
from diagvib.scenes.photos.decoding import PixelBudget, check_photo, in_threads, open_photo, square
from diagvib.scenes.photos.listing import (
    files_in,
    read_listed,
    read_listing,
    state,
    usable,
    write_listing,
)

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


def colour_png(path, side: int, bits: int, rows: bytes) -> None:
    """A colour PNG of this side, with the given bits per channel, whatever `rows` holds."""
    import struct
    import zlib

    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", side, side, bits, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_what_cannot_be_used_is_left_out_with_a_line(folder, capsys):
    urban = folder / "cars" / "urban"
    (folder / "cars" / ".DS_Store").write_bytes(b"x")
    good = {path: file_sha256(folder / path) for path in files_in(folder)}
    assert [*good] == ["cars/country/c.webp", "cars/urban/a.PNG", "cars/urban/b.jpg"]
    entire = (urban / "b.jpg").read_bytes()
    (urban / "cut.jpg").write_bytes(entire[: len(entire) // 2])
    (urban / "notes.txt").write_text("notes")
    (urban / "gone.jpg").symlink_to(urban / "absent.jpg")
    colour_png(urban / "huge.png", 20_000, 8, b"\0")
    for name, value in ("dim.png", b"\x0f\xff"), ("z.png", b"\x10\0"):
        colour_png(urban / name, 20, 16, (b"\0" + 60 * value) * 20)
    Image.new("RGB", (900, 3)).save(urban / "thin.png")
    Image.fromarray(np.eye(20, dtype=np.float32)).save(urban / "deep.jpg", "tiff")
    Image.new("RGB", (20, 20)).save(urban / "page.jpg", "eps")
    Image.fromarray(np.full((20, 20), 4095, np.uint16)).save(urban / "dark.png")
    Path(os.fsdecode(os.fsencode(urban) + b"/\xe9.jpg")).write_bytes(entire)
    result = usable(folder, files_in(folder))
    good["cars/urban/z.png"] = file_sha256(urban / "z.png")
    assert {path: sha256 for path, (sha256, _) in result.items()} == good
    lines = capsys.readouterr().err.splitlines()
    expected = {
        "cut.jpg": "damaged",
        "notes.txt": "name",
        "gone.jpg": "No such file",
        "huge.png": "million pixels",
        "thin.png": "900 x 3 pixels; each side needs at least 16",
        "deep.jpg": "use JPEG, PNG or WebP",
        "page.jpg": "use JPEG, PNG or WebP",
        "dark.png": "16 bits per channel, but no value above 4,095 of 65,535",
        "dim.png": "16 bits per channel, but no value above 3,855 of 65,535",
        "\\udce9.jpg": "its name cannot be printed",
    }
    assert len(lines) == len(expected)
    for name, reason in expected.items():
        (line,) = (line for line in lines if name in line)
        assert line.startswith(str(folder)) and "left out" in line and reason in line


def test_a_name_in_another_unicode_form_is_recognised(folder, capsys):
    """macOS and tables often write accents in different forms, which look the same."""
    (folder / "cars/urban/b.jpg").rename(folder / normalize("NFD", "käfer.jpg"))
    assert not usable(folder, [normalize("NFC", "käfer.jpg"), "none.jpg"])
    single, nothing = capsys.readouterr().err.splitlines()
    assert "its accents in another Unicode form" in single and nothing.endswith("No such file")


def test_a_folder_that_links_to_itself_is_named(folder):
    (folder / "cars" / "again").symlink_to(folder)
    for use in (state, files_in):
        with refused("again: Too many levels of symbolic links"):
            use(folder)
    with refused("absent: no such folder; it should hold the photos"):
        files_in(folder / "absent")


def test_the_list_is_read_back_and_stays_where_nothing_changed(folder, tmp_path, capsys):
    raw, photos = tmp_path / "raw", pa.table({"path": ["a", "b"], "sha256": ["1", "2"]})
    write_listing(raw, photos, folder, 2)
    assert read_listing(raw) == (photos, folder, "official") and capsys.readouterr().err == ""
    before = (raw / "files.parquet").stat()
    write_listing(raw, photos, tmp_path / "moved", 5)
    assert read_listing(raw) == (photos, tmp_path / "moved", "official (3 of 5 files left out)")
    assert capsys.readouterr().err.endswith("moved: 3 of 5 files left out\n")
    after = (raw / "files.parquet").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    (raw / "folder.json").unlink()
    with refused("folder.json: no such file; run `diagvib fetch` first"):
        read_listing(raw)


def test_the_state_follows_every_change_of_the_folder(folder):
    left, photo = state(folder), folder / "cars" / "urban" / "b.jpg"
    (folder / "cars" / ".hidden").touch()
    assert state(folder) == left
    calls, times = {left}, photo.stat()
    os.utime(photo, ns=(times.st_atime_ns, times.st_mtime_ns + 10))
    calls.add(state(folder))
    save(folder / "cars" / "urban" / "new.jpg")
    calls.add(state(folder))
    photo.rename(photo.with_name("z.jpg"))
    calls.add(state(folder))
    assert len(calls) == 4 and state(folder / "absent") == state(None) == ""


def test_a_listed_photo_must_be_the_one_that_was_listed(folder):
    path = folder / "cars" / "urban" / "b.jpg"
    expected = file_sha256(path)
    assert read_listed(path, expected) == path.read_bytes()
    save(path, PIXELS[::-1])
    with refused(r"b.jpg: changed since .* `diagvib fetch` again"):
        read_listed(path, expected)
    path.unlink()
    with refused("b.jpg: No such file"):
        read_listed(path, expected)


def test_a_photo_becomes_a_square():
    wide = np.arange(2 * 6 * 3, dtype=np.uint8).reshape(2, 6, 3)
    assert np.array_equal(square(wide, 2), wide[:, 2:4])
    assert np.array_equal(
        square(wide, 4, crop=False),
        np.asarray(Image.fromarray(wide).resize((4, 4), Image.Resampling.BILINEAR)),
    )


GREY = np.asarray(Image.fromarray(PIXELS).convert("L"))
EXIF = Image.Exif()
EXIF[0x0112] = 6  # the camera was turned: rows of the photo are columns of the file


@pytest.mark.parametrize(
    ("name", "image", "expected", "tolerance"),
    [
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
def test_every_kind_of_image_becomes_rgb(tmp_path, name, image, expected, tolerance):
    path = save(
        tmp_path / name,
        image,
        **({"quality": 98, "subsampling": 0} if name.endswith("jpg") else {}),
    )
    photo = open_photo(path)
    assert photo.dtype == np.uint8 and photo.shape == expected.shape
    assert np.abs(photo.astype(int) - expected).mean() <= tolerance / 8
    assert open_photo(path, "RGBA").shape == (*expected.shape[:2], 4)
    assert open_photo(path, "L").shape == expected.shape[:2]


def test_photos_stand_upright(tmp_path):
    turned = np.rot90(PIXELS)  # what the camera wrote
    assert np.array_equal(
        open_photo(save(tmp_path / "a.png", np.ascontiguousarray(turned), exif=EXIF)), PIXELS
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_that_of_pillow(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.png", PIXELS, exif=exif)
    with Image.open(path) as opened:
        assert np.array_equal(open_photo(path), np.asarray(ImageOps.exif_transpose(opened)))


def test_odd_exif_data_do_not_damage_a_photo(tmp_path):
    """An ImageWidth that is a ratio, which Pillow cannot write again."""
    entries = struct.pack("<HHII", 0x0100, 5, 1, 38) + struct.pack("<HHII", 0x0112, 3, 1, 6)
    data = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + struct.pack("<III", 0, 72, 1)
    path = save(tmp_path / "a.jpg", PIXELS, exif=data)
    check_photo(path, path.read_bytes())
    assert open_photo(path).shape == np.rot90(PIXELS).shape


def test_transparency_of_a_palette_is_alpha(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    path = save(tmp_path / "a.png", image, transparency=1)
    assert open_photo(path, "RGBA")[0].tolist() == [[10, 20, 30, 255], [40, 50, 60, 0]]


@pytest.mark.parametrize(
    ("mode", "alpha", "transparent"),
    [("RGB", None, False), ("RGBA", 255, False), ("LA", 9, True), ("P", 0, True)],
)
def test_hidden_colours_are_noticed(tmp_path, mode, alpha, transparent):
    image = Image.fromarray(PIXELS).resize((20, 20)).convert(mode)
    options = {"transparency": 0} if mode == "P" else {}
    if mode.endswith("A"):
        image.putalpha(alpha)
    path = save(tmp_path / "a.png", image, **options)
    assert check_photo(path, path.read_bytes()).transparent == transparent


def test_photos_of_one_colour_are_not_alike_and_pairs_keep_their_numbers():
    """Two flat photos, one of noise and the same one lighter."""
    noise = np.random.default_rng(0).integers(0, 200, (16, 18))
    small = np.stack([np.full((16, 18), 9), np.full((16, 18), 9), noise, noise + 40])
    assert look_alikes(small.astype(np.uint8)).tolist() == [[2, 3]]


def test_more_pixels_than_are_read_are_refused_before_decoding(tmp_path):
    """Fewer than those at which Pillow refuses, too."""
    colour_png(tmp_path / "a.png", 12_000, 8, b"\0")
    with refused("at most 100 million pixels are read"):
        check_photo(tmp_path / "a.png", (tmp_path / "a.png").read_bytes())


def test_threads_lose_nothing_of_many_things():
    assert list(in_threads(str, range(1100))) == [*map(str, range(1100))]


def test_large_photos_are_decoded_few_at_a_time():
    pixels, decoded = PixelBudget(5), []

    def decode(size: int) -> None:
        with pixels.reserved(size):
            decoded.append(pixels.free)
            time.sleep(0.002)

    list(in_threads(decode, [4, 1, 2, 5, 3, 3] * 5))
    assert len(decoded) == 30 and min(decoded) == 0 and pixels.free == 5
