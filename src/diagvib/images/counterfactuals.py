"""Images with one factor taken from another image, rendered on demand."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch

from diagvib.images.files import Images
from diagvib.scenes import load_scene
from diagvib.scenes.scene import Renderer


class SceneCounterfactuals:
    """`methods.method.Counterfactuals` of a split's images, from the recipes stored with them.

    cues: factors in the order of the study. prepared: the data that the scene renders from. device:
    where the images are wanted.
    """

    def __init__(self, images: Images, cues: Sequence[str], prepared: Path, device: torch.device):
        self._recipes, self._cues, self._prepared, self._device = (
            images.table,
            tuple(cues),
            prepared,
            device,
        )
        self._scene, self._size = load_scene(images.metadata["scene"]), images.pixels.shape[1]

    @cached_property
    def _render(self) -> Renderer:
        return self._scene.rendering(self._prepared, self._size, self._device)

    def exchanged(self, index: torch.Tensor, cue: int, donors: torch.Tensor) -> torch.Tensor:
        own, others = (self._recipes.take(at.cpu().numpy()) for at in (index, donors))
        return self._render(self._scene.exchange(own, self._cues[cue], others)).to(self._device)

    def object_boxes(self, index: torch.Tensor) -> torch.Tensor:
        return self._boxes[index]

    @cached_property
    def _boxes(self) -> torch.Tensor:
        return torch.as_tensor(
            self._scene.object_boxes(self._recipes, self._size), device=self._device
        )
