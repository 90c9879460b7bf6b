"""Write the tables of the result pages: our numbers beside the paper's, and the paper's claims.

    python benchmarks/result_pages.py

Reads docs/results/*/runs.csv and config/papers/diagvib6.csv, writes docs/results/*/claims.csv and
cue_strength.csv, the intervals in metrics.csv, figures, and the text between `<!-- table NAME -->`
and `<!-- end -->` on docs/results_*.md.
"""

import re
from collections.abc import Callable

import typer
from result_file import REPOSITORY
from result_tables.claims import claim_commands, claim_list
from result_tables.committed import FACTORS, Row
from result_tables.comparison import (
    controls_table,
    gains_figure,
    gains_table,
    groups_table,
    rules_table,
)
from result_tables.cue_strength import (
    MAPS,
    falls,
    half_way_table,
    strength_csv,
    strength_figures,
    visibility_table,
)
from result_tables.diagvib6 import (
    accuracy_table,
    cells_table,
    claim_table,
    claims_csv,
    full_size_table,
    in_distribution_table,
    learning_table,
    misled_table,
    neighbour_table,
    protocol_table,
    rates_table,
    tuned_table,
)
from result_tables.factor_ranks import asymmetry_table, pairs_table, ranking_table
from result_tables.frozen import (
    frozen_cues_table,
    frozen_gains,
    frozen_methods_table,
    frozen_sizes_table,
    frozen_table,
    recovered_table,
)
from result_tables.intervals import interval_files
from result_tables.watermark import photo_table, text_table, watermark_conditions

from diagvib.foundation.files import write_text

ZSO_CELLS = [("zso", target) for target in FACTORS]
HUE_CELLS = [
    (study, binding)
    for study in ("fgo-20", "zgo")
    for binding in ("hue-shape", "shape-hue", "scale-hue", "texture-hue")
]
TUNED_CELLS = [
    *(("zso", target) for target in ("lightness", "shape", "scale")),
    *(("fgo-20", binding) for binding in ("shape-hue", "scale-hue")),
]
# Page -> name of a table -> what makes its heads and rows, or a text.
PAGES: dict[str, dict[str, Callable[[], list[Row] | str]]] = {
    "results_small_cnn": {
        "accuracy": lambda: accuracy_table("laptop"),
        "claims": lambda: claim_table("laptop"),
        "neighbours": lambda: neighbour_table("laptop"),
        "in-distribution": lambda: in_distribution_table("laptop"),
        "ranking": lambda: ranking_table("laptop"),
        "pairs": lambda: pairs_table("laptop"),
        "asymmetry": lambda: asymmetry_table("laptop"),
    },
    "results_full_size": {"full size": full_size_table, "protocol": protocol_table},
    "results_nine_models": {
        "without a shortcut": lambda: cells_table("nine_models", ZSO_CELLS),
        "misled, all cells": lambda: cells_table("nine_models", HUE_CELLS),
        "in distribution, all cells": lambda: cells_table("nine_models", HUE_CELLS, "id"),
        "learning hue": lambda: learning_table("nine_models", "hue"),
        "learning position": lambda: learning_table("nine_models", "position", timed=False),
        "learning lightness": lambda: learning_table("nine_models", "lightness", timed=False),
        "misled": lambda: misled_table("nine_models", "fgo-20", "shape-hue"),
        "images, lightness": lambda: learning_table(
            "images_and_steps", "lightness", "resnet18", timed=False
        ),
        "vae, lightness": lambda: learning_table("vae_likelihood", "lightness", "vae", timed=False),
        "images, shape": lambda: misled_table(
            "images_and_steps", "fgo-20", "shape-hue", "resnet18"
        ),
        "rates": lambda: rates_table("nine_models_tuned"),
        "tuned": lambda: tuned_table("nine_models", "nine_models_tuned", TUNED_CELLS),
        "likelihood": lambda: learning_table("vae_likelihood", "hue", "vae"),
        "pairs": lambda: pairs_table("nine_models"),
    },
    "results_frozen": {
        "factors": frozen_table,
        "pretraining": lambda: frozen_gains("lite0", "lite0_untrained"),
        "end to end": lambda: frozen_gains("lite0", "small_cnn"),
        "recovered": recovered_table,
        "sizes": frozen_sizes_table,
        "methods": frozen_methods_table,
        "cues": frozen_cues_table,
    },
    "comparison": {
        "groups": lambda: groups_table("frozen_cues"),
        "gains": lambda: gains_table("frozen_cues"),
        "controls": lambda: controls_table("frozen_cues"),
        "rules": lambda: rules_table("frozen_cues"),
        "gains, environments": lambda: gains_table("frozen_environments_tuned"),
        "controls, environments": lambda: controls_table("frozen_environments_tuned"),
        "rules, environments": lambda: rules_table("frozen_environments_tuned"),
        "gains, small_cnn": lambda: gains_table("environments_tuned"),
        "controls, small_cnn": lambda: controls_table("environments_tuned"),
        "rules, small_cnn": lambda: rules_table("environments_tuned"),
        "gains, cues": lambda: gains_table("cues_tuned"),
        "controls, cues": lambda: controls_table("cues_tuned"),
        "groups, cues": lambda: groups_table("cues_tuned"),
        "rules, cues": lambda: rules_table("cues_tuned"),
    },
    "results_cue_strength": {
        "half-way": lambda: half_way_table("laptop", "small_cnn"),
        "falls": lambda: falls("laptop", "small_cnn"),
        "half-way, Lite0": lambda: half_way_table("cue_strength", "lite0"),
        "falls, Lite0": lambda: falls("cue_strength", "lite0"),
        "half-way, eight": lambda: half_way_table("cue_strength", "small_cnn"),
        "falls, eight": lambda: falls("cue_strength", "small_cnn"),
        "visibility": lambda: visibility_table("cue_strength", "small_cnn"),
        "visibility, Lite0": lambda: visibility_table("cue_strength", "lite0"),
        "half-way, Lite0, a half": lambda: half_way_table("cue_strength", "lite0", 0.5),
        "half-way, Lite0, a quarter": lambda: half_way_table("cue_strength", "lite0", 0.25),
        "half-way, Lite0, a tenth": lambda: half_way_table("cue_strength", "lite0", 0.1),
        "half-way, a half": lambda: half_way_table("cue_strength", "small_cnn", 0.5),
        "half-way, a quarter": lambda: half_way_table("cue_strength", "small_cnn", 0.25),
        "half-way, a tenth": lambda: half_way_table("cue_strength", "small_cnn", 0.1),
    },
    "claims": {"commands": claim_commands, "claims": claim_list},
    "watermark": {
        "texts": text_table,
        "photos": photo_table,
        "conditions": watermark_conditions,
    },
    "results_resnet18": {
        "accuracy": lambda: accuracy_table("laptop_resnet18"),
        "in-distribution": lambda: in_distribution_table("laptop_resnet18"),
    },
}


def markdown(rows: list[Row]) -> str:
    rows.insert(1, ["---", *["---:"] * (len(rows[0]) - 1)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(name: str) -> str:
    """A page's text with its tables made again."""
    text = (REPOSITORY / f"docs/{name}.md").read_text()
    for part, make in PAGES[name].items():
        marks = rf"(<!-- table {part} -->\n).*?(<!-- end -->)"
        made = markdown(made) if isinstance(made := make(), list) else made
        text, found = re.subn(marks, lambda m, made=made: f"{m[1]}{made}\n{m[2]}", text, flags=re.S)
        assert found == 1, (
            f"docs/{name}.md: <!-- table {part} --> ... <!-- end --> once, not {found}"
        )
    return text


def main() -> None:
    """Write the tables of the result pages again."""
    write_text(REPOSITORY / "docs/results/laptop/claims.csv", claims_csv())
    for folder in MAPS:
        write_text(REPOSITORY / f"docs/results/{folder}/cue_strength.csv", strength_csv(folder))
        strength_figures(folder)
    gains_figure("frozen_cues")
    for path, text in interval_files():
        write_text(path, text)
    for name in PAGES:
        write_text(REPOSITORY / f"docs/{name}.md", page(name))


if __name__ == "__main__":
    typer.run(main)
