"""Public name: the batched renderer of the digits scene."""

from diagvib.scenes.digits.renderer import Renderer
from diagvib.scenes.digits.resizing import resize_matrix

__all__ = ["Renderer", "resize_matrix"]
