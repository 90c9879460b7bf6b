"""Fetching: whatever happens on the way, a file is either right or absent in the end."""

import errno
import hashlib
from pathlib import Path

import pytest
from loopback import Quiet, web_server

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import fetch, load_scene
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.fetch import Source

CONTENT = bytes(range(256)) * 300
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ALTERNATIVE = b"something else"
OTHER_SHA256 = hashlib.sha256(ALTERNATIVE).hexdigest()


class _Handler(Quiet):
    def do_GET(self):
        self.server.asked.append(self.path)
        fails_first = self.path == "/flaky" and self.server.asked.count("/flaky") == 1
        if self.path == "/missing" or fails_first:
            self.send_error(503 if fails_first else 404)
            return
        body = ALTERNATIVE if self.path == "/wrong" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000] if self.path == "/truncated" else body)


@pytest.fixture
def server(monkeypatch):
    """A real server on this machine; `asked` collects the requested paths."""
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with web_server(_Handler) as server:
        server.asked = []
        yield server


def define(*urls: str) -> list[Source]:
    """One source file, reached under the given URLs."""
    description = {"sha256": SHA256, "licence": "CC0-1.0", "citation": "C"}
    return [Source(path="folder/file.bin", urls=list(urls), **description)]


def _url(server, name: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{name}"


def fetched(sources: list[Source], raw: Path, mirror: Path | None = None) -> Path:
    fetch.fetch(sources, raw, mirror)
    return raw / "folder/file.bin"


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_second_url_when_the_first_fails(tmp_path, server):
    for bad in ("missing", "truncated", "wrong"):
        raw = tmp_path / bad
        path = fetched(define(_url(server, bad), _url(server, "good")), raw)
        assert path.read_bytes() == CONTENT
        assert _files(raw) == ["folder/file.bin"]


def test_passing_failure_is_retried(tmp_path, server):
    path = fetched(define(_url(server, "flaky")), tmp_path / "raw")
    assert path.read_bytes() == CONTENT
    assert server.asked == ["/flaky", "/flaky"]


def test_hopeless_download_names_urls_reasons_hashes_and_remedy(tmp_path, server):
    urls = [_url(server, name) for name in ("missing", "truncated", "wrong")]
    urls.append("http://127.0.0.1:9/closed")  # the discard port: nobody listens
    with pytest.raises(DiagvibError) as error:
        fetched(define(*urls), tmp_path / "raw")
    message = str(error.value)
    for part in (*urls, "404", "IncompleteRead", "refused", SHA256, OTHER_SHA256, "mirror:"):
        assert part in message
    assert "\n" not in message
    assert _files(tmp_path / "raw") == []
    assert server.asked.count("/missing") == 1 + fetch.RETRIES


def test_right_file_is_kept_without_asking(tmp_path, server):
    definitions = define(_url(server, "good"))
    path = fetched(definitions, tmp_path / "raw")
    before = path.stat().st_mtime_ns
    fetched(definitions, tmp_path / "raw")
    assert server.asked == ["/good"]
    assert path.stat().st_mtime_ns == before


def test_wrong_file_stays_until_the_right_one_is_there(tmp_path, server, capsys):
    target = tmp_path / "raw/folder/file.bin"
    target.parent.mkdir(parents=True)
    target.write_bytes(ALTERNATIVE)
    with pytest.raises(DiagvibError):
        fetched(define(_url(server, "missing")), tmp_path / "raw")
    assert target.read_bytes() == ALTERNATIVE
    fetched(define(_url(server, "good")), tmp_path / "raw")
    assert target.read_bytes() == CONTENT
    output = capsys.readouterr().err
    assert OTHER_SHA256 in output and SHA256 in output and str(target) in output


@pytest.mark.parametrize("place", ["folder/file.bin", "file.bin"])
def test_mirror(tmp_path, place):
    file = tmp_path / "mirror" / place
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    path = fetched(define("http://127.0.0.1:9/closed"), tmp_path / "raw", tmp_path / "mirror")
    assert path.read_bytes() == CONTENT


def test_mirror_errors(tmp_path):
    definitions, mirror, raw = (
        define("http://127.0.0.1:9/closed"),
        tmp_path / "mirror",
        tmp_path / "raw",
    )
    with refused(r"mirror: no such folder"):
        fetched(definitions, raw, mirror)
    mirror.mkdir()
    with refused(rf"folder/file\.bin: no such file in the mirror.*{SHA256}.*mirror: null"):
        fetched(definitions, raw, mirror)
    (mirror / "file.bin").write_bytes(ALTERNATIVE)
    message = rf"file\.bin: has sha256 {OTHER_SHA256}, expected {SHA256}"
    with refused(message):
        fetched(definitions, raw, mirror)
    assert _files(raw) == []


def test_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/file.bin").write_bytes(CONTENT)

    def fill(_, target):
        Path(target).write_bytes(CONTENT[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch.shutil, "copyfile", fill)
    with refused("disk is full"):
        fetched(define("http://127.0.0.1:9/closed"), tmp_path / "raw", tmp_path / "mirror")
    assert _files(tmp_path / "raw") == []


def test_our_definitions_cover_the_benchmark():
    sources = {source.path: source for source in load_scene("digits").sources}
    assert {f"textures/{name}.png" for name in classes("texture")} < set(sources)
    assert sum(path.startswith("mnist/") for path in sources) == 4
    assert all(len(source.urls) > 1 for source in sources.values())


def test_published_files_have_these_hashes(tmp_path, mirror):
    load_scene("digits").fetch(tmp_path, mirror)
    assert len(_files(tmp_path)) == 9
