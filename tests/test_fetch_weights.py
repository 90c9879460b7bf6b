"""Published weights are fetched like any source; an interrupted download continues."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
import torch
from loopback import Quiet, web_server

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.models import fetch_weights as module
from diagvib.models.fetch_weights import fetch_weights
from diagvib.settings.baselines import load_settings
from diagvib.settings.layout import Layout
from diagvib.settings.model_settings import published_weights

CONTENT = bytes(range(256)) * 2048  # eight chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = f"net_x0.5-{SHA256[:8]}.pth"


class _Handler(Quiet):
    """As many answers as `server.cuts` says end half way."""

    def do_GET(self):
        byte_range, size = self.headers.get("Range"), len(self.server.content)
        self.server.ranges.append(byte_range)
        start = (
            int(byte_range[len("bytes=") : -1]) if byte_range and self.server.knows_ranges else 0
        )
        if start >= size:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        end = (start + size) // 2 if len(self.server.ranges) <= self.server.cuts else size
        self.wfile.write(self.server.content[start:end])


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server on this machine that has the weights of `net`; torch's cache is empty."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    with web_server(_Handler) as server:
        server.ranges, server.cuts, server.content, server.knows_ranges = [], 0, CONTENT, True
        url = f"http://127.0.0.1:{server.server_port}/models/{FILE}"
        monkeypatch.setattr(module, "published", lambda *_: SimpleNamespace(url=url))
        yield server


def fetched(root: Path, mirror: Path | None = None) -> bytes:
    digests = Layout(root).weights("net", "V1")
    fetch_weights("net", "V1", digests, mirror)
    assert read_json(digests) == {FILE: SHA256}
    assert {path.name for path in digests.parent.iterdir()} == {FILE, "net.V1.json"}
    return digests.with_name(FILE).read_bytes()


def test_a_download_that_is_cut_continues_where_it_was(tmp_path, server):
    server.cuts = 2
    assert fetched(tmp_path) == CONTENT
    half, quarter = len(CONTENT) // 2, len(CONTENT) // 4
    assert server.ranges == [None, f"bytes={half}-", f"bytes={half + quarter}-"]
    assert fetched(tmp_path) == CONTENT and len(server.ranges) == 3, "it is kept"


def test_the_next_run_continues_a_download_that_failed(tmp_path, server):
    server.cuts = 3
    with pytest.raises(
        DiagvibError, match=r"V1 of net could not be downloaded.*into `weights/` of"
    ):
        fetched(tmp_path)
    server.cuts = 0
    assert fetched(tmp_path) == CONTENT
    assert server.ranges[-1] == f"bytes={len(CONTENT) * 7 // 8}-"


def test_a_server_without_ranges_begins_again(tmp_path, server):
    server.cuts, server.knows_ranges = 1, False
    assert fetched(tmp_path) == CONTENT and len(server.ranges) == 2


def test_wrong_content_is_not_kept(tmp_path, server):
    server.content = b"a page of a login"
    with refused(rf"wrong content, sha256 \w{{64}}, expected {SHA256[:8]}\.\.\."):
        fetched(tmp_path)
    assert server.ranges == [None] * 3, "nothing of it is continued"
    server.content = CONTENT
    assert fetched(tmp_path) == CONTENT


def test_weights_on_this_machine_are_copied(tmp_path, server):
    for folder, mirror in (("mirror/weights", tmp_path / "mirror"), ("hub/checkpoints", None)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / FILE).write_bytes(CONTENT)
        assert fetched(tmp_path / f"from/{folder}", mirror) == CONTENT
    assert server.ranges == []
    (tmp_path / "mirror/weights" / FILE).write_bytes(b"other")
    with refused(rf"{FILE}: has sha256 .* replace it in the mirror"):
        fetched(tmp_path, tmp_path / "mirror")
    (tmp_path / "hub/checkpoints" / FILE).write_bytes(b"cut")
    assert fetched(tmp_path) == CONTENT and len(server.ranges) == 1


def test_without_a_network_it_says_where_to_put_them(tmp_path, server, monkeypatch):
    def offline(*arguments, **keywords):
        raise requests.ConnectionError("no route to host")

    monkeypatch.setattr(requests, "get", offline)
    with refused(rf"no route to host.*put it at .*{FILE}"):
        fetched(tmp_path)


def test_a_mistyped_network_is_named(tmp_path):
    with refused("unknown network of torchvision 'resnet55'; did you mean resnet50"):
        fetch_weights("resnet55", "IMAGENET1K_V1", Layout(tmp_path).weights("resnet55", "V1"))


def test_weights_that_are_fetched_are_those_that_torchvision_publishes():
    for name, weights in (
        ("resnet50_in", ("resnet50", "IMAGENET1K_V1")),
        ("resnet50", None),
        ("vae", None),
        ("lite0_erm", None),
    ):
        assert published_weights(load_settings(name)["model"]) == weights
    model = load_settings("resnet50_in")["model"]
    assert published_weights({**model, "weights_file": "mine.pth"}) is None
