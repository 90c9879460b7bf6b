"""A network: features, and a head that turns them into logits."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.hooks import check_hooks
from diagvib.foundation.plug_ins import reason

# Those of published transformers and of inception_v3.
_SIZES = (224, 256, 299, 384, 192, 240, 336, 448, 512, 518)


class Network(nn.Module):
    """A classifier in two parts: images float[B, 3, H, W] -> `features` float[B, D] -> `head`,
    logits [B, classes].

    A method may read the features, and train or replace the head alone. separable: whether it may;
    if not (a network that does not end in a linear layer), `features` gives the logits and `head`
    does nothing. has_features: whether `features` are other than the logits. frozen_statistics:
    batch norm in the body normalises as in evaluation, also during training. dropout: the share of
    the features that are 0 during training. cut_from: the head's name in the model that was cut.
    """

    frozen_statistics = False
    cut_from = ""
    dropout = 0.0

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        check_hooks(cls, Network, "model")

    def __init__(self, body: nn.Module, head: nn.Module, *, separable: bool = True):
        super().__init__()
        self.body, self.head = body, head
        self.separable = self.has_features = separable

    def features(self, inputs: Tensor) -> Tensor:
        output = self.body(inputs)
        # googlenet and inception_v3 add auxiliary logits while training.
        return self.dropped((output[0] if isinstance(output, tuple) else output).flatten(1))

    def dropped(self, features: Tensor) -> Tensor:
        """Features of which training sets a share to 0."""
        return F.dropout(features, self.dropout, self.training) if self.dropout else features

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.features(inputs))

    def train(self, mode: bool = True) -> "Network":
        super().train(mode)
        if self.frozen_statistics:
            for module in self.body.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


class Whole(Network):
    """A network that does not say where its head begins: its logits are always its own.

    `features`: the input of the last linear layer with `n_classes` outputs that ran, or, without
    one, the logits. `head`: for these features, the logits of the same pass.
    """

    def __init__(self, net: nn.Module, n_classes: int):
        super().__init__(net, _SamePass(), separable=False)
        self.n_classes = n_classes

    def features(self, inputs: Tensor) -> Tensor:
        read = []

        def note(layer: nn.Module, inputs: tuple, output: Tensor) -> None:
            if isinstance(layer, nn.Linear) and layer.out_features == self.n_classes and inputs:
                read.append(inputs[0])

        with register_module_forward_hook(note):
            logits = super().features(inputs)
        self.has_features = bool(read) and read[-1].ndim > 1 and len(read[-1]) == len(logits)
        features = read[-1].flatten(1) if self.has_features else logits
        self.head.outputs = features, logits
        return features


class _SamePass(nn.Module):
    outputs = (None, None)

    def forward(self, features: Tensor) -> Tensor:
        if features is not self.outputs[0]:
            raise DiagvibError(
                "the head of a model that is neither a diagvib.models.network.Network nor an "
                "nn.Sequential that ends in a linear layer only gives the logits of the features that "
                "`features` gave last; return Network(body, head)"
            )
        return self.outputs[1]

    def __getstate__(self) -> dict:  # of a copy, which has made nothing
        return {**vars(self), "outputs": (None, None)}


class Heads(nn.ModuleList):
    """Heads that read the same features; together they give the mean of their logits."""

    def each(self, features: Tensor) -> Tensor:
        """Logits [B, heads, classes]."""
        return torch.stack([head(features) for head in self], 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.each(features).mean(1)


@torch.no_grad()
def _output(net: nn.Module, image_size: int) -> object:
    # Channels last, as images are.
    return net(torch.zeros(2, image_size, image_size, 3).permute(0, 3, 1, 2))


def _accepted(net: nn.Module) -> str:
    """A remedy for a network of a fixed size, such as most transformers."""
    of_timm = getattr(net, "pretrained_cfg", None)
    own = of_timm.get("input_size", ())[1:2] if isinstance(of_timm, dict) else ()
    for size in (*own, *_SIZES):
        try:
            _output(net, size)
        except (Exception, SystemExit):
            continue
        return (
            f"; it takes {size} x {size}: --input-size {size} of `diagvib evaluate`, input: {{size: "
            f"{size}}} of a frozen model, or image_size: {size}"
        )
    return ""


def check_logits(net: nn.Module, location: str, n_classes: int, image_size: int) -> None:
    """DiagvibError, beginning with `location`, unless `net`, unchanged, turns two images into
    logits."""
    try:
        output = _output(net, image_size)
    except (Exception, SystemExit) as error:  # the network may be a user's
        raise DiagvibError(
            f"{location} cannot be used on images of {image_size} x {image_size} pixels: "
            f"{reason(error)}{_accepted(net)}"
        ) from None
    output = output[0] if isinstance(output, tuple) else output
    if not isinstance(output, torch.Tensor):
        raise DiagvibError(
            f"{location}: its module returns {type(output).__name__}; return the logits, a tensor"
        )
    if output.shape != (2, n_classes) or not output.is_floating_point():
        raise DiagvibError(
            f"{location}: its module turns 2 images into {output.dtype} of shape {tuple(output.shape)}; "
            f"logits of shape (2, {n_classes}) are needed"
        )


def last_linear(net: nn.Module) -> tuple[str, nn.Linear] | None:
    """The name and module of the last linear layer in `net`; None if there is none."""
    linear = [
        (name, module)
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and name
    ]
    return linear[-1] if linear else None


def separated(net: nn.Module, n_classes: int) -> Network:
    """`net` cut before its last linear layer, if that layer gives its `n_classes` logits."""
    last_layer = last_linear(net)
    if last_layer is None or last_layer[1].out_features != n_classes:
        return Network(net, nn.Identity(), separable=False)
    net.set_submodule(last_layer[0], nn.Identity())
    network = Network(net, last_layer[1])
    network.cut_from = last_layer[0]
    return network


@torch.no_grad()
def separated_if_equal(net: nn.Module, n_classes: int, image_size: int) -> Network:
    """Like `separated`, for timm's networks: kept whole if head(features(x)) would not be
    net(x)."""
    probe = torch.zeros(2, 3, image_size, image_size)
    net.eval()
    outputs, last_layer = net(probe), last_linear(net)
    network = separated(net, n_classes)
    if network.separable and not probe.is_meta:
        try:
            equal = torch.equal(network.head(network.eval().body(probe)), outputs)
        except Exception:  # of two heads, whose logits are averaged
            equal = False
        if not equal:
            net.set_submodule(*last_layer)
            return Network(net, nn.Identity(), separable=False)
    return network
