"""Image files and datasets. The names of a dataset's files are here, so that importing them does
not import torch."""

from diagvib.foundation.files import DIGESTS_FILE
from diagvib.studies.study import SPLITS

__all__ = ["DIGESTS_FILE", "IMAGE_FILES"]

IMAGE_FILES = tuple(f"{split}.parquet" for split in SPLITS)
