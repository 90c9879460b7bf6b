"""Which combinations of backgrounds are hard, as in the search of Spawrious (Lynch et al., 2023, Sec. 4.2)?

    python benchmarks/combinations.py --out outputs/combinations
    snakemake --cores all --configfile outputs/combinations/config.yaml
    python benchmarks/combinations.py --rank outputs/combinations

The first command draws combinations at random, half of them one-to-one and half many-to-many, and
writes them as studies with a configuration that trains ERM on each; the last one prints them by
ERM's accuracy on the test environment, the hardest first, and writes combinations.csv. The paper does not
say how it searched; one run for each combination is our choice. Without photos, --embedded draws
stand-ins.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
import yaml

from diagvib.foundation.files import write_text
from diagvib.foundation.seeding import named_generator
from diagvib.results.tidy_tables import read_tables
from diagvib.scenes import load_scene
from diagvib.settings.layout import Layout

TARGET, CUE = "breed", "background"
_ONE_TO_ONE, _MANY_TO_MANY = "one-to-one", "many-to-many"
# Photos of each environment, as in the published studies.
_WEIGHTS = ((3072, 96), (2756, 412))


def main(
    out: Annotated[Path, typer.Option(help="Folder of the studies and the configuration.")] = Path(
        "outputs/combinations"
    ),
    number: Annotated[int, typer.Option(min=2, help="Combinations to draw.")] = 40,
    rank: Annotated[
        Path | None, typer.Option(help="Such a folder, after its runs: print the table.")
    ] = None,
    embedded: Annotated[bool, typer.Option(help="Draw stand-ins instead of photos.")] = False,
    seed: int = 0,
) -> None:
    if rank:
        table = ranked(rank)
        write_text(rank / "combinations.csv", table.to_csv(index=False, lineterminator="\n"))
        print(table.to_string(index=False))
        return
    studies = drawn_studies(number, seed)
    texts = {"title": "Combinations of backgrounds", "studies": studies}
    write_text(out / "studies.yaml", yaml.safe_dump(texts, sort_keys=False))
    write_text(out / "config.yaml", yaml.safe_dump(configuration(out, studies, embedded)))
    print(f"{number} combinations: snakemake --cores all --configfile {out}/config.yaml")


def configuration(out: Path, studies: dict, embedded: bool) -> dict:
    """Of one ERM run for each study: the published numbers of photos, or what stand-ins suffice for."""
    photos = {"counts": {"train": 20276, "val": 2534, "id": 2534, "ood": 25344}, "image_size": 224}
    drawings = {"counts": {"train": 640, "val": 80, "id": 80, "ood": 800}, "image_size": 64}
    return {
        "root": str(out),
        "sources": "embedded" if embedded else "official",
        "mirror": None if embedded else "photos",
        "studies": [*studies],
        "studies_from": [str(out / "studies.yaml")],
        "bindings": [f"{TARGET}-{CUE}"],
        "samples": 1,
        "baselines": ["erm_env" if embedded else "dogs_erm"],
        "training": {"max_epochs": 12 if embedded else 63},
        **(drawings if embedded else photos),
    }


def drawn_studies(number: int, seed: int) -> dict[str, dict]:
    """Distinct combinations, of each kind in turn."""
    generator, studies, known_rows = named_generator("combinations", seed), {}, []
    backgrounds = len(load_scene("dogs").factors[CUE])
    while len(studies) < number:
        kind = (_ONE_TO_ONE, _MANY_TO_MANY)[len(studies) % 2]
        rows = (one_to_one if kind == _ONE_TO_ONE else many_to_many)(generator, backgrounds)
        if rows not in known_rows:
            known_rows.append(rows)
            studies[f"{kind}-{len(studies) // 2:03d}"] = {
                "title": f"{kind}, {len(studies) // 2}",
                "meaning": "a random combination of backgrounds",
                "scene": "dogs",
                "metrics": "average",
                "roles": {"target": 4, "cue": backgrounds},
                "rows": rows,
            }
    return studies


def one_to_one(generator: np.random.Generator, backgrounds: int) -> list[dict]:
    """Each class has its own background, and some photos on one that all share; tested on another
    class's."""
    *subject, shared = generator.permutation(backgrounds)[:5].tolist()
    tested = subject
    while any(a == b for a, b in zip(subject, tested, strict=True)):
        tested = generator.permutation(subject).tolist()
    rows = [
        row(environment, weight, list(enumerate(cells)))
        for environment, weights in enumerate(_WEIGHTS, 1)
        for weight, cells in zip(weights, (subject, [shared] * 4), strict=True)
    ]
    return [*rows, tested_row(6336, list(enumerate(tested)))]


def many_to_many(generator: np.random.Generator, backgrounds: int) -> list[dict]:
    """Two classes share two backgrounds, one in each environment; tested on the other two's."""
    classes = generator.permutation(4).tolist()
    a, b, c, d = generator.permutation(backgrounds)[:4].tolist()
    trained = [dict(zip(classes, cells, strict=True)) for cells in ((a, b, c, d), (b, a, d, c))]
    tested = [(k, place) for k in classes for place in ((c, d) if k in classes[:2] else (a, b))]
    rows = [row(number, 1, sorted(cells.items())) for number, cells in enumerate(trained, 1)]
    return [*rows, tested_row(2, sorted(tested))]


def row(environment: int, weight: int, cells: list) -> dict:
    return {
        "splits": ["train", "val", "test"],
        "group": "id",
        "environment": f"env-{environment}",
        "weight": weight,
        "cells": [list(cell) for cell in cells],
    }


def tested_row(weight: int, cells: list) -> dict:
    return row(0, weight, cells) | {"splits": ["test"], "group": "ood", "environment": "test"}


def ranked(root: Path) -> pd.DataFrame:
    """ERM's accuracies on each combination, the hardest first."""
    metrics = read_tables(Layout(str(root)).tables)["metrics"]
    metrics = metrics[
        metrics["metric"].isin(["accuracy", "id_accuracy"]) & (metrics["study"] != "")
    ]
    table = metrics.pivot_table("mean", "study", "metric").reset_index()
    studies = yaml.safe_load((root / "studies.yaml").read_text())["studies"]
    for title, group in (("trained on", "id"), ("tested on", "ood")):
        table[title] = table["study"].map(lambda name, group=group: places(studies[name], group))
    return table.sort_values("accuracy", ignore_index=True)


def places(study: dict, group: str) -> str:
    """The backgrounds of each class in a group, such as `bulldog: desert, beach`."""
    breeds, backgrounds = (load_scene("dogs").factors[name] for name in (TARGET, CUE))
    cells = [cell for entry in study["rows"] if entry["group"] == group for cell in entry["cells"]]
    return "; ".join(
        f"{breed}: "
        + ", ".join(dict.fromkeys(backgrounds[place] for label, place in cells if label == number))
        for number, breed in enumerate(breeds)
    )


if __name__ == "__main__":
    typer.run(main)
