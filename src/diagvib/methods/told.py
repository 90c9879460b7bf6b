"""Checks that a study has what a method must be told. Does not import torch, so that planning can
check it."""

from diagvib.foundation.errors import DiagvibError


def check_told(method: dict, cues: int, environments: int) -> None:
    """DiagvibError if data with this many cues and training environments lack what a method (its
    settings) is told."""
    told = method["told"]
    said = f"method: {method['name']} is told {told}, but the study"
    if told == "environments" and environments < 2:
        raise DiagvibError(
            f"{said} has one environment; choose a study with two or more, or change `told`"
        )
    needed = (
        1
        if told in ("cues", "cue_types")
        else int(told.removeprefix("cue-"))
        if told.startswith("cue-")
        else 0
    )
    if cues < needed:
        has = "no cue" if not cues else f"only {cues} cue{'s' if cues > 1 else ''}"
        raise DiagvibError(f"{said} has {has}; choose a study that has more, or change `told`")
