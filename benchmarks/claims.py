"""Hold the numbers on the pages to the tables they come from, and make those of a few minutes again.

python benchmarks/claims.py               # runs the commands of at most 15 minutes
python benchmarks/claims.py --minutes 0   # runs none: pages and committed tables are compared

Exit code 0 if every claim of claims.yaml holds, else 1.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
import yaml

REPOSITORY = Path(__file__).parent.parent
# What a command may say of all its claims.
SHARED = ("where", "within", "scale", "table")


def read_claims() -> list[dict]:
    """The commands of claims.yaml, each with the list of its claims."""
    commands = yaml.safe_load((REPOSITORY / "benchmarks/claims.yaml").read_text())
    for made in commands:
        shared = {key: made[key] for key in SHARED if key in made}
        made["claims"] = [
            {"page": page, **shared, **claim}
            for page, claims in made["claims"].items()
            for claim in claims
        ]
    return commands


def sentence(claim: dict) -> str:
    """A claim as it is on its page."""
    return re.sub("[{}]", "", claim["says"])


def is_on_page(claim: dict) -> bool:
    text = " ".join((REPOSITORY / claim["page"]).read_text().split())
    # A number at either end is the whole number.
    return bool(re.search(rf"(?<![\d.,+-]){re.escape(sentence(claim))}(?![.,]?\d)", text))


def stated(claim: dict) -> tuple[float, float]:
    """A claim's number, and by how much rounding may have changed it."""
    (number,) = re.findall(r"{(-?[\d.,]+)}", claim["says"])
    digits = number.replace(",", "")
    last = -len(digits.partition(".")[2])
    if digits != number:  # 170,000 is rounded to ten thousands
        last = len(digits) - len(digits.rstrip("0"))
    return float(digits), 0.5 * 10**last


def found(tables: Path, claim: dict) -> float:
    """A claim's number in a folder of tables, or in one table; NaN if there are no such rows."""
    path = tables if tables.suffix else tables / f"{claim.get('table', 'metrics')}.csv"
    table = (
        pd.DataFrame(json.loads(path.read_text())["rows"])
        if path.suffix == ".json"
        else pd.read_csv(path)
    )

    def mean(rows: dict) -> float:
        rows = {**claim.get("where", {}), **rows}
        column = rows.pop("column", claim.get("column", "mean"))
        own = table[(table[[*rows]] == pd.Series(rows)).all(axis=1)]
        return own[column].mean()

    difference = sum(
        sign * mean(claim[key]) for key, sign in (("of", 1), ("minus", -1)) if key in claim
    )
    return claim.get("scale", 100) * difference


def broken(made: dict, tables: str, new: bool) -> list[str]:
    """The claims of a command that its tables contradict: beyond rounding or, in a new run, beyond
    the tolerance."""
    lines = []
    for claim in made["claims"]:
        number, rounding = stated(claim)
        its = found(REPOSITORY / tables, claim)
        if not abs(its - number) <= (claim["within"] if new else rounding + 1e-9):
            lines.append(f"{claim['page']}: {sentence(claim)} ({number:g}; {tables}: {its:.4g})")
    return lines


def main(
    minutes: Annotated[int, typer.Option(help="Do not run commands that take longer.")] = 15,
) -> None:
    lines = []
    for made in read_claims():
        lines += [
            f"{claim['page']} does not say: {sentence(claim)}"
            for claim in made["claims"]
            if not is_on_page(claim)
        ]
        if "committed" in made:
            lines += broken(made, made["committed"], new=False)
        if isinstance(made["minutes"], int) and made["minutes"] <= minutes:
            program, *arguments = shlex.split(made["command"])
            run = [str(Path(sys.executable).parent / program), *arguments]
            subprocess.run(run, cwd=REPOSITORY, check=True)
            lines += broken(made, made["makes"], new=True)
            print(f"run again: {made['command']}")
        else:
            print(f"not run, minutes {made['minutes']}: {made['command']}")
    n = sum(len(made["claims"]) for made in read_claims())
    print(*(f"BROKEN: {line}" for line in lines), f"{n} claims, {len(lines)} broken", sep="\n")
    raise typer.Exit(code=min(len(lines), 1))


if __name__ == "__main__":
    typer.run(main)
