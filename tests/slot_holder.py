"""A process that has a slot."""

import subprocess
import sys

import pytest

from diagvib.foundation.slots import FOLDER

HOLD = """
import sys, time
from diagvib.foundation.slots import end_with_workflow, slot_devices, take_slot
end_with_workflow()
print(take_slot(int(sys.argv[1]), slot_devices(sys.argv[2].split(","))), flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path, monkeypatch):
    """Start a process that takes a share, and then says of which device."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "slots"))
    started = []

    def hold(
        share: int, devices: str = "cpu,cpu", code: str = HOLD, **options: object
    ) -> subprocess.Popen:
        command = [sys.executable, "-c", code, str(share), devices]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        started.append(process)
        return process

    yield hold
    for process in started:
        process.kill()
        process.wait()
