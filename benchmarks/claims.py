"""Make the claims of README and docs/results again, and compare: exit code 0 if all hold, else 1.

python benchmarks/claims.py               # those of at most 15 minutes
python benchmarks/claims.py --minutes 60
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
import yaml

REPOSITORY = Path(__file__).parent.parent


def read_claims() -> list[dict]:
    """Commands, each with its claims, as in claims.yaml."""
    return yaml.safe_load((REPOSITORY / "benchmarks/claims.yaml").read_text())


def found_value(metrics: pd.DataFrame, of: dict) -> float:
    """The mean of the one row of the table `metrics` that a claim is about; NaN if there is none."""
    rows = metrics[(metrics[[*of]] == pd.Series(of)).all(axis=1)]
    return float(rows["mean"].iloc[0]) if len(rows) == 1 else float("nan")


def main(
    minutes: Annotated[int, typer.Option(help="Leave out commands that take longer.")] = 15,
) -> None:
    broken = 0
    for made in read_claims():
        if made["minutes"] > minutes:
            print(f"left out, {made['minutes']} minutes: {made['command']}")
            continue
        program, *arguments = made["command"].split()
        run = [str(Path(sys.executable).parent / program), *arguments]
        subprocess.run(run, cwd=REPOSITORY, check=True)
        metrics = pd.read_csv(REPOSITORY / made["root"] / "results/tables/metrics.csv")
        for claim in made["claims"]:
            found = found_value(metrics, claim["of"])
            holds = abs(found - claim["value"]) <= claim["within"]
            broken += not holds
            print(f"{'holds' if holds else 'BROKEN'}: {claim['text']} (found {100 * found:.1f})")
    raise typer.Exit(code=min(broken, 1))


if __name__ == "__main__":
    typer.run(main)
