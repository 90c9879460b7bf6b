"""Serves the explorer of a root to this machine alone."""

import re
import webbrowser
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import command_for

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
# In DVC's cache, to which `cache.type symlink` links a root's files.
_OBJECT = re.compile(r".*/files/md5/[0-9a-f]{2}/[0-9a-f]{30}")


class FileHandler(SimpleHTTPRequestHandler):
    """Serves the files of a folder. Refuses other host names, which a stranger's page could point here
    (DNS rebinding), and links out of the folder, but for those to DVC's cache."""

    def send_head(self):
        path = Path(self.translate_path(self.path))
        if not _LOCAL.fullmatch(self.headers.get("Host", "")):
            self.send_error(403, "Open the address that `diagvib view` printed")
        elif path.is_file() and self._is_served(path.resolve()):
            return super().send_head()
        else:
            self.send_error(404, "No such file in the folder, or a link out of it")
        return None

    def _is_served(self, file: Path) -> bool:
        folder = Path(self.directory).resolve()
        return file.is_relative_to(folder) or bool(_OBJECT.fullmatch(str(file)))


def view(root: str, port: int, browser: bool) -> None:
    """Serve the results folder of a root until Ctrl-C; print the explorer's address, and open it with
    `browser`. port: 0 for any free one."""
    page = Layout(root).explorer / "index.html"
    if not page.exists():
        raise DiagvibError(
            f"{page}: no such file; run {command_for(root, 'snakemake --cores all')}"
        )
    handler = partial(FileHandler, directory=page.parents[1])
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise DiagvibError(
            f"--port {port}: {error.strerror}; choose another one, or leave it out"
        ) from None
    with server, suppress(KeyboardInterrupt):
        address = f"http://127.0.0.1:{server.server_port}/explorer/index.html"
        print(address, flush=True)
        if browser:
            webbrowser.open(address)
        server.serve_forever()
