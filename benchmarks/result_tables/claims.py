"""The claims of the pages, and what makes their numbers again."""

import os
import re
from pathlib import Path

from claims import read_claims

from result_tables.committed import Row


def claim_commands() -> list[Row]:
    """What each command of claims.yaml takes."""
    rows = [["", "command", "minutes", "memory, GiB", "disk, MB", "committed tables"]]
    for number, made in enumerate(read_claims(), 1):
        costs = [str(made[key]) for key in ("minutes", "gib", "mb")]
        committed = f"`{made['committed']}`" if "committed" in made else ""
        rows.append([str(number), f"`{made['command']}`", *costs, committed])
    return rows


def claim_list() -> list[Row]:
    """Every claim of claims.yaml, its number bold, and how far a new run may be off."""
    rows = [["claim", "on", "command", "a new run, ±"]]
    for number, made in enumerate(read_claims(), 1):
        for claim in made["claims"]:
            text = re.sub("{(.*)}", r"**\1**", claim["says"]).replace("|", "\\|")
            page = os.path.relpath(claim["page"], "docs")
            # The site leaves the paper out: its citations are for a journal's tools.
            link = "paper.md" if page == "paper.md" else f"[{Path(page).name}]({page})"
            rows.append([text, link, str(number), str(claim.get("within", ""))])
    return rows
