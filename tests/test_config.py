"""Configurations: errors are reported with file and key; valid ones resolve to the promised
grid."""

from pathlib import Path

import pytest

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path
from diagvib.settings.jobs import stage_settings
from diagvib.settings.resolve import check_selection, load_config, with_baseline, with_paths
from diagvib.studies.study import load_study

CONFIGS = ["config", "demo", "ci"]


def load(name: str = "config", *overrides: str) -> dict:
    return load_config(definition_path(f"{name}.yaml"), list(overrides))


def test_configurations_do_not_share_a_root():
    assert len({load(name).root for name in CONFIGS}) == len(CONFIGS)


def test_a_baseline_may_be_restricted():
    jobs = load("ci").train_jobs
    assert [job for job in jobs if job[0] == "resnet18"] == [("resnet18", "zgo", "shape-hue")]
    assert len([job for job in jobs if job[0] == "small_cnn"]) == len(load("ci").datasets) == 9


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "bindings=[shape-hue, shape-hue-texture]",
            "bindings: study zgo: 'shape-hue-texture' names 3 factors",
        ),
        (
            "training.precison=fp32",
            "unknown key 'training.precison'; did you mean training.precision",
        ),
        ("studies=[zgo, cgo-9]", "studies: unknown study 'cgo-9'; did you mean cgo-3"),
        (
            "baselines=[{name: small_cnn, studies: [zgo], bindings: [shape]}]",
            "'shape' names 1 factors for 2 roles (target, cue)",
        ),
        (
            "baselines=[resnet19]",
            "baselines: unknown baseline 'resnet19'; did you mean resnet18",
        ),
        ("baselines=[small_cnn, small_cnn]", "small_cnn is listed twice; list it once"),
        ("counts.train=1e4", "valid integer, not '1e4'; write it without an exponent, like 100000"),
        ("samples=0", "samples: must be greater than or equal to 1, not 0"),
        ("samples=1000000000", "samples: must be less than or equal to 100000"),
        ("root.sub=1", "root: must be a valid string"),
        (
            "root=/scratch/$USER/runs",
            "root: '/scratch/$USER/runs' cannot be used; name a folder in at most 1,000 letters",
        ),
        ("mirror=~/photos", "mirror: '~/photos' cannot be used; write the path out"),
    ],
)
def test_a_mistake_is_named_with_its_place(override, says):
    with pytest.raises(DiagvibError) as error:
        load("config", override)
    message = str(error.value)
    assert says in message and f" --set {override}: " in message and "\n" not in message


def test_a_mapping_of_set_is_merged_as_by_snakemake(tmp_path):
    (tmp_path / "own.yaml").write_text("training: {max_epochs: 7}\ncounts: {train: 900}")
    config = load_config(
        tmp_path / "own.yaml",
        ["training={seed: 3, threads: 2}", "counts={val: 90}", "training.threads=1"],
    )
    assert [getattr(config.training, key) for key in ("max_epochs", "seed", "threads")] == [7, 3, 1]
    assert config.counts == {"train": 900, "val": 90, "id": 10000, "ood": 10000}


def test_with_a_file_and_set_a_mistake_names_both(tmp_path):
    (tmp_path / "own.yaml").write_text("smaples: 3")
    with refused("own.yaml --set samples=2: unknown key 'smaples'"):
        load_config(tmp_path / "own.yaml", ["samples=2"])


def test_a_restriction_must_lie_inside_the_grid():
    with refused("small_cnn: studies: zso is not among the configuration's studies"):
        load("config", "studies=[zgo]", "baselines=[{name: small_cnn, studies: [zso]}]")


def test_a_stage_sees_only_what_it_depends_on():
    small = load("config", "samples=2")
    alternative = load("config", "samples=2", "training.max_epochs=3", "bindings=[shape-hue]")
    elsewhere = load("config", "samples=2", "root=elsewhere", "mirror=elsewhere", "device=cpu")
    images = [("fetch",), ("prepare",), ("draw", "zgo"), ("render", "zgo")]
    for names in (*images, ("train", "zgo", "resnet18"), ("tabulate",), ("plot",)):
        settings_ = stage_settings(small, *names)
        assert settings_ == stage_settings(elsewhere, *names)
        assert (settings_ == stage_settings(alternative, *names)) == (names in images), names


def test_a_stage_of_a_baseline_that_is_not_asked_for():
    with refused("unknown baseline 'resnet81'; did you mean resnet18"):
        with_baseline(load(), "train", "resnet81")
    with refused(
        r"^small_cnn is not among .* resnet50.*; add it there, or with --set 'baselines=",
    ):
        with_baseline(load(), "train", "small_cnn")
    single = load("config", "baselines=[small_cnn]")
    assert stage_settings(single, "train", "zgo", "small_cnn").baseline.model.name == "small_cnn"


def test_tuned_factors_have_enough_classes(tmp_path):
    (tmp_path / "wide.yaml").write_text(
        "title: Mine\nstudies:\n  wide:\n    title: Wide\n    meaning: nothing is a cue\n"
        "    roles: {target: 6}\n    rows:\n      - {splits: [train, val, test], group: id, "
        "cells: [[0], [1], [2], [3], [4], [5]]}\n"
    )
    overrides = [f"studies_from=['{tmp_path / 'wide.yaml'}']", "tuning.study=wide"]
    assert load("config", *overrides, "tuning.factors=[hue]").tuning.study == "wide"
    with refused("study wide: target has 6 classes, but lightness .* as by tuning: {factors: .hue"):
        load("config", *overrides, "tuning.factors=[lightness, hue]")


def test_test_images_are_counted_by_group_or_together():
    two = ["studies=[whac-95]", "bindings=[shape-hue-texture]"]
    assert load("config", *two, "counts.test=540").counts["test"] == 540
    groups = [
        f"counts.{group}={count}"
        for group, count in (("common", 60), ("no-cue-1", 120), ("no-cue-2", 120), ("neither", 240))
    ]
    assert load("config", *two, *groups).counts["neither"] == 240
    for overrides, says in (
        (
            two,
            "the group common of study whac-95 has no number of images; add counts.common, or give only counts.test",
        ),
        (
            [*two, *groups[:2], "counts.test=540"],
            "the group no-cue-2 of study whac-95 has no number of images; add counts.no-cue-2$",
        ),
        (
            [*two, *groups, "counts.test=540"],
            "counts.test: every group of the studies already has its own number",
        ),
    ):
        with refused(says):
            load("config", *overrides)


def test_patience_needs_a_rule_that_can_prefer_an_earlier_epoch(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "kept: {model: small_cnn, method: jtt, optimiser: {name: adam, lr: 1.0e-3}, batch_size: 64, origin: ours}\n"
        "last: {model: small_cnn, method: erm, optimiser: {name: adam, lr: 1.0e-3}, batch_size: 64, selection: last, "
        "origin: ours}\n"
    )
    overrides = [
        "studies=[zgo]",
        f"baselines_from=[{tmp_path / 'mine.yaml'}]",
        "training.patience=3",
    ]
    says = r"last: training\.patience: 3 never stops a training with selection: last"
    with refused(says):
        load("config", *overrides, "baselines=[kept, last]")
    load("config", *overrides[:2], "baselines=[kept, last]")
    # Only a phase of jtt keeps its last epoch.
    config = load("config", *overrides, "baselines=[kept]")
    with refused(says):
        with_baseline(config, "tune", "last")
    with refused(
        "baselines: config/baselines, .*mine.yaml: unknown baseline 'kepd'; did you mean kept"
    ):
        load("config", *overrides[:2], "baselines=[kepd]")


@pytest.mark.parametrize(
    ("rule", "lacks", "has"),
    [
        ("val_worst_group", "zso", "zgo"),
        ("val_worst_group_cue_1", "fgo-20", "whac-95"),
        ("val_worst_group_cue_3", "whac-95", None),
        ("val_environment_accuracy", "whac-95", "o2o-easy"),
    ],
)
def test_a_selection_that_a_study_lacks_is_named_at_planning(rule, lacks, has):
    with refused(f"study {lacks}: selection: {rule} needs cues or env"):
        check_selection(rule, [load_study(lacks)])
    if has:
        check_selection(rule, [load_study(has)])


def test_files_that_a_configuration_names_are_named_from_the_current_folder(tmp_path, monkeypatch):
    """As in a clone elsewhere, although Snakemake's path of the configuration is absolute."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/mine.yaml").write_text("{}")
    for path in (tmp_path / "lab/config.yaml", Path("lab/config.yaml")):
        config = with_paths({"studies_from": ["mine.yaml"], "baselines_from": ["b.yaml"]}, path)
        assert config == {"studies_from": ["lab/mine.yaml"], "baselines_from": ["b.yaml"]}


@pytest.mark.parametrize("written", ["./outputs/mine/", "outputs//mine"])
def test_a_root_has_one_name_however_it_is_written(written):
    assert load_config(overrides=[f"root={written}"]).root == "outputs/mine"


@pytest.mark.parametrize(
    ("studies", "baseline", "says"),
    [
        (
            "zgo",
            "group_dro",
            "study zgo: method: group_dro needs train images of every combination",
        ),
        (
            "cgo-1, zgo, fgo-1",
            "group_dro",
            "group_dro: studies cgo-1, zgo: method",
        ),
        ("o2o-easy", "group_dro", "choose `supervision: environments`; or restrict .* `studies`"),
        ("o2o-easy", "rwg", "choose another method"),
    ],
)
def test_groups_that_a_studys_rows_leave_empty_are_named_before_anything_runs(
    studies, baseline, says
):
    selection = [f"studies=[{studies}]", f"baselines=[{baseline}]", "samples=1"]
    with refused(says):
        load_config(None, selection)


HELD_OUT = """
held_out:
  model: small_cnn
  method: {name: llr, held_out: 0.99}
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 16
  origin: a test
"""


@pytest.mark.parametrize(
    ("study", "baseline", "change", "says"),
    [
        (
            "o2o-easy",
            "{name: coral, batch_size: 3}",
            "",
            "batch_size is 3 .* raise it to 4 or more",
        ),
        ("fgo-20", "asr", "image_size=72", "asr: image_size 72 .*; lower levels, or choose .* 64$"),
        ("fgo-20", "factor_vae", "image_size=72", "factor_vae: image_size 72 .* image_size 64$"),
        (
            "fgo-20",
            "dfr",
            "counts.train=40",
            "two train images .*; raise counts.train, or change head",
        ),
        (
            "fgo-20",
            "held_out",
            "counts.train=60",
            "held_out: 0.99 leaves none of the 60 training images",
        ),
    ],
)
def test_what_a_method_would_lack_is_named_before_anything_runs(
    tmp_path, monkeypatch, study, baseline, change, says
):
    monkeypatch.chdir(tmp_path)
    Path("baselines.yaml").write_text(HELD_OUT)
    selection = [
        "samples=1",
        "baselines_from=[baselines.yaml]",
        f"studies=[{study}]",
        f"baselines=[{baseline}]",
    ]
    with refused(says):
        load_config(None, [*selection, *filter(None, [change])])
