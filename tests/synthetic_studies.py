"""Studies for tests: as small as they can be, and shipped ones changed in something."""

from diagvib.studies.study import Study, load_study, parse_study


def own_study(rows: list[dict], name: str = "mine", **keys) -> Study:
    """A study of these rows; by default of two classes and a cue."""
    roles = {"target": 2, "cue": 2}
    definition = {"title": "t", "meaning": "m", "metrics": "accuracy", "roles": roles, "rows": rows}
    return parse_study(name, definition | keys)


def definition_of(study: str) -> dict:
    """A shipped study as a file would define it."""
    return load_study(study).model_dump(exclude={"name"})


def changed_study(study: str, name: str = "mine", **keys) -> Study:
    """A shipped study under another name, with other keys."""
    return parse_study(name, definition_of(study) | keys)
