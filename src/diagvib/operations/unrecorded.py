"""Files without Snakemake's record of what made them: they are made again.

Snakemake alone takes such a file for up to date if it is newer than its inputs, whatever the
configuration: after its root was moved, copied or written in another way, or `.snakemake` was
deleted, other settings' results would be taken for those asked for. `snakemake --touch` vouches for
such files; with `--rerun-triggers mtime` they are trusted.
"""

import os


def make_unrecorded_again() -> None:
    """To be called while the Snakefile is read. No effect on a Snakemake that keeps its records
    differently."""
    try:
        from snakemake.persistence import ParamsChange
        from snakemake.persistence.file import FilePersistence as Persistence

        record, changed = Persistence.metadata, Persistence.params_changed
    except (ImportError, AttributeError):
        return

    def params_changed(self, job, file=None):
        unrecorded = {
            path for path in job.output if record(self, path) is None and os.path.exists(path)
        }
        if unrecorded and file is None:
            return ParamsChange(only_new={"no record of what made it"}, files=unrecorded)
        return changed(self, job, file)

    # Snakemake compares settings only where there is a record.
    Persistence.has_metadata, Persistence.params_changed = lambda self, job: True, params_changed
