"""What the results show, in sentences: the findings of all sets of metrics."""

from diagvib.results.metric_sets.metric_set import Finding
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.reader_tables import Frames
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import DEFAULT


def findings(frames: Frames, known_studies: KnownStudies, mine: str | None = None) -> list[Finding]:
    """Those of every set of metrics that has results, of the default set first; before all others,
    those of the baseline `mine`. frames: the tidy tables."""
    sets = sorted(METRIC_SETS.items(), key=lambda entry: entry[0] != DEFAULT)
    of_mine = {
        name: frame[frame["baseline"] == mine] if "baseline" in frame else frame
        for name, frame in frames.items()
    }
    all_findings = [
        finding
        for tables in ([of_mine] if mine else []) + [frames]
        for _, metric_set in sets
        for finding in metric_set.findings(tables, known_studies)
    ]
    return [*{finding.text: finding for finding in all_findings}.values()]
