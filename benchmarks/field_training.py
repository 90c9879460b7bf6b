"""How diagvib and the training code of others train one network on the images of a root, for
field_code.py.

The code of others runs unmodified. WILDS' `run_expt` takes only the datasets, models and optimisers
that it lists, one of them of older transformers, and needs torch_scatter: those names lead to ours,
and torch averages groups. SubpopBench and DomainBed are used by algorithm: `update` on batches of
their loaders, since their scripts also take listed datasets only.
"""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, Subset
from torchvision.transforms import Normalize, ToPILImage

import diagvib
from diagvib import stages
from diagvib.foundation.files import read_table, read_yaml, write_text
from diagvib.models.network import Network
from diagvib.models.small_cnn import small_cnn
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config

STUDY, BINDING, SIZE = "fgo-20", "shape-hue", 64
CUE = BINDING.split("-")[1]
BATCH, RATE, STEP_SIZE = 36, 1e-3, 0.01
COUNTS = {"train": 2160, "val": 360, "id": 900, "ood": 900}
ALGORITHMS = {"erm": "ERM", "group_dro": "GroupDRO", "mmd": "MMD"}  # in the code of others
CHECKOUTS = ("wilds", "SubpopBench", "DomainBed")
# In which all but diagvib's trainer and WILDS' script get images, as SubpopBench and DomainBed do.
IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_BASELINE = """
{method}_here:
  model: small_cnn
  method: {method}
  optimiser: {{name: adam, lr: {rate}}}
  batch_size: {batch}
  selection: last
  origin: benchmarks/field_code.py
"""


def network(classes: int) -> Network:
    return small_cnn({"options": {}}, classes, SIZE)


def images(layout: Layout, split: str) -> diagvib.StudyDataset:
    return diagvib.load(
        STUDY,
        BINDING,
        split,
        root=layout.root,
        dtype="float32",
        metadata="tensor",
        classes="sample",
        transform=IMAGENET,
    )


class WithAttribute(Dataset):
    """Images as SubpopBench's datasets return them: number, image, class, attribute."""

    def __init__(self, data: diagvib.StudyDataset):
        self.data, cue = data, data.metadata_fields.index(CUE)
        _, self.attributes = data.metadata_array[:, cue].unique(return_inverse=True)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return i, *self.data[i][:2], self.attributes[i]


def parts_of_groups(data: diagvib.StudyDataset) -> list[torch.Tensor]:
    """The images of each combination of a class and an attribute."""
    groups = data.n_classes * WithAttribute(data).attributes + data.targets
    return [torch.where(groups == group)[0] for group in groups.unique()]


@torch.no_grad()
def predictions(net: nn.Module, test: diagvib.StudyDataset) -> np.ndarray:
    """The names of the predicted classes."""
    net.eval()
    batches = torch.utils.data.DataLoader(test, batch_size=256)
    labels = torch.cat([net(images).argmax(1) for images, *_ in batches])
    return np.array(test.classes)[labels]


def by_diagvib(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    """Train on the images of a root; returns the predictions for its test images."""
    file = layout.root / "baselines.yaml"
    baseline = f"{method}_here"
    write_text(file, _BASELINE.format(method=method, rate=RATE, batch=BATCH))
    stages.train(
        layout,
        stage_settings(configuration(layout, epochs, seed, file), "train", STUDY, baseline),
        baseline,
        STUDY,
        BINDING,
        "cpu",
    )
    table = read_table(layout.runs(baseline, STUDY, BINDING) / "0/predictions.parquet")
    return table["prediction"].to_numpy(zero_copy_only=False)


def configuration(layout: Layout, epochs: int, seed: int = 0, baselines: Path | None = None):
    names = ["baselines=[small_cnn]"]
    if baselines:
        names = [f"baselines_from=[{baselines}]", f"baselines=[{', '.join(read_yaml(baselines))}]"]
    counts = ", ".join(f"{name}: {count}" for name, count in COUNTS.items())
    return load_config(
        None,
        [
            f"root={layout.root}",
            "sources=embedded",
            f"studies=[{STUDY}]",
            f"bindings=[{BINDING}]",
            "samples=1",
            f"counts={{{counts}}}",
            f"image_size={SIZE}",
            f"training={{max_epochs: {epochs}, seed: {seed}, precision: fp32}}",
            *names,
        ],
    )


def by_wilds(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    """`run_expt` on PIL images, which its transforms take."""
    import run_expt

    dataset = diagvib.load(
        STUDY,
        BINDING,
        "all",
        root=layout.root,
        transform=ToPILImage(),
        metadata="tensor",
        classes="sample",
    )
    log = layout.root / f"wilds/{method}/{seed}"
    arguments = {
        "dataset": "iwildcam",  # a name that it knows, with Adam
        "algorithm": {"erm": "ERM", "group_dro": "groupDRO"}[method],
        "root_dir": layout.root,
        "transform": "image_base",
        "model": "resnet18",
        "optimizer": "Adam",
        "lr": RATE,
        "weight_decay": 0,
        "batch_size": BATCH,
        "n_epochs": epochs,
        "group_dro_step_size": STEP_SIZE,
        "val_metric": "acc_wg",
        "seed": seed,
        "log_dir": log,
        "evaluate_all_splits": False,
    }
    lists = {
        "target_resolution": [str(SIZE)] * 2,
        "groupby_fields": [CUE, "y"],
        "loader_kwargs": ["num_workers=0", "pin_memory=False"],
    }
    words = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    words += [part for name, values in lists.items() for part in (f"--{name}", *values)]
    run_expt.wilds = SimpleNamespace(
        **{**vars(run_expt.wilds), "get_dataset": lambda **options: dataset}
    )
    command, sys.argv = sys.argv, ["run_expt.py", *words]
    # Its logger closes the stream that it prints to.
    with redirect_stdout(open(layout.root / "console.txt", "a")):
        run_expt.main()
    sys.argv = command
    torch.set_grad_enabled(True)
    path = log / f"{dataset.dataset_name}_seed:{seed}_epoch:last_model.pth"
    weights = torch.load(path, weights_only=False)["algorithm"]
    net = network(dataset.n_classes)
    net.load_state_dict(
        {
            name.removeprefix("model."): value
            for name, value in weights.items()
            if name.startswith("model.")
        }
    )
    transform = run_expt.initialize_transform(
        "image_base", SimpleNamespace(target_resolution=(SIZE, SIZE), dataset=""), dataset, False
    )
    return predictions(net, dataset.get_subset("test", transform=transform))


def prepare_wilds(examples: Path) -> None:
    """Make WILDS' examples importable, as its README says, with our network among its models."""
    import transformers

    if not hasattr(transformers, "AdamW"):
        transformers.AdamW = torch.optim.AdamW
    if not find_spec("torch_scatter"):
        sys.modules["torch_scatter"] = SimpleNamespace(scatter=_scatter)
    sys.path.insert(0, str(examples))
    from models import initializer

    def initialize_model(config, d_out, is_featurizer=False):
        net = network(d_out)
        net.needs_y = False  # which it asks of every model
        return net

    initializer.initialize_model = initialize_model


def _scatter(src, index, dim_size, reduce):
    """What WILDS takes of torch_scatter."""
    zeros = torch.zeros(dim_size, dtype=src.dtype)
    return zeros.scatter_reduce(0, index, src, reduce, include_self=False)


def by_spuco(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    from spuco.datasets import GroupLabeledDatasetWrapper, WILDSDatasetWrapper
    from spuco.models import SpuCoModel
    from spuco.robust_train import ERM, GroupDRO
    from spuco.utils import set_seed

    set_seed(seed)
    train, test = images(layout, "train"), images(layout, "test")
    data = WILDSDatasetWrapper(train, CUE)
    parts = network(train.n_classes)
    net = SpuCoModel(parts.body, parts.head.in_features, train.n_classes)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    if method == "group_dro":
        data, train_by = GroupLabeledDatasetWrapper(data, data.group_partition), GroupDRO
    else:
        train_by = ERM
    train_by(
        model=net, trainset=data, batch_size=BATCH, optimizer=optimiser, num_epochs=epochs
    ).train()
    return predictions(net, test)


def by_subpopbench(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    from subpopbench.dataset.fast_dataloader import InfiniteDataLoader

    torch.manual_seed(seed)
    train, test = images(layout, "train"), images(layout, "test")
    data = WithAttribute(train)
    algorithm = subpopbench_algorithm(method, network(train.n_classes), train.n_classes)
    # Its own optimiser for images is SGD.
    algorithm.optimizer = torch.optim.Adam(algorithm.network.parameters(), RATE)
    batches = iter(InfiniteDataLoader(data, weights=None, batch_size=BATCH, num_workers=0))
    for step in range(epochs * len(data) // BATCH):
        algorithm.train()
        algorithm.update(next(batches), step)
    return predictions(algorithm.network, test)


def subpopbench_algorithm(method: str, net: Network, classes: int) -> nn.Module:
    """On a copy of a network; as many attributes as classes."""
    from subpopbench.learning.algorithms import get_algorithm_class
    from subpopbench.models import networks

    shape = (3, SIZE, SIZE), classes, classes
    make = partial(get_algorithm_class(ALGORITHMS[method]), "images", *shape, None)
    return algorithm_on(net, networks, make)


def by_domainbed(layout: Layout, method: str, seed: int, epochs: int) -> np.ndarray:
    """For group DRO, its domains are the groups: a batch has as many images of each."""
    from domainbed.lib.fast_data_loader import InfiniteDataLoader

    torch.manual_seed(seed)
    train, test = images(layout, "train"), images(layout, "test")
    algorithm = domainbed_algorithm(method, network(train.n_classes), train.n_classes)
    groups = parts_of_groups(train) if method == "group_dro" else [torch.arange(len(train))]
    loaders = [
        InfiniteDataLoader(Subset(train, group), None, BATCH // len(groups), 0) for group in groups
    ]
    batches = zip(*loaders, strict=True)
    for _ in range(epochs * len(train) // BATCH):
        algorithm.train()
        algorithm.update([(x, y) for x, y, _ in next(batches)])
    return predictions(algorithm.network, test)


def domainbed_algorithm(method: str, net: Network, classes: int) -> nn.Module:
    """On a copy of a network."""
    from domainbed import algorithms, networks

    algorithm_class = algorithms.get_algorithm_class(ALGORITHMS[method])
    return algorithm_on(net, networks, partial(algorithm_class, (3, SIZE, SIZE), classes, 1))


def algorithm_on(
    net: Network, networks: ModuleType, make: Callable[[dict], nn.Module]
) -> nn.Module:
    """An algorithm with a copy of a network. networks: the code's module of that name; make: the
    algorithm from its options."""
    networks.Featurizer = lambda *_: featuriser(net)
    options = {"lr": RATE, "weight_decay": 0, "nonlinear_classifier": False}
    algorithm = make({**options, "groupdro_eta": STEP_SIZE})
    algorithm.classifier.load_state_dict(net.head.state_dict())
    return algorithm


def featuriser(net: Network) -> nn.Module:
    """Its body, as both ask for it."""
    body = deepcopy(net.body)
    body.n_outputs = net.head.in_features
    return body


def prepare(checkouts: Path) -> None:
    """Make the checkouts importable."""
    sys.path += [str(checkouts / name) for name in ("SubpopBench", "DomainBed")]
    if not torch.cuda.is_available():
        torch.Tensor.cuda = lambda tensor: tensor  # where SubpopBench's group DRO keeps its weights
    # Before the names that transformers lacks are added: this makes it load itself anew.
    import_module("subpopbench.models.networks")
    prepare_wilds(checkouts / "wilds/examples")


CODE: dict[str, Callable[[Layout, str, int, int], np.ndarray]] = {
    "diagvib": by_diagvib,
    "WILDS": by_wilds,
    "SpuCo": by_spuco,
    "SubpopBench": by_subpopbench,
    "DomainBed": by_domainbed,
}
