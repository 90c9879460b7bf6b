"""Public name: the preparation of a texture."""

from diagvib.scenes.digits.textures import prepare_texture

__all__ = ["prepare_texture"]
