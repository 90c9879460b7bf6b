"""Studies and dataset samples: what goes with what, and how often."""

from diagvib.studies.study import study_cells

__all__ = ["study_cells"]
