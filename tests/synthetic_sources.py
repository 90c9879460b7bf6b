"""Tiny source files shaped like the published ones."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import yaml
from PIL import Image
from scipy.ndimage import gaussian_filter

from diagvib.foundation.files import file_sha256
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.prepare import DigitCatalogue


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">{1 + array.ndim}i", 0x800 + array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for prefix in ("train", "t10k"):
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", labels)


def write_png16(path: Path, pixels: np.ndarray, chunks: dict[bytes, bytes] | None = None) -> None:
    """pixels: uint16[H, W, channels], 1 to 4 for grey, grey and alpha, colour, colour and alpha."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">2I5B", width, height, 16, (0, 4, 2, 6)[channels - 1], 0, 0, 0)
    path.write_bytes(
        png({b"IHDR": header, **(chunks or {}), b"IDAT": zlib.compress(rows), b"IEND": b""})
    )


def png(chunks: dict[bytes, bytes]) -> bytes:
    """A PNG file of these chunks."""
    parts = [
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks.items()
    ]
    return b"".join([b"\x89PNG\r\n\x1a\n", *parts])


def write_sources(folder: Path) -> Path:
    """A tiny `data/raw`: 40 drawn strokes for training and again for test, and textures of noise."""
    g = np.random.default_rng(5)
    images = np.zeros((40, 28, 28), np.uint8)
    images[:, 6:22, 10:18] = g.integers(120, 256, (40, 16, 8))
    write_mnist(folder / "mnist", images, np.arange(40) % 10)
    (folder / "textures").mkdir()
    for name in classes("texture"):
        noise = g.permutation(np.arange(2**16, dtype=np.uint16) % 256).reshape(256, 256)
        Image.fromarray(noise.astype(np.uint8)).save(folder / f"textures/{name}.png")
    return folder


def write_definitions(path: Path, raw: Path) -> Path:
    """A list of sources for which `raw` has the right files."""
    entries = [
        {
            "path": str(file.relative_to(raw)),
            "urls": ["http://127.0.0.1:9/closed"],
            "licence": "CC0-1.0",
            "sha256": file_sha256(file),
            "citation": "C",
        }
        for file in sorted(raw.rglob("*.*"))
    ]
    path.write_text(yaml.safe_dump({"files": entries}))
    return path


def digit_catalogue() -> DigitCatalogue:
    """700 digits without pixels, in three splits."""
    splits = np.repeat(["train", "val", "test"], [400, 100, 200])
    return DigitCatalogue("synthetic", False, "0", np.tile(np.arange(10), 70), splits)


def assert_flat(texture: np.ndarray, within: float = 0.02) -> None:
    """The texture is as the renderer expects it, with a flat histogram from 0 to 255. within: of
    equal shares of 8 bins."""
    assert texture.shape == (256, 256) and texture.dtype == np.uint8
    assert (texture.min(), texture.max()) == (0, 255)
    shares = np.histogram(texture, 8, (0, 256))[0] / texture.size
    assert np.abs(shares - 1 / 8).max() < within


def surface(seed: int, shape: tuple[int, int] = (300, 320)) -> np.ndarray:
    """A photo of a surface, uint8[H, W]: smooth noise, dark with few bright spots."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    smooth = gaussian_filter(noise, 3)
    return (40 + 30 * np.exp(smooth / smooth.std() / 2)).clip(0, 255).astype(np.uint8)
