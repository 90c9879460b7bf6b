"""Images with one factor taken from another image, rendered on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.images.files import Images
from diagvib.scenes import load_scene
from diagvib.scenes.scene import Renderer, Scene


@dataclass(frozen=True)
class SceneCounterfactuals:
    """`methods.method.Counterfactuals` of a split's images, from the recipes stored with them.

    cues: factors in the order of the study. prepared: the data that the scene renders from. device:
    where the images are wanted.
    """

    images: Images
    cues: Sequence[str]
    prepared: Path
    device: torch.device

    @cached_property
    def _scene(self) -> Scene:
        return load_scene(self.images.metadata["scene"])

    @cached_property
    def _render(self) -> Renderer:
        return self._scene.rendering(self.prepared, self.images.pixels.shape[1], self.device)

    def exchanged(self, index: torch.Tensor, cue: int, donors: torch.Tensor) -> torch.Tensor:
        recipes, donor_recipes = (
            self.images.table.take(rows.cpu().numpy()) for rows in (index, donors)
        )
        return self._render(self._scene.exchange(recipes, self.cues[cue], donor_recipes)).to(
            self.device
        )

    def object_boxes(self, index: torch.Tensor) -> torch.Tensor:
        return self._boxes[index]

    @cached_property
    def _boxes(self) -> torch.Tensor:
        boxes = self._scene.object_boxes(self.images.table, self.images.pixels.shape[1])
        positions = torch.as_tensor(boxes, device=self.device)
        if positions.is_floating_point() or positions.shape != (len(self.images.table), 4):
            raise DiagvibError(
                f"scene {self.images.metadata['scene']}: object_boxes gives {positions.dtype} of shape "
                f"{[*positions.shape]}; pixels as integers, one box of 4 for each image, are needed"
            )
        return positions
