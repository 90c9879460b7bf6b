"""Show that code computes the same bytes as older code, so that what the older made is kept.

    git worktree add /tmp/older v2.0
    python benchmarks/equal_code.py /tmp/older . config/toy.yaml --commit v2.0

Runs a small configuration in both checkouts, job by job. For each job with the same bytes, the
digests of its code become a line of src/diagvib/provenance/equal_code.csv, beside the job and the
sha256 of its bytes; a job with other bytes is named, and has no line. A renaming needs this only if
it reaches further than one function (src/diagvib/foundation/program.py).
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import file_sha256, read_json, text_sha256, write_text
from diagvib.provenance.code import COLUMNS, EQUAL_CODE, read_equal_code
from diagvib.workflow.records import snakemake_records

_DIGEST = re.compile(r"'([0-9a-f]{64})'")
# What a job computes; other files say when, where and by which code.
_CONTENT = ("*.parquet", "*.npy", "*.npz", "*.pt", "*.safetensors")
_TUNED = (".csv", ".yaml")


def main(
    old: Annotated[Path, typer.Argument(help="A checkout of the older code.")],
    new: Annotated[Path, typer.Argument(help="A checkout of the newer code.")],
    config: Annotated[Path, typer.Argument(help="A small configuration.")],
    commit: Annotated[str, typer.Option(help="Of the older code.")],
    target: Annotated[str, typer.Option(help="recipes, images, runs or tuned.")] = "runs",
    table: Annotated[Path, typer.Option(help="Where the lines go.")] = EQUAL_CODE,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        older, newer = (
            made(checkout.absolute(), config.absolute(), Path(folder, name), target)
            for name, checkout in (("old", old), ("new", new))
        )
    rows = {row["old"]: row for row in read_equal_code(table)}
    for job, (old_codes, old_bytes) in older.items():
        new_codes, new_bytes = newer.get(job, ([], ""))
        if old_bytes != new_bytes:
            print(f"{job}: other bytes")
        for old_code, new_code in zip(old_codes, new_codes, strict=False):
            if old_bytes == new_bytes and old_code != new_code:
                values = (old_code, new_code, job, commit, old_bytes, new_bytes)
                rows[old_code] = dict(zip(COLUMNS, values, strict=True))
    lines = [",".join(COLUMNS), *(",".join(row.values()) for row in rows.values())]
    write_text(table, "\n".join(lines) + "\n")


def made(checkout: Path, config: Path, folder: Path, target: str) -> dict[str, tuple]:
    """Run a configuration with the code of a checkout in an empty folder. Job -> the digests of its
    code, and the sha256 of what it made."""
    folder.mkdir()
    command = [sys.executable, "-m", "snakemake", target, "--cores", "1", "--configfile", config]
    place = ["--snakefile", checkout / "Snakefile", "--directory", folder]
    done = subprocess.run(
        [*command, *place, "--config", "root=root", "keep_weights=true", "device=cpu"],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
    )
    if done.returncode:
        raise DiagvibError(f"{checkout}: {one_line(done.stderr[-400:])}")
    found = {}
    for output, record in snakemake_records(folder):
        kept = read_json(record)
        codes = [match[1] for text in kept["params"] if (match := _DIGEST.fullmatch(text))]
        path = folder / output
        alone = path.suffix in (".parquet", *_TUNED)
        files = [path] if alone else sorted(contents(path.parent))
        for file in sorted(path.parent.glob("*/run.json"))[:1] + [path] * (
            kept["rule"] == "encode"
        ):
            said = read_json(file)
            codes.append((said if file.name == "run.json" else said["made_from"])["code"])
        bytes_made = [(str(file.relative_to(path.parent)), file_sha256(file)) for file in files]
        if bytes_made:  # others hold only digests of what is elsewhere
            found[f"{kept['rule']} {output}"] = codes, text_sha256(repr(bytes_made))
    return found


def contents(folder: Path) -> set[Path]:
    return {path for pattern in _CONTENT for path in folder.rglob(pattern)}


if __name__ == "__main__":
    typer.run(main)
