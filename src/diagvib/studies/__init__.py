"""Studies and dataset samples: which factors are correlated, and how strongly. `studies()` lists
the studies."""

from diagvib.foundation.listing import callable_package
from diagvib.studies.study import load_studies, study_cells

__all__ = ["known", "study_cells"]


def known() -> dict[str, str]:
    """The shipped studies: name -> its design in one sentence."""
    return {name: study.meaning for name, study in load_studies().items()}


callable_package(__name__)
