"""Studies and dataset samples: what goes with what, and how often. `studies()` lists them."""

from diagvib.foundation.listing import callable_package
from diagvib.studies.study import load_studies, study_cells

__all__ = ["known", "study_cells"]


def known() -> dict[str, str]:
    """The shipped studies: name -> what goes with what, in a sentence."""
    return {name: study.meaning for name, study in load_studies().items()}


callable_package(__name__)
