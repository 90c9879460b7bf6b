"""Checks that a study has the labels that a method uses. Does not import torch, so that planning
can check it."""

from diagvib.foundation.errors import DiagvibError


def check_supervision(method: dict, cues: int, environments: int) -> None:
    """DiagvibError if data with this many cues and training environments lack what a method (its
    settings) uses."""
    supervision = method["supervision"]
    message = f"method: {method['name']} needs {supervision}, but the study"
    if supervision == "environments" and environments < 2:
        raise DiagvibError(
            f"{message} has one environment; choose a study with two or more, or change `supervision`"
        )
    single = supervision.startswith("cue-")
    needed = int(supervision[4:]) if single else int(supervision in ("cues", "cue_types"))
    if cues < needed:
        has = "no cue" if not cues else f"only {cues} cue{'s' if cues > 1 else ''}"
        raise DiagvibError(
            f"{message} has {has}; choose a study that has more, or change `supervision`"
        )
