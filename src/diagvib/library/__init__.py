"""diagvib as a library: a dataset of any study in one line, with its metrics.

Without a workflow's `root`, images are drawn and rendered on the fly. The same names and numbers
give the same images as the workflow's files, byte for byte.
"""

from diagvib.library.linear_probe import probe
from diagvib.library.loading import load
from diagvib.library.scoring import score
from diagvib.library.study_dataset import StudyDataset

__all__ = ["StudyDataset", "load", "probe", "score"]
