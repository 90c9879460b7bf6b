"""Checks the configuration's section `tuning`, and says which baselines are tuned on what."""

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.scenes import load_scene
from diagvib.settings.grid import check_method, dataset_count, study_of
from diagvib.settings.search_space import ALL, read_ranges, search_space
from diagvib.studies.binding import bind
from diagvib.studies.study import Study


def tuned_baselines(config: dict) -> list[str]:
    """The baselines that `snakemake tuned` tunes: all of them, but for a random search on one of
    the configuration's studies only those that it has there."""
    study, search = config["tuning"]["study"], config["tuning"]["random_search"]
    everywhere = not search or study not in config["studies"]
    return [
        baseline["name"]
        for baseline in config["baselines"]
        if everywhere or study in baseline["studies"]
    ]


def tuning_bindings(tuning: dict) -> list[str]:
    """The bindings of the study whose images a baseline is tuned on. tuning: the configuration's
    section."""
    return tuning["random_search"]["bindings"] if tuning["random_search"] else tuning["factors"]


def searched_studies(config: dict) -> list[str]:
    """The study of a random search, if there is one."""
    return [config["tuning"]["study"]] if config["tuning"]["random_search"] else []


def check_tuning(config: dict, where: str) -> None:
    """DiagvibError, beginning with `where`, for samples that do not exist, a study that does not
    fit, an unknown factor or binding, or ranges that a baseline cannot have."""
    tuning, study = config["tuning"], study_of(config, config["tuning"]["study"])
    for number in tuning["samples"]:
        if number >= dataset_count(config):
            raise DiagvibError(
                f"{where}.samples: {number} is not among the dataset samples of `samples: "
                f"{config['samples']}`, which are numbered from 0"
            )
    if tuning["random_search"]:
        _check_search(config, study, f"{where}.random_search")
        return
    if study.cues:
        raise DiagvibError(
            f"{where}.study: {study.name} binds cues; name a study that binds only a target, or "
            "use random_search"
        )
    known = load_scene(study.scene).factors
    for factor in tuning["factors"]:
        if factor not in known:
            raise unknown_name("factor", factor, known, f"{where}.factors")


def _check_search(config: dict, study: Study, where: str) -> None:
    search, entries = (
        config["tuning"]["random_search"],
        {b["name"]: b["settings"] for b in config["baselines"]},
    )
    for name in search["bindings"]:
        try:
            bind(study, name, load_scene(study.scene).factors)
        except DiagvibError as error:
            raise DiagvibError(f"{where}.bindings: {error}") from None
    ranges = read_ranges(search["ranges"], f"{where}.ranges")
    for name in tuned_baselines(config):
        check_method(entries[name]["method"], config, [study.name], f"{where}: {name}")
        search_space(entries[name], ranges, f"{where}.ranges", name)


def of_baseline(tuning: dict, method: str) -> dict:
    """The section `tuning` for a baseline with this method, with only the ranges that it draws
    from."""
    if not (search := tuning["random_search"]):
        return tuning
    ranges = read_ranges(search["ranges"], "tuning.random_search.ranges")
    own = {section: ranges[section] for section in (ALL, method) if section in ranges}
    return {**tuning, "random_search": {**search, "ranges": own}}
