"""The baselines that `snakemake tuned` tunes, and the datasets that it uses."""

from diagvib.settings.configuration import ResolvedConfiguration, Tuning
from diagvib.settings.search_space import ALL, read_ranges


def tuned_baselines(config: ResolvedConfiguration) -> list[str]:
    """The baselines that `snakemake tuned` tunes: all of them, but for a random search on one of
    the configuration's studies only those that it has there."""
    everywhere = not config.tuning.random_search or config.tuning.study not in config.studies
    return [
        baseline.name
        for baseline in config.baselines
        if everywhere or config.tuning.study in baseline.studies
    ]


def tuning_bindings(tuning: Tuning) -> list[str]:
    """The bindings of the study whose images a baseline is tuned on."""
    return tuning.random_search.bindings if tuning.random_search else tuning.factors


def of_baseline(tuning: Tuning, method: str) -> Tuning:
    """The section `tuning` for a baseline with this method, with only the ranges that it draws
    from."""
    if not (search := tuning.random_search):
        return tuning
    ranges = read_ranges(search.ranges)
    own = {section: ranges[section] for section in (ALL, method) if section in ranges}
    return tuning.model_copy(update={"random_search": search.model_copy(update={"ranges": own})})
