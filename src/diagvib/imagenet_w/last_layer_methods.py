"""The paper's methods in Table 4 that can train a last layer, with the options of the authors'
code."""

from dataclasses import dataclass

_CACHED = "diagvib.imagenet_w.cached_methods"


@dataclass(frozen=True)
class LastLayerMethod:
    """settings: for a baseline's `method`. variants: the augmented views of the training photos
    that it reads."""

    settings: dict
    variants: tuple[str, ...] = ()


METHODS = {
    "erm": LastLayerMethod({"name": "erm"}),
    "mixup": LastLayerMethod({"name": f"{_CACHED}:Mixed", "view": "mixup"}, ("mixup",)),
    "cutmix": LastLayerMethod({"name": f"{_CACHED}:Mixed", "view": "cutmix"}, ("cutmix",)),
    "cutout": LastLayerMethod(
        {"name": f"{_CACHED}:Augmented", "view": "cutout", "p": 0.1}, ("cutout",)
    ),
    "augmix": LastLayerMethod({"name": f"{_CACHED}:AugMixed"}, ("augmix.1", "augmix.2")),
    "sd": LastLayerMethod({"name": "sd", "weight": 1e-4, "penalised": "true_class"}),
    "watermark_augmentation": LastLayerMethod(
        {"name": f"{_CACHED}:Augmented", "view": "watermark", "p": 0.5}, ("watermark",)
    ),
    "lff": LastLayerMethod({"name": "lff"}),
    "jtt": LastLayerMethod({"name": "jtt"}),
    "eiil": LastLayerMethod({"name": "eiil"}),
    "debian": LastLayerMethod({"name": "debian"}),
    "lle": LastLayerMethod(
        {"name": f"{_CACHED}:Ensemble", "shifts": ["watermark"]}, ("watermark",)
    ),
}


def variants(methods: list[str]) -> list[str]:
    """Every view of the training photos that these methods read, the clean one first."""
    return list(
        dict.fromkeys(
            ["clean", *(variant for name in methods for variant in METHODS[name].variants)]
        )
    )
