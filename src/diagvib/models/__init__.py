"""Networks. `models()` lists their names."""

from diagvib.foundation.listing import callable_package


def known() -> list[str]:
    """The names that `model` in config/baselines can have: ours, torchvision's and, if it is
    installed, timm's."""
    import importlib.util

    import torchvision

    names = ["small_cnn", *torchvision.models.list_models(module=torchvision.models)]
    if importlib.util.find_spec("timm"):
        import timm

        names += [f"timm/{name}" for name in timm.list_models()]
    return names


callable_package(__name__)
