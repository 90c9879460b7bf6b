"""The playground in a real browser: its images are the renderer's, and its answers those of
PyTorch."""

import base64
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from browser import in_chromium
from conftest import REPOSITORY
from diagvib import stages
from diagvib.foundation.files import read_json
from diagvib.methods.registry import make_baseline
from diagvib.renderer import Renderer
from diagvib.report.playground import FILE
from diagvib.scenes.digits.factors import classes
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import sample_of

SIZE = 64
STUDIES = {"zso": "shape", "zgo": "shape-hue", "fgo-20": "shape-hue"}
LIMIT = 1_500_000  # bytes of a page
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    """What the stages make of three studies whose runs keep their weights, and one whose runs do
    not."""
    layout = Layout(tmp_path_factory.mktemp("playground"))
    counts = "{train: 480, val: 60, id: 60, ood: 60}"
    config = load_config(
        None,
        [
            f"root={layout.root}",
            f"studies=[{', '.join([*STUDIES, 'cgo-2'])}]",
            "sources=embedded",
            "bindings=[shape-hue]",
            "samples=1",
            f"counts={counts}",
            f"image_size={SIZE}",
            "images=render",
            "baselines=[small_cnn]",
            "training.max_epochs=4",
            "training.precision=fp32",
        ],
    )
    stages.prepare(layout, stage_settings(config, "prepare"), "digits")
    for study, binding in config.datasets:
        stages.draw(layout, stage_settings(config, "draw", study), study, binding)
        job, keep = stage_settings(config, "train", study, "small_cnn"), study in STUDIES
        stages.train(layout, job, "small_cnn", study, binding, "cpu", keep_weights=keep)
    for stage in (stages.tabulate, stages.plot):
        stage(layout, stage_settings(config, stage.__name__), threads=1)
    return layout


@pytest.fixture(scope="module")
def page(layout) -> Path:
    return layout.explorer / FILE


def data_of(path) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


def test_the_page_has_the_networks_whose_weights_were_kept(layout, page):
    data = data_of(page)
    assert [network["study"] for network in data["networks"]] == ["ZSO", "ZGO", "FGO-20"]
    assert [network["share"] for network in data["networks"]] == pytest.approx(
        [0, 1, 0.8], abs=0.01
    )
    assert page.stat().st_size < LIMIT
    factors = sample_of("digits", 0).classes
    assert data["labels"] == dict(zip(factors["hue"], factors["shape"], strict=True))
    assert f'href="explorer/{FILE}"' in layout.report.read_text()


def random_settings(count: int) -> dict[str, np.ndarray]:
    """The page's settings: whole numbers on its sliders, and names."""
    generator = np.random.default_rng(64)
    limits = {"hue": 360, "lightness": 101, "hand": 6, "down": 57, "across": 57}
    settings = {name: generator.integers(0, limit, count) for name, limit in limits.items()}
    settings |= {name: generator.integers(14, 87, count) for name in ("row", "column")}
    settings["scale"] = generator.integers(69, 146, count)
    return settings | {
        factor: generator.choice(classes(factor), count) for factor in ("shape", "texture")
    }


def rendered(settings: dict[str, np.ndarray], data: dict) -> np.ndarray:
    """What the renderer draws of the page's digits and textures."""
    masks = [np.frombuffer(base64.b64decode(text), np.uint8) for text in data["digits"].values()]
    digits = 255 * np.unpackbits(np.stack(masks)).reshape(-1, 40, 40)
    pieces = [np.frombuffer(base64.b64decode(text), np.uint8) for text in data["textures"].values()]
    renderer = Renderer(digits, np.stack(pieces).reshape(-1, 96, 96), "cpu", data["size"])
    light = settings["lightness"] / 100
    numbers = [[*data[name]].index for name in ("digits", "textures")]
    return renderer.render(
        digit=[6 * numbers[0](shape) for shape in settings["shape"]] + settings["hand"],
        texture=[*map(numbers[1], settings["texture"])],
        crop=np.stack([settings["down"], settings["across"]], 1),
        hue=settings["hue"],
        lightness=np.stack([light * 7 / 11, (4 + 7 * light) / 11], 1),
        position=np.stack([settings["row"], settings["column"]], 1) / 100,
        scale=settings["scale"] / 100,
    ).numpy()


@torch.no_grad()
def logits(folder, images: np.ndarray) -> np.ndarray:
    """PyTorch's answers of a run's network."""
    facts = read_json(folder / "run.json")
    model = make_baseline(facts["settings"], 10, images.shape[1], facts["seed"]).eval()
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    scaling = [torch.tensor(facts[f"pixel_{name}"]) for name in ("mean", "std")]
    inputs = (torch.from_numpy(images).float() - scaling[0]) / scaling[1]
    return model.model(inputs.permute(0, 3, 1, 2)).numpy()


@in_chromium
class TestInABrowser:
    def test_images_are_the_renderers_and_answers_those_of_pytorch(self, layout, page, chromium):
        settings, data = random_settings(200), data_of(page)
        chromium.open(page)
        images, answers = [], []
        for number in range(200):
            sample_settings = {name: column[number].item() for name, column in settings.items()}
            pixels, values = chromium.run(
                f"(() => {{ const image = render({json.dumps(sample_settings)});"
                "return [btoa(String.fromCharCode(...image)),"
                "data.networks.map(network => logits(network, image))]; })()"
            )
            images.append(np.frombuffer(base64.b64decode(pixels), np.uint8))
            answers.append(values)
        images = np.stack(images).reshape(-1, SIZE, SIZE, 4)[..., :3].copy()
        difference = np.abs(images.astype(int) - rendered(settings, data))
        assert difference.max() <= 2 and (difference > 0).mean() < 0.001
        answers = np.array(answers)
        for number, (study, binding) in enumerate(STUDIES.items()):
            expected = logits(layout.runs("small_cnn", study, binding) / "0", images)
            assert np.ptp(expected) > 5, "trained"
            assert np.abs(answers[:, number] - expected).max() < 1e-3

    @pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
    def test_the_committed_page_shows_the_shortcut(self, chromium, tmp_path, width, dark):
        page = REPOSITORY / "docs" / FILE
        assert page.stat().st_size < LIMIT
        chromium.open(page, width=width, dark=dark)

        def wait(script: str):
            until = time.monotonic() + 20
            while not (value := chromium.run(script)) and time.monotonic() < until:
                time.sleep(0.1)
            return value

        outcomes = "[...document.querySelectorAll('.network')].map(card => card.className).join()"
        assert wait(f"{outcomes} === 'network right,network right,network right'")
        assert chromium.run("document.documentElement.scrollWidth") <= width
        chromium.run("document.querySelector('#fool [data-network=\"1\"]').click()")
        assert wait(f"{outcomes}.startsWith('network right,network misled')")
        assert wait("document.querySelector('#answers').textContent.includes('follows the hue')")
        assert "misleads" in chromium.run("document.querySelector('#sentence').textContent")
        link = chromium.run("location.hash")
        chromium.run("document.querySelector('#image').focus()")
        chromium.press("ArrowDown")
        assert chromium.run("location.hash") != link
        chromium.run(f"location.hash = '{link}'")
        assert wait(f"setting.row == {re.search(r'row=([0-9]+)', link)[1]}")
        assert wait(f"{outcomes}.startsWith('network right,network misled')")
        light = chromium.run("getComputedStyle(document.body).backgroundColor")
        assert (light == "rgb(255, 255, 255)") != dark
        assert chromium.errors == []
        assert all(url.startswith(("file:", "data:")) for url in chromium.requests)
