"""Snakemake decides by `provenance.rerun_reasons` whether a job runs again.

By itself, it compares a job with its own records alone, looks only at the files that a rule lists,
and takes a file without a record for up to date if it is newer than its inputs. `snakemake --touch`
marks files without a record as up to date.
"""

import sys

from diagvib.foundation.messages import say
from diagvib.provenance.expected import ExpectedJobs
from diagvib.provenance.rerun_reasons import reasons

_FLAG = "--rerun-triggers"


def decide_reruns(jobs: ExpectedJobs) -> None:
    """To be called while the Snakefile is read. Without this, of eight ways to change results behind
    Snakemake's back (tests/test_trust.py), it notices none."""
    from snakemake.persistence import NO_PARAMS_CHANGE, ParamsChange
    from snakemake.persistence.file import FilePersistence as Persistence

    def params_changed(self, job, file=None):
        if file is not None:  # `--list-changes`
            return _changed(self, job, file)
        parameters = self._params(job)
        recorded = lambda path: self.params(path) if self.metadata(path) else None  # noqa: E731
        for reason, files in reasons(jobs, job, parameters, recorded):
            return ParamsChange(only_new={reason}, files=files)
        return NO_PARAMS_CHANGE

    def input_without_weights(self, job):
        """Jobs that had fetched their weights themselves are not run again."""
        folder = f"{jobs.layout.weights('', '').parent}/"
        return [path for path in _input(self, job) if not path.startswith(folder)]

    _changed, _input = Persistence.params_changed, Persistence._input
    # Snakemake compares settings only where there is a record.
    Persistence.has_metadata, Persistence.params_changed = lambda self, job: True, params_changed
    Persistence._input = input_without_weights


def compare_all(workflow) -> None:
    """Compare settings, code and inputs whatever a profile says of `rerun-triggers`; an option on
    the command line wins, and is explained."""
    from snakemake.settings.types import RerunTrigger

    settings = workflow.dag_settings
    missing = RerunTrigger.all() - set(settings.rerun_triggers)
    if not missing:
        return
    if any(argument.startswith("--rerun-t") for argument in sys.argv):  # may be shortened
        names = ", ".join(sorted(trigger.name.lower() for trigger in missing))
        if workflow.is_main_process:
            say(
                f"{_FLAG}: {names} are not compared, so results of other settings, code or images "
                "are taken for those asked for; leave the option out to compare them"
            )
        return
    settings.rerun_triggers = RerunTrigger.all()
