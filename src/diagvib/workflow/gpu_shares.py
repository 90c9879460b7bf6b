"""What Snakemake knows of GPUs: how many there are, and how much of one each job takes.

Which one a job gets, it decides itself when it starts (`foundation.slots`).
"""

from typing import NamedTuple

from diagvib.foundation.devices import likely_gpu
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.gpus import smallest_memory
from diagvib.foundation.slots import BESIDE_IMAGES, MOST_PROCESSES, Device, slot_devices
from diagvib.settings.keys import Configuration
from diagvib.studies.scarcity import split_counts
from diagvib.studies.study import SPLITS


class GpuShares(NamedTuple):
    """devices: of which jobs take shares. train: percent of one that a job takes which trains runs;
    processes: how many it trains at once, at most; processes_alone: for a job that has a device to itself.
    alone: percent for such a job."""

    devices: list[Device]
    train: int
    processes: int
    processes_alone: int

    @property
    def alone(self) -> int:
        return 100 if self.devices else 0

    @property
    def draws(self) -> int:
        """Percent for a job that draws on a GPU if there is one."""
        return 100 if any(device.address for device in self.devices) else 0


def gpu_shares(config: Configuration, cores: int | None = None) -> GpuShares:
    """As many jobs share a GPU as its memory holds, up to the number of processes that was measured,
    and a job has as many as leave cores for the other GPUs. cores: for all jobs; None: any number.
    DiagvibError for devices that are not there, or contradict `device`."""
    devices, threads = _devices(config), config.training.threads
    gpus = [device.address for device in devices if device.address]
    if not gpus:
        processes = config.processes or 1
        return GpuShares(devices, 100 if devices else 0, processes, processes)
    fitting = MOST_PROCESSES
    if memory := smallest_memory(gpus):
        images = max(
            sum(
                sum(split_counts(config.study(study), config.counts, split).values())
                for split in SPLITS
            )
            for study in config.studies
        )
        need = (3 * images * config.image_size**2 + BESIDE_IMAGES) / 2**30
        fitting = max(1, min(fitting, int(memory / need)))
    processes_alone = fitting if cores is None else min(fitting, cores // (threads * len(gpus)))
    processes_alone = config.processes or max(1, processes_alone)
    processes = config.processes or min(job_processes(config, True), processes_alone)
    jobs = max(1, fitting // processes) if memory else 1
    return GpuShares(devices, 100 // jobs, processes, processes_alone)


def job_processes(config: Configuration, on_gpu: bool) -> int:
    """How many runs a job trains at once, at most."""
    return config.processes or (min(config.runs_per_job, MOST_PROCESSES) if on_gpu else 1)


def _devices(config: Configuration) -> list[Device]:
    if config.devices == "all":
        unlisted = [Device("cuda:0", "0")] * (config.device == "cuda")
        return (slot_devices(None) or unlisted) if likely_gpu(config.device) else []
    kinds = {name.partition(":")[0] for name in config.devices if " " not in name}
    if config.device != "auto" and kinds - {config.device}:
        raise DiagvibError(
            f"devices: {', '.join(config.devices)} and device: {config.device} contradict each other; "
            "leave one of them out"
        )
    return slot_devices(config.devices)
