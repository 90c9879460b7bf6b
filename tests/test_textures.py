"""Textures: published ones are unchanged; photos of any kind become flat, always in the same way."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image
from scipy.stats import spearmanr

from conftest import refused
from diagvib.scenes.digits.embedded import embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.textures import check_distinct, read_photo, read_texture, write_texture
from diagvib.textures import prepare_texture
from synthetic_sources import assert_flat, png, surface, write_png16


def tiff(pixels: np.ndarray, **options: object) -> bytes:
    """A TIFF file, also of numbers that Pillow does not write. options: as for `tifffile.imwrite`."""
    tifffile.imwrite(stream := io.BytesIO(), pixels, **options)
    return stream.getvalue()


def test_published_textures_stay_as_they_are(mirror, tmp_path):
    for name in classes("texture"):
        published = np.asarray(Image.open(mirror / f"textures/{name}.png"))
        for texture in (published, embedded_texture(name)):
            assert (prepare_texture(texture) == texture).all()
        ours = read_texture(mirror / f"textures/{name}.png")
        write_texture(tmp_path / "t.png", ours)
        assert (ours == published).all()
        assert (read_texture(tmp_path / "t.png") == published).all()


def _coloured(grey: np.ndarray) -> np.ndarray:
    return np.stack([grey, grey // 2 + 40, 255 - grey // 4], 2)


def _turned(image: Image.Image) -> tuple[Image.Image, dict]:
    """As a camera saves it that was held upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return image.transpose(Image.Transpose.ROTATE_90), {"exif": exif}


SIDE = 300
KINDS = {
    "grey.png": lambda grey: (Image.fromarray(grey), {}),
    "colour.png": lambda grey: (Image.fromarray(_coloured(grey)), {}),
    "colour.JPG": lambda grey: (Image.fromarray(_coloured(grey)), {"quality": 95}),
    "grey.jpeg": lambda grey: (Image.fromarray(grey), {"quality": 95}),
    "16bits.png": lambda grey: (Image.fromarray(grey.astype(np.uint16) * 257), {}),
    "12of16bits.tiff": lambda grey: (Image.fromarray(grey.astype(np.uint16) * 16), {}),
    "opaque.png": lambda grey: (Image.fromarray(grey).convert("RGBA"), {}),
    "palette.png": lambda grey: (Image.fromarray(_coloured(grey)).quantize(256), {}),
    "turned.jpg": lambda grey: _turned(Image.fromarray(grey)),
}


@pytest.mark.parametrize("shape", [(SIDE, SIDE), (SIDE, 411), (389, SIDE), (256, 256)], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_the_central_square_of_a_photo_becomes_flat(tmp_path, name, shape):
    grey = surface(3, (640, 640))[: shape[0], : shape[1]]
    image, options = KINDS[name](grey)
    image.save(tmp_path / name, **options)
    texture = read_texture(tmp_path / name)
    top, left = ((side - min(shape)) // 2 for side in shape)
    square = Image.fromarray(grey[top : top + min(shape), left : left + min(shape)])
    expected = np.asarray(square.resize((256, 256), Image.Resampling.BILINEAR))
    assert spearmanr(texture.ravel(), expected.ravel()).statistic > 0.98
    # Its 256 levels are coarse where no others come between them.
    assert_flat(texture, within=0.06 if shape == (256, 256) else 0.02)
    assert (read_texture(tmp_path / name) == texture).all()


def test_a_bright_dot_leaves_a_dark_photo_its_levels():
    dark = surface(4, (400, 400)).astype(np.uint16)
    dark[200, 200] = 65_535
    assert_flat(prepare_texture(dark))


NOT_FLAT = {
    "shares": surface(7, (256, 256)),
    "no black": np.maximum(embedded_texture("wood"), 1),
    "no white": np.minimum(embedded_texture("wood"), 254),
}


@pytest.mark.parametrize("lacking", NOT_FLAT)
def test_a_grey_photo_of_the_right_size_is_equalised_if_it_is_not_flat(lacking):
    texture = prepare_texture(NOT_FLAT[lacking])
    assert (texture != NOT_FLAT[lacking]).any()
    assert_flat(texture, within=0.06)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bits_of_a_png_file_are_read_as_such(tmp_path, channels):
    """12 bits of 16: of the upper 8, few would be left."""
    shape = (300, 310, channels)
    pixels = np.random.default_rng(channels).integers(0, 4096, shape).astype(np.uint16)
    if channels in (2, 4):
        pixels[..., -1] = 65_535
    exif = Image.Exif()
    exif[0x0112] = 6
    write_png16(tmp_path / "deep.png", pixels, {b"eXIf": exif.tobytes()[6:]})
    upright = np.rot90(pixels, -1)
    photo = read_photo(tmp_path / "deep.png")
    assert photo.dtype == np.uint16
    assert (np.atleast_3d(photo) == upright[..., : 3 if channels > 2 else 1]).all()
    assert_flat(read_texture(tmp_path / "deep.png"))


def test_a_photo_is_in_memory_once_beside_its_bytes(tmp_path):
    Image.new("RGB", (1000, 1000)).save(tmp_path / "t.png")
    read_photo(tmp_path / "t.png")
    tracemalloc.start()
    try:
        photo = read_photo(tmp_path / "t.png")
        assert tracemalloc.get_traced_memory()[1] < 2.5 * photo.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_transparent_parts_of_16_bits_are_refused(tmp_path, channels):
    pixels = np.full((300, 300, channels), 65_535, np.uint16)
    pixels[9, 9] = 700
    clear = {b"tRNS": struct.pack(">H", 700) * channels} if channels in (1, 3) else {}
    write_png16(tmp_path / "clear.png", pixels, clear)
    with refused("clear.png: not readable as a photo .it has transparent parts"):
        read_photo(tmp_path / "clear.png")


def test_signed_16_bits_that_are_not_negative_are_read(tmp_path):
    pixels = surface(8).astype(np.int16) * 128
    (tmp_path / "t.tiff").write_bytes(tiff(pixels))
    assert (read_photo(tmp_path / "t.tiff") == pixels).all()


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_tiff_file_is_turned_upright_once(tmp_path, orientation, dtype):
    lying = surface(2, (400, 300)).astype(dtype)
    turned = {5: lying.T, 6: np.rot90(lying, -1), 7: np.rot90(lying, 2).T, 8: np.rot90(lying)}
    Image.fromarray(lying).save(tmp_path / "t.tif", tiffinfo={274: orientation})
    assert (read_photo(tmp_path / "t.tif") == turned[orientation]).all()


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_16_bits_are_read_in_either_order_of_bytes(tmp_path, compression):
    pixels = surface(2).astype(np.uint16) * 201
    file = tiff(pixels, byteorder=">", compression=compression)
    (tmp_path / "t.tif").write_bytes(file)
    assert (read_photo(tmp_path / "t.tif") == pixels).all()
    texture = prepare_texture(pixels)
    assert (prepare_texture(pixels.astype(">u2")) == texture).all()


def test_equal_levels_of_8_and_16_bits_are_the_same_texture():
    grey = surface(5, (500, 320))
    assert (prepare_texture(grey) == prepare_texture(grey.astype(np.uint16) * 257)).all()


def _huge() -> bytes:
    """The beginning of a PNG file of 20,000 x 10,000 pixels."""
    header = b"IHDR" + struct.pack(">2I5B", 20_000, 10_000, 8, 0, 0, 0, 0)
    sized = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + sized + struct.pack(">I", 0) + b"IDAT" + bytes(4)


def _dot() -> np.ndarray:
    dot = np.full((300, 300), 77, np.uint8)
    dot[150, 150] += 1
    return dot


def _clear_of_2_bits() -> bytes:
    """A grey PNG file of 2 bits, whose level 1 is shown as transparent."""
    rows = (bytes(1) + bytes([0b00_01_10_11]) * 75) * 300
    chunks = {
        b"IHDR": struct.pack(">2I5B", 300, 300, 2, 0, 0, 0, 0),
        b"tRNS": struct.pack(">H", 1),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    return png(chunks)


BAD = {
    "dot.png": (_dot(), "100% of it has a single grey level"),
    "clear2.png": (_clear_of_2_bits(), "not readable as a photo .it has transparent"),
    "words.png": (b"no picture", "not readable as a photo; JPEG, PNG and TIFF are, with 8 bits"),
    "half.tif": (tiff(np.zeros((300, 300), np.float16)), "not readable as a photo; JPEG"),
    "two.tif": (
        tiff(np.stack([surface(1), surface(2)]), photometric="minisblack"),
        "not readable as a photo .it has 2 pages; save one of them",
    ),
    "negative.tif": (
        tiff(surface(1).astype(np.uint16) << 8, photometric="miniswhite"),
        "not readable as a photo .it has 16 bits in which white is 0",
    ),
    "large.tif": (tiff(np.full((300, 300), 2**31, np.uint32)), ".* or 32 bits; save it with 8"),
    "small.png": (np.zeros((255, 900), np.uint8), "900 x 255 pixels; each side needs at least 256"),
    "one.png": (np.full((300, 300), 7, np.uint8), "has a single grey level"),
    "colour.png": (np.full((300, 300, 3), (9, 80, 7), np.uint8), "has a single grey level"),
    "black.png": (np.zeros((256, 256), np.uint8), "has a single grey level"),
    "clear.png": (np.zeros((300, 300, 4), np.uint8), "not readable as a photo .it has transparent"),
    "float.tiff": (np.zeros((300, 300), np.float32), "not readable as a photo .it has 32 bits"),
    "colour.tif": (
        tiff(np.zeros((300, 300, 3), np.uint16)),
        "not readable as a photo .it has 16 bits and colours or alpha; save it as PNG, or as grey",
    ),
    "signed.tif": (tiff(np.full((300, 300), -1, np.int16)), ".* .it has signed values, or"),
    "signed8.tif": (tiff(np.full((300, 300), -1, np.int8)), ".* .it has signed values, or"),
    "huge.png": (_huge(), "has more than 178 megapixels; save it smaller"),
    "broken.jpg": (b"\xff\xd8\xff\xe0 not really", "not readable as a photo"),
    "empty.png": (b"", "not readable as a photo"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_photo_that_cannot_be_used_is_named(tmp_path, name):
    content, problem = BAD[name]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        Image.fromarray(content).save(tmp_path / name)
    with refused(f"{name}: {problem}") as error:
        read_texture(tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "array", [np.zeros((300, 300)), np.zeros((300, 300, 2), np.uint8), np.zeros(300, np.uint8)]
)
def test_an_array_that_is_no_photo_is_refused(array):
    with refused("oak: .* is no photo; 8 or 16 bits"):
        prepare_texture(array, "oak")


def test_one_photo_is_not_two_textures(tmp_path):
    grey = surface(6, (400, 400))
    Image.fromarray(grey).save(tmp_path / "a.png")
    Image.fromarray(_coloured(grey)).save(tmp_path / "b.jpg", quality=60)
    textures = {name: read_texture(tmp_path / name) for name in ("a.png", "b.jpg")}
    with refused(r"b\.jpg: is the same texture as a\.png"):
        check_distinct(textures)
    check_distinct({name: embedded_texture(name) for name in classes("texture")})
    check_distinct({str(seed): prepare_texture(surface(seed)) for seed in range(9)})


def test_a_missing_photo_says_fetch(tmp_path):
    with refused("no such file; run `diagvib fetch` first"):
        read_photo(tmp_path / "t.png")


def test_embedded_textures_are_flat_and_always_the_same():
    for name in classes("texture"):
        texture = embedded_texture(name)
        assert_flat(texture)
        assert (embedded_texture(name) == texture).all()
