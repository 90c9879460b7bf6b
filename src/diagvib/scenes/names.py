"""Names of factors and classes that any scene may have."""

from typing import Annotated

from pydantic import Field

from diagvib.foundation.validation import text_like, unique
from diagvib.scenes.scene import RESERVED

# Further columns of a list of photos.
_COLUMNS = ("path", "sha256", "split", "unit", "lot", "photo")
_TAKEN = (*RESERVED, *_COLUMNS)

FactorName = text_like(
    rf"(?!(?:{'|'.join(_TAKEN)})$)[A-Za-z_]\w*",
    f"a factor is one word, but not {', '.join(_TAKEN)}",
)
Classes = unique(Annotated[str, Field(min_length=1)], least=2)
Factors = dict[FactorName, Classes]
