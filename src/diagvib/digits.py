"""Public name: the preparation of a digit."""

from diagvib.scenes.digits.digits import prepare_digit

__all__ = ["prepare_digit"]
