# What type checkers see of the names that __init__.py imports when they are used.
from diagvib.foundation.version import __version__ as __version__
from diagvib.library import StudyDataset as StudyDataset
from diagvib.library import load as load
from diagvib.library import probe as probe
from diagvib.library import score as score
from diagvib.methods import known as methods
from diagvib.models import known as models
from diagvib.studies import known as studies

__all__ = ["StudyDataset", "__version__", "load", "methods", "models", "probe", "score", "studies"]
