"""Count the operations of the steps of DiagViB-6's baselines, for `diagvib plan`.

python benchmarks/multiply_adds.py      # two minutes; writes src/diagvib/commands/multiply_adds.csv
"""

import typer
from torchvision.models import get_model_weights

from diagvib.commands.multiply_adds import COLUMNS, TABLE, count, settings_digest
from diagvib.commands.plan_speeds import MEASURED_SIZE
from diagvib.foundation.files import definition_path, read_yaml, write_text
from diagvib.settings.baselines import load_settings
from diagvib.settings.model_settings import published_weights

NAMES = [*read_yaml(definition_path("baselines/diagvib6.yaml"))]


def row(name: str) -> dict[str, object]:
    """A baseline's row of the table."""
    settings = load_settings(name)
    keys: dict[str, object] = {
        "baseline": name,
        "settings": settings_digest(settings),
        "image_size": MEASURED_SIZE,
    }
    counts = count(settings, MEASURED_SIZE)
    if published := published_weights(settings["model"]):
        model, weights = published
        mebibytes = get_model_weights(model)[weights].meta["_file_size"]
        keys |= {"weights": f"{model} {weights}", "bytes": round(mebibytes * 2**20)}
    return {**keys, **{step: f"{number:.0f}" for step, number in counts.items()}}


def main() -> None:
    """Write the table."""
    rows = [",".join(COLUMNS)]
    for name in NAMES:
        values = row(name)
        rows.append(",".join(str(values.get(column, "")) for column in COLUMNS))
        print(rows[-1], flush=True)
    write_text(TABLE, "\n".join(rows) + "\n")


if __name__ == "__main__":
    typer.run(main)
