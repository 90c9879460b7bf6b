"""An SSH server (sftp) on the loopback address, in a temporary folder: `python
tests/services/ssh.py`.

Needs Debian's or Ubuntu's `apt install openssh-server`, but nothing of the system's own SSH server.
It runs as the current user, with a new host key and user key, prints how to reach it, and runs
until Ctrl-D. Its sessions and its folder are removed with it.
"""

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psutil
from loopback import (
    ADDRESS,
    PATH,
    Service,
    ServiceError,
    free_port,
    missing,
    serve,
    wait_for_port,
)

# Debian's sshd, started by root, requires this folder, which Debian's own service creates.
SEPARATION = Path("/run/sshd")

SSHD_CONFIG = """
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
AllowUsers {user}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions 100
UseDNS no
Subsystem sftp internal-sftp
"""


def why_not() -> str | None:
    """Why no SSH server can run here; None if one can."""
    return missing("openssh-server", "sshd", "ssh", "ssh-keygen")


class SSH(Service):
    """The server. Attributes: port, user, key (of the user, private), known_hosts (a file), storage
    (a folder)."""

    def __init__(self):
        super().__init__(__file__)


def serve_ssh() -> None:
    """Run sshd until standard input ends."""
    folder, port = Path(tempfile.mkdtemp(prefix="ssh-")), free_port()
    try:
        _configure(folder, port)
        with (folder / "log").open("w") as log:
            sshd = subprocess.Popen(
                [shutil.which("sshd", path=PATH), "-D", "-e", "-f", folder / "sshd_config"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            _try_login(folder, port, sshd)
            serve(
                port=port,
                user=getpass.getuser(),
                key=f"{folder}/user_key",
                known_hosts=f"{folder}/known_hosts",
                storage=f"{folder}/storage",
            )
        finally:
            for process in [*psutil.Process(sshd.pid).children(recursive=True), sshd]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            sshd.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, port: int) -> None:
    (folder / "storage").mkdir()
    if os.getuid() == 0:
        SEPARATION.mkdir(mode=0o755, exist_ok=True)
    for name in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name],
            check=True,
        )
    host_key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[{ADDRESS}]:{port} {host_key}")
    (folder / "sshd_config").write_text(
        SSHD_CONFIG.format(address=ADDRESS, port=port, folder=folder, user=getpass.getuser())
    )


def _try_login(folder: Path, port: int, sshd: subprocess.Popen) -> None:
    """ServiceError with the server's last output if nobody can log in."""
    reached = wait_for_port(port, lambda: sshd.poll() is None)
    login = [
        "ssh",
        "-F",
        "none",
        "-i",
        folder / "user_key",
        "-p",
        str(port),
        "-o",
        "IdentityAgent=none",
        "-o",
        "BatchMode=yes",
        "-o",
        f"UserKnownHostsFile={folder}/known_hosts",
        ADDRESS,
        "true",
    ]
    if (
        not reached
        or subprocess.run(login, stdin=subprocess.DEVNULL, capture_output=True).returncode
    ):
        said = (folder / "log").read_text().strip().splitlines() or ["nothing in its log"]
        raise ServiceError(f"no login to sshd: {said[-1]}")


if __name__ == "__main__":
    serve_ssh()
