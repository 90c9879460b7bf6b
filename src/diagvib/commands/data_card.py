"""The data card of exported datasets: README.md in the form that the Hugging Face Hub reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from diagvib import __version__
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_text
from diagvib.results.reader_tables import markdown_text
from diagvib.scenes.scene import Scene
from diagvib.settings.keys import Configuration

CARD = "README.md"
_MARK = "Made with diagvib "  # in every card
_TEMPLATE = Path(__file__).parent / "data_card.md.j2"


@dataclass(frozen=True)
class Exported:
    """One dataset of an export. name: for `load_dataset`. images: how many each split has."""

    study: str
    binding: str
    sample: int
    images: dict[str, int]

    @property
    def name(self) -> str:
        return f"{self.study}-{self.binding}-{self.sample}"

    @property
    def folder(self) -> str:
        return f"{self.study}/{self.binding}/{self.sample}"


def check_card(out: Path) -> None:
    """DiagvibError if the folder has a README.md that is not a data card: it would be lost."""
    path = out / CARD
    if path.is_file() and _MARK not in path.read_text(encoding="utf-8", errors="replace"):
        raise DiagvibError(
            f"{path}: is not the data card of an export, and would be overwritten; name another folder"
        )


def write_card(
    out: Path, config: Configuration, scene: Scene, exported: Sequence[Exported]
) -> dict[str, str]:
    """Write `out`/README.md. exported: every dataset that it describes. Returns the text of each of
    the template's blocks, which are named as in Croissant's vocabulary for responsible AI."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["text"] = markdown_text
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    values = {
        "exported": exported,
        "studies": {name: config.study(name) for name in config.studies},
        "scene": scene,
        "licences": scene.licences(config.sources),
        # The official sources of a scene with a state are photos in a folder of the user's.
        "photos": config.sources == "official" and scene.replicates == "seeds",
        "config": config,
        "version": __version__,
        "images": sum(sum(exported_dataset.images.values()) for exported_dataset in exported),
    }
    write_text(out / CARD, template.render(values))
    blocks, context = template.blocks.items(), template.new_context(values)
    return {name: " ".join("".join(block(context)).split()) for name, block in blocks}
