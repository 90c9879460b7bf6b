"""A real browser without a driver: Debian's Chromium, headless, controlled through its debugging
pipe."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 60


def find_browser() -> str | None:
    return next((case for name in NAMES if (case := shutil.which(name))), None)


in_chromium = pytest.mark.skipif(
    find_browser() is None or os.name != "posix",
    reason="no Chromium here; install it, e.g. apt-get install chromium",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Browser(find_browser(), tmp_path_factory.mktemp("profile")) as browser:
        yield browser


class Browser:
    """One page. `errors` and `requests` collect the page's errors and the network requests that it
    makes."""

    def __init__(self, program: str, profile: Path):
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        self._number, self._session, self._rest = 0, None, b""
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        # The pipe's ends are file descriptors 3 and 4 of the browser; the shell puts them there.
        shell = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                shell,
                program,
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        page = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **parameters) -> dict:
        """Run one command of the DevTools protocol; returns its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict:
        while b"\0" not in self._rest:
            additions = os.read(self._in, 1 << 16)
            if not additions:
                raise RuntimeError("the browser has gone")
            self._rest += additions
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict) -> None:
        method, facts = event.get("method"), event.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(facts["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and facts["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(json.dumps(facts["args"]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.errors.append(facts["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of this size and wait until it has loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        for record in (self._events, self.errors, self.requests):
            record.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())

        def loaded() -> bool:
            self.run("0")  # reads the browser's events
            return "Page.loadEventFired" in self._events

        self._wait(loaded, f"{page} did not load")

    def wait_for(self, script: str) -> None:
        """Wait until a JavaScript expression is true. A change of media, for one, reaches the page
        a moment after the browser has answered."""
        self._wait(lambda: self.run(script), f"not true: {script}")

    def _wait(self, condition: Callable[[], object], problem: str) -> None:
        until = time.monotonic() + _SECONDS
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"{problem} within {_SECONDS} s")
            time.sleep(0.02)

    def run(self, script: str):
        """The value of a JavaScript expression in the page."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", script))
        return result["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point_at(self, selector: str) -> None:
        """Move the mouse to the middle of the element."""
        x, y = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
            return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, entire: bool = False) -> None:
        size = "({width: document.documentElement.clientWidth, height: document.documentElement.scrollHeight})"
        clip = {"clip": {"x": 0, "y": 0, "scale": 1, **self.run(size)}} if entire else {}
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=entire, **clip)
        path.write_bytes(base64.b64decode(shot["data"]))
