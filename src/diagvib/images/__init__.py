"""Image files and data sets. The names of a data set's files stand here, free of torch."""

from diagvib.studies.study import SPLITS

IMAGE_FILES = tuple(f"{split}.parquet" for split in SPLITS)
DIGESTS_FILE = "sha256.json"  # of each of a data set's image files, written after them
