"""Methods: how a network learns. `methods()` lists them."""

from diagvib.foundation.listing import callable_package


def known() -> dict[str, tuple[str, ...]]:
    """The methods: name -> the supervision they can have, the default first."""
    from diagvib.methods.registry import METHODS, declaration

    return {name: tuple(declaration(name).supervision) for name in METHODS}


callable_package(__name__)
