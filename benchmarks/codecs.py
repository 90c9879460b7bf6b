"""How best to store photos losslessly: bytes per image, and images per second to encode and decode,
codec by codec.

Uses 224-pixel tiles of photos that scikit-image and scikit-learn ship, each scaled so that a tile
shows about half of it. The codecs alternate, round by round, each on one core; times are CPU
seconds, so that a busy machine makes little difference, and every figure is the best of the rounds.
JPEG, which is lossy, is included for comparison.

    python benchmarks/codecs.py                     # writes benchmarks/results/codecs-cpu-DATE.json
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from collections.abc import Callable
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from diagvib.bench.results import RESULTS, save_result

SIZE = 224
PHOTOS = (
    "astronaut",
    "chelsea",
    "coffee",
    "motorcycle_left",
    "retina",
    "rocket",
    "hubble_deep_field",
)


def tiles() -> np.ndarray:
    """uint8[N, SIZE, SIZE, 3], each from a different position in a photo."""
    from skimage import data
    from sklearn.datasets import load_sample_images

    folder = Path(data.__file__).parent
    found = [Image.open(next(folder.glob(f"{name}.*"))).convert("RGB") for name in PHOTOS]
    found += [Image.fromarray(image) for image in load_sample_images().images]
    cut = []
    for photo in found:
        scale = 2 * SIZE / min(photo.size)
        large = np.asarray(
            photo.resize([round(side * scale) for side in photo.size], Image.Resampling.LANCZOS)
        )
        cut += [
            large[row : row + SIZE, column : column + SIZE]
            for row in (0, SIZE)
            for column in range(0, large.shape[1] - SIZE + 1, SIZE)
        ]
    return np.stack(cut)


def _pillow(kind: str, **options) -> tuple[Callable, Callable]:
    def encode(image: np.ndarray) -> bytes:
        file = BytesIO()
        Image.fromarray(image).save(file, kind, **options)
        return file.getvalue()

    return encode, lambda data: np.asarray(Image.open(BytesIO(data)))


def _zstd(level: int) -> tuple[Callable, Callable]:
    codec = pa.Codec("zstd", compression_level=level)

    def decode(data: bytes) -> np.ndarray:
        return np.frombuffer(codec.decompress(data, SIZE * SIZE * 3), np.uint8).reshape(
            SIZE, SIZE, 3
        )

    return lambda image: codec.compress(np.ascontiguousarray(image), asbytes=True), decode


CODECS = {
    "raw, zstd 1": _zstd(1),
    "raw, zstd 3": _zstd(3),
    "raw, zstd 9": _zstd(9),
    "PNG, level 1": _pillow("PNG", compress_level=1),
    "PNG, level 6": _pillow("PNG", compress_level=6),
    "WebP lossless, method 0": _pillow("WEBP", lossless=True, quality=0, method=0),
    "WebP lossless, method 4": _pillow("WEBP", lossless=True, quality=70, method=4),
    "JPEG, quality 95 (loses)": _pillow("JPEG", quality=95),
}


def _seconds(function: Callable, things: list) -> tuple[float, list]:
    started = time.process_time()
    made = [function(thing) for thing in things]
    return time.process_time() - started, made


def measure(images: list[np.ndarray], rounds: int) -> list[dict]:
    encoding, decoding = ({name: float("inf") for name in CODECS} for _ in range(2))
    rows, encoded = [], {}
    for _ in range(rounds):
        for name, (encode, decode) in CODECS.items():
            taken, encoded[name] = _seconds(encode, images)
            encoding[name] = min(encoding[name], taken)
            taken, decoded = _seconds(decode, encoded[name])
            decoding[name] = min(decoding[name], taken)
            lossless = all(map(np.array_equal, images, decoded))
            assert lossless == ("loses" not in name), name
    for name, data in encoded.items():
        rows.append(
            {
                "what": name,
                "device": "cpu",
                "bytes_per_image": round(sum(map(len, data)) / len(data)),
                "parquet_bytes_per_image": _in_parquet(data),
                "encoded_per_second": len(data) / encoding[name],
                "decoded_per_second": len(data) / decoding[name],
            }
        )
    return rows


def _in_parquet(data: list[bytes]) -> int:
    """Bytes per image in a Parquet file with one binary column."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "images.parquet"
        pq.write_table(
            pa.table({"image": pa.array(data, pa.binary())}),
            path,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )
        return round(path.stat().st_size / len(data))


def main(rounds: Annotated[int, typer.Option(min=1)] = 5, out: Path = RESULTS) -> None:
    images = list(tiles())
    rows = measure(images, rounds)
    table = Table(
        "codec",
        "bytes an image",
        "of raw",
        "encoded/s",
        "decoded/s",
        title=f"{len(images)} photos of {SIZE} pixels, one core",
    )
    for row in rows:
        table.add_row(
            row["what"],
            f"{row['bytes_per_image']:,}",
            f"{row['bytes_per_image'] / images[0].nbytes:.3f}",
            f"{row['encoded_per_second']:,.0f}",
            f"{row['decoded_per_second']:,.0f}",
        )
    Console().print(table)
    save_result("codecs", "cpu", rows, out, images=len(images), size=SIZE, rounds=rounds)


if __name__ == "__main__":
    typer.run(main)
