"""Methods that use cues, each against a case worked by hand or a library that solves the
same."""

from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from conftest import refused
from diagvib.methods import dfr
from diagvib.methods.balancing import SubG
from diagvib.methods.groups import domain_index, equal_groups, group_index
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.trainer import Trainer
from test_methods import PROTOCOL, RUN, annotated, fit, known, made
from test_trainer import Interrupted, Interruption


@pytest.fixture(scope="module")
def data():
    train = annotated(96, 0)
    return train, annotated(24, 1, scaling=train.scaling)


def test_domains_are_the_combinations_of_cues_that_occur():
    data = known([0, 0, 0, 2, 2, 2], [[1, 0], [1, 1], [2, 0], [1, 0], [2, 0], [2, 0]])
    index, domains = domain_index(data, "cues")
    assert domains == 3 and index.tolist() == [0, 1, 2, 0, 2, 2], "no image has 2 and 1"
    index, domains = domain_index(data, "cue-2")
    assert domains == 2 and index.tolist() == [0, 1, 0, 0, 0, 0]


def test_an_image_trains_its_own_domains_head_alone(data):
    """All start as the network's own, and their mean predicts."""
    method, train = made("di"), data[0]
    plain = made("erm").eval()
    method.setup(train.training_data())
    heads = method.eval().model.head
    batch = train.batch((train.cues[:, 0] == 1).nonzero()[:5, 0])
    assert len(heads) == 3
    assert torch.allclose(method.predict(batch), plain.predict(batch), atol=1e-6)
    with torch.no_grad():
        for shift, head in enumerate(heads):
            head.bias.add_(torch.arange(6) * shift)
    logits = [head(method.model.features(batch.inputs)) for head in heads]
    output = method.training_step("classify", batch, lambda name, loss: loss.backward())
    assert torch.allclose(output.logits, logits[1], atol=1e-6)
    assert [bool(head.weight.grad.any()) for head in heads] == [False, True, False]
    assert torch.allclose(method.predict(batch), sum(logits) / 3, atol=1e-6)


def test_subg_trains_on_one_subset_of_equal_groups(data, monkeypatch):
    train, subsets, sampling = data[0], [], SubG.sampling

    def noted(*arguments):
        subsets.append(sampling(*arguments))
        return subsets[-1]

    monkeypatch.setattr(SubG, "sampling", noted)
    for sample in (0, 1):
        Trainer(made("subg"), *data, replace(RUN, sample=sample), PROTOCOL).fit()
    assert len(subsets) == 2, "drawn once in a run"
    groups = torch.stack([train.labels, train.cues[:, 0]], 1)
    smallest = groups.unique(dim=0, return_counts=True)[1].min()
    assert groups[subsets[0]].unique(dim=0, return_counts=True)[1].tolist() == [smallest] * 9
    assert len(subsets[0].unique()) == len(subsets[0]), "no image twice"
    assert not torch.equal(*subsets), "another dataset, another draw"


def features_of(method, train):
    with torch.no_grad():
        return torch.cat([method.eval().model.features(batch.inputs) for batch in train.in_order()])


def decisions(train, features, index, c, scaler=None):
    """scikit-learn's outputs for all images after learning from those in `index`: [N, classes], or
    [N] for two."""
    x, y = features.double().numpy(), train.labels.numpy()
    x = (scaler or StandardScaler().fit(x)).transform(x)
    solver = LogisticRegression(C=c, l1_ratio=1, solver="liblinear", random_state=0)
    solver = OneVsRestClassifier(solver).fit(x[index.numpy()], y[index.numpy()])
    return torch.from_numpy(solver.decision_function(x)).float()


@pytest.mark.parametrize("resamples", [1, 3])
def test_the_head_of_dfr_is_logistic_regression_on_the_balanced_subset(data, resamples):
    train = data[0]
    method = made("dfr", c=0.3, resamples=resamples)
    inputs = train.training_data()
    method.setup(inputs)
    features = features_of(method, train)
    torch.manual_seed(5)
    method.start_phase("retrain", inputs)
    torch.manual_seed(5)
    draws = [equal_groups(method.group, 9).flatten() for _ in range(resamples)]
    assert torch.equal(method.memory["subset"], draws[0])
    expected = sum(decisions(train, features, draw, 0.3) for draw in draws) / resamples
    logits = method.model.head(features)
    assert torch.allclose(logits[:, :3], expected, atol=1e-3)
    assert logits.argmax(1).max() < 3, "the classes that no image has are never predicted"
    assert torch.equal(features_of(method, train), features), "the features do not change"


def test_the_head_of_dfr_may_be_learnt_from_validation_images(data):
    """Its features are standardised like the training images', from which it learns nothing else."""
    train, val = data[0], annotated(96, 1, scaling=data[0].scaling)
    method = made("dfr", c=0.3, resamples=1, images="validation")
    inputs = replace(train.training_data(), validation=val.training_data())
    method.setup(inputs)
    torch.manual_seed(5)
    method.start_phase("retrain", inputs)
    torch.manual_seed(5)
    draw = equal_groups(group_index(inputs.validation, "cues", "dfr")[0], 9).flatten()
    features = features_of(method, val)
    scaler = StandardScaler().fit(features_of(method, train).double().numpy())
    expected = decisions(val, features, draw, 0.3, scaler)
    assert torch.allclose(method.model.head(features)[:, :3], expected, atol=1e-3)
    assert method.sampling("retrain", inputs) is None


def test_of_two_classes_dfr_gives_the_regressions_probabilities():
    train = annotated(96, 0)
    train.labels = train.labels.clamp(max=1)
    method = made("dfr", c=1.0, resamples=1)
    method.setup(train.training_data())
    method.start_phase("retrain", train.training_data())
    features = features_of(method, train)
    expected = decisions(train, features, method.memory["subset"], 1.0).sigmoid()
    assert torch.allclose(method.model.head(features).softmax(1)[:, 1], expected, atol=1e-3)


def test_dfr_chooses_the_strength_that_is_best_in_the_worst_group():
    """A weak cue among noise, in two groups of each of two classes: a weak penalty learns the noise
    too."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(160) // 80
    features = torch.randn(160, 40, generator=generator, dtype=torch.float64)
    features[:, 0] += 0.8 * (2 * labels - 1)
    subset = torch.arange(160).view(4, 40)
    fitted, judgement = subset[:, :20], subset[:, 20:]
    worst = []
    for c in dfr.STRENGTHS:
        solver = LogisticRegression(C=c, l1_ratio=1, solver="liblinear", random_state=0)
        solver.fit(features[fitted.flatten()].numpy(), labels[fitted.flatten()].numpy())
        worst.append(
            min(solver.score(features[group].numpy(), labels[group].numpy()) for group in judgement)
        )
    assert len(set(worst)) > 2 and worst[0] < max(worst)
    assert dfr.best_strength(features, labels, subset) == dfr.STRENGTHS[worst.index(max(worst))]


def test_dfr_cannot_choose_on_groups_of_one_image():
    made("dfr", c=None).setup(known([0, 0, 2, 2], [[1]] * 4))
    data = known([0, 0, 0, 2], [[1]] * 4)
    with refused("the smallest group has only one training image.* give c, such as 0.1"):
        made("dfr", c=None).setup(data)
    assert [phase.name for phase in made("dfr", c=0.1).phases(data)] == ["classify", "retrain"]


def test_retraining_by_gradient_moves_the_head_alone(data, tmp_path):
    """Batch norm learns in the first phase only, also where the second is resumed."""
    options = {"head": "sgd", "retrain_epochs": 2, "c": None, "resamples": 10}
    entire, calls = made("dfr", **options), {}

    class Watched(Interruption):
        def on_epoch(self, row):
            weights = entire.model.state_dict().items()
            calls[row["epoch"]] = {name: value.clone() for name, value in weights}

    history, final = fit(entire, data, None, Watched())
    assert [row["phase"] for row in history] == ["classify"] * 2 + ["retrain"] * 2
    best = min(history[:2], key=lambda row: row["val_loss"])["epoch"]
    for name, value in calls[best].items():
        for single, alternative in ((value, calls[4][name]), (calls[3][name], calls[4][name])):
            assert torch.equal(single, alternative) != name.startswith("head."), name
    assert not torch.equal(calls[1]["body.1.running_mean"], calls[2]["body.1.running_mean"])
    checkpoint = Checkpoint(tmp_path / "state.pt", "d")
    with pytest.raises(Interrupted):
        fit(made("dfr", **options), data, checkpoint, Interruption(epoch=3))
    assert fit(made("dfr", **options), data, checkpoint) == (history, final)
