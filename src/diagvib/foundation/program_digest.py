"""The digest of a program's text; edits to comments and docstrings do not change it."""

from pathlib import Path

from diagvib.foundation.files import file_sha256
from diagvib.foundation.source import read_source


def program_digest(path: Path) -> str:
    """sha256, as hex, of a code file or of a file that code reads.

    In Python files, comments, docstrings and blank lines do not count, so that rewording them makes
    no result out of date. In other files, and in invalid Python, every byte counts.
    """
    return read_source(path).program if path.suffix == ".py" else file_sha256(path)
