"""Write the tables of the result pages: our numbers beside the paper's, and the paper's claims.

    python benchmarks/result_pages.py

Reads docs/results/*/runs.csv, docs/results/seeds and config/papers/diagvib6.csv, writes
docs/results/*/claims.csv and cue_strength.csv, docs/results/overall.csv,
docs/results/seeds/gains.csv, the intervals in metrics.csv, figures, and the text between
`<!-- table NAME -->` and `<!-- end -->` on the pages. The site adds the tables of FOLDED.
"""

import re
from collections.abc import Callable
from functools import partial

import typer
from result_file import REPOSITORY
from result_tables.claims import claim_commands, claim_list
from result_tables.committed import FACTORS, Row
from result_tables.comparison import (
    controls_table,
    gains_table,
    groups_table,
    one_cue_table,
    overall,
    overall_table,
    rules_table,
    seeded_gains,
    seeds_table,
)
from result_tables.cue_strength import (
    MAPS,
    half_way_table,
    hidden_table,
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
    real_photos_table,
    recovered_table,
)
from result_tables.intervals import interval_files
from result_tables.provenance import provenance_table
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
COMPARED = {
    "cues, small CNN": "cues_tuned",
    "cues, ImageNet features": "frozen_cues",
    "environments, small CNN": "environments_tuned",
    "environments, ImageNet features": "frozen_environments_tuned",
}
# Page -> name of a table -> what makes its heads and rows, or a text.
PAGES: dict[str, dict[str, Callable[[], list[Row] | str]]] = {
    "which_factor_wins": {
        "ranking": lambda: ranking_table("laptop"),
        "protocol": protocol_table,
        "misled": lambda: misled_table("nine_models", "fgo-20", "shape-hue"),
        "recovered": recovered_table,
    },
    "counter_examples": {"hidden": lambda: hidden_table("cue_strength")},
    "real_photos": {"methods": real_photos_table},
    "comparison": {
        "overall": lambda: overall_table("cues_tuned", "cue-1-95", "shape", 0.14),
        "one cue": one_cue_table,
        "seeds": seeds_table,
    },
    "claims": {"commands": claim_commands, "claims": claim_list},
    "provenance": {"provenance": provenance_table},
    "watermark": {"texts": text_table, "conditions": watermark_conditions},
}
NETWORKS = {"small_cnn": "small CNN", "lite0": "ImageNet features"}
# The same of long tables, by title, which only the site has, folded.
FOLDED: dict[str, dict[str, Callable[[], list[Row]]]] = {
    "which_factor_wins": {
        "Small CNN, nine studies: FAAvg, ours / ResNet-18 in the paper": lambda: accuracy_table(
            "laptop"
        ),
        "Small CNN: the paper's claims, ours / the paper": lambda: claim_table("laptop"),
        "Small CNN: neighbouring factors in ZGO": lambda: neighbour_table("laptop"),
        "Small CNN: accuracy in distribution": lambda: in_distribution_table("laptop"),
        "Small CNN: each pair of factors in ZGO, both ways round": lambda: pairs_table("laptop"),
        "Small CNN: mean asymmetry of the pairs": lambda: asymmetry_table("laptop"),
        "Small CNN with all images and epochs": full_size_table,
        "ResNet-18, a tenth of the images, ours / the paper": lambda: accuracy_table(
            "laptop_resnet18"
        ),
        "Nine models without a shortcut, ours / the paper": lambda: cells_table(
            "nine_models", ZSO_CELLS
        ),
        "Nine models where hue or shape misleads, ours / the paper": lambda: cells_table(
            "nine_models", HUE_CELLS
        ),
        "Nine models where the cue agrees": lambda: cells_table("nine_models", HUE_CELLS, "id"),
        "Nine models learning hue": lambda: learning_table("nine_models", "hue"),
        "Nine models learning position": lambda: learning_table(
            "nine_models", "position", timed=False
        ),
        "Nine models learning lightness": lambda: learning_table(
            "nine_models", "lightness", timed=False
        ),
        "ResNet-18 on lightness: images, pixels, epochs, samples": lambda: learning_table(
            "images_and_steps", "lightness", "resnet18", timed=False
        ),
        "ResNet-18 on shape, by hue, FGO-20: images and epochs": lambda: misled_table(
            "images_and_steps", "fgo-20", "shape-hue", "resnet18"
        ),
        "Validation losses by learning rate": lambda: rates_table("nine_models_tuned"),
        "Models with the better learning rate": lambda: tuned_table(
            "nine_models", "nine_models_tuned", TUNED_CELLS
        ),
        "VAE on hue, by likelihood": lambda: learning_table("vae_likelihood", "hue", "vae"),
        "VAE on lightness": lambda: learning_table(
            "vae_likelihood", "lightness", "vae", timed=False
        ),
        "Frozen features, nine studies: accuracy": frozen_table,
        "Frozen features: ImageNet weights minus random ones": lambda: frozen_gains(
            "lite0", "lite0_untrained"
        ),
        "ImageNet features minus small CNN": lambda: frozen_gains("lite0", "small_cnn"),
        "Frozen features: 128 and 224 pixels": frozen_sizes_table,
    },
    "counter_examples": {
        **{
            f"Half-way strengths, {words}: {spread} % of the usual differences": partial(
                half_way_table, "cue_strength", name, spread / 100
            )
            for name, words in NETWORKS.items()
            for spread in (100, 50, 25, 10)
        },
        "Half-way strengths, small CNN with 4,374 images": lambda: half_way_table(
            "laptop", "small_cnn"
        ),
        **{
            f"What a cue costs, {words}, by its visibility": partial(
                visibility_table, "cue_strength", name
            )
            for name, words in NETWORKS.items()
        },
    },
    "comparison": {
        **{
            f"Over all test images, {words}: {study.upper()}, {target}": partial(
                overall_table, folder, study, target
            )
            for folder, words in (
                ("cues_tuned", "small CNN"),
                ("frozen_cues", "ImageNet features"),
            )
            for study in ("cue-1-95", "whac-95")
            for target in ("shape", "texture")
        },
        **{
            f"{title}, {name}": partial(make, folder)
            for title, make in (
                ("Gains over ERM where all cues mislead", gains_table),
                ("Gains over a simple control", controls_table),
                ("By rule of selection, sample 0", rules_table),
            )
            for name, folder in COMPARED.items()
        },
        "WHAC-95 by group of images, small CNN": lambda: groups_table("cues_tuned"),
        "WHAC-95 by group of images, ImageNet features": lambda: groups_table("frozen_cues"),
        "WHAC-95, shape, default options, ImageNet features": frozen_cues_table,
        "Environments, default options, ImageNet features": frozen_methods_table,
    },
    "watermark": {"The photos": photo_table},
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


def folded(name: str) -> dict[str, str]:
    """The long tables of a page, as Markdown, by title."""
    return {title: markdown(make()) for title, make in FOLDED[name].items()}


def overall_csv() -> str:
    return overall().to_csv(index=False, float_format="%.6g")


def gains_csv() -> str:
    return seeded_gains().to_csv(index=False, float_format="%.6g")


def main() -> None:
    """Write the tables of the result pages again."""
    write_text(REPOSITORY / "docs/results/laptop/claims.csv", claims_csv())
    for folder in MAPS:
        write_text(REPOSITORY / f"docs/results/{folder}/cue_strength.csv", strength_csv(folder))
    strength_figures("cue_strength")
    write_text(REPOSITORY / "docs/results/overall.csv", overall_csv())
    write_text(REPOSITORY / "docs/results/seeds/gains.csv", gains_csv())
    for path, text in interval_files():
        write_text(path, text)
    for name in PAGES:
        write_text(REPOSITORY / f"docs/{name}.md", page(name))


if __name__ == "__main__":
    typer.run(main)
