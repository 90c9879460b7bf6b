"""`diagvib run`: the workflow from any folder, with the Snakefile and the configurations that come
with the package."""

import importlib.util
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path, read_yaml, shipped_path
from diagvib.workflow.records import snakemake_environment


def run_workflow(config: str, options: Iterable[str]) -> int:
    """Run Snakemake with a configuration, a file or the name of one that comes with the package;
    returns its exit status. options: Snakemake's; without --cores, it uses all."""
    if not importlib.util.find_spec("snakemake"):
        raise DiagvibError(
            "snakemake is not installed; `pip install '.[workflow]'` in the repository does it"
        )
    options = [*options]
    command = ["--snakefile", shipped_path("Snakefile"), "--configfile", configuration_file(config)]
    if not any(
        option.startswith(("--cores", "-c", "--jobs", "-j", "--profile")) for option in options
    ):
        command += ["--cores", "all"]
    processes = []

    def end(*_: object) -> None:
        for process in processes:
            process.terminate()

    # Snakemake ends its jobs, and says how to go on. Ctrl-C it gets from the terminal.
    handlers = {signal.SIGTERM: end, signal.SIGINT: lambda *_: None}
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        handlers = {}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        snakemake = [sys.executable, "-m", "snakemake"]
        processes.append(
            subprocess.Popen([*snakemake, *command, *options], env=snakemake_environment())
        )
        return processes[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def configuration_file(name: str) -> Path:
    """The file of a configuration. DiagvibError if there is none."""
    if Path(name).suffix in (".yaml", ".yml"):
        if not Path(name).is_file():
            raise DiagvibError(f"{name}: no such file")
        return Path(name)
    files = shipped_configurations()
    if name not in files:
        raise unknown_name("configuration", name, files, "CONFIG")
    return files[name]


def shipped_configurations() -> dict[str, Path]:
    """The configurations that come with the package, by their names: those of their files, and of
    sets of photos those of their folders."""
    folder = definition_path("config.yaml").parent
    files = {path.stem: path for path in sorted(folder.glob("*.yaml")) if "root" in read_yaml(path)}
    return files | {path.parent.name: path for path in sorted(folder.glob("photos/*/config.yaml"))}
