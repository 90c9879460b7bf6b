"""Prune: what is listed, what is deleted, and what never is."""

from pathlib import Path

import pytest
import yaml

from conftest import refused
from diagvib.commands.prune import find_unneeded, prune
from diagvib.settings.baselines import load_settings
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config


def asking(root: str | Path, study: str = "zgo", baseline: str = "small_cnn") -> Configuration:
    """A configuration of one dataset and one run."""
    request = (f"root={root}", f"studies=[{study}]", f"baselines=[{baseline}]")
    return load_config(overrides=[*request, "samples=1", "bindings=[hue-shape]"])


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


@pytest.fixture
def grown(tmp_path, monkeypatch) -> list[str]:
    """In the current folder, a results folder that holds more than one configuration asks for; what
    is beyond it."""
    monkeypatch.chdir(tmp_path)
    layout = Layout(Path("."))
    for sample in range(2):
        touch(layout.images("zgo", "hue-shape") / str(sample) / "test.parquet")
    for baseline in ("small_cnn", "resnet18"):
        for study in ("zgo", "chgo"):
            touch(layout.runs(baseline, study, "hue-shape") / "0" / "run.json")
    for path in (
        layout.recipes("zgo", "hue-shape"),
        layout.recipes("zso", "hue"),  # on which baselines are tuned
        layout.recipes("zgo", "shape-hue"),
        layout.digests("zgo", "hue-shape"),
        layout.runs("small_cnn", "zgo", "hue-shape") / "sha256.json",
        layout.tables / "runs.csv",
        layout.checkpoints("resnet18", "zgo", "hue-shape") / "0.pt",
    ):
        touch(path)
    layout.all_features.mkdir(parents=True)  # as DVC records it where there are none
    return [
        "data/checkpoints/resnet18",
        "data/images/zgo/hue-shape/1",
        "data/recipes/zgo/shape-hue.parquet",
        "results/runs/resnet18",
        "results/runs/small_cnn/chgo",
    ]


def test_features_are_kept_also_those_that_tuning_reads(tmp_path):
    settings = {**load_settings("small_cnn"), "model": {"name": "small_cnn", "frozen": True}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"frozen": settings}))
    request = ["studies=[zgo]", "bindings=[hue-shape]", "baselines=[frozen]", "samples=1"]
    request += [f"root={tmp_path}", f"baselines_from=[{tmp_path / 'own.yaml'}]"]
    config, layout = load_config(overrides=request), Layout(tmp_path)
    (entry,) = config.baselines
    for study, binding in (("zgo", "hue-shape"), (config.tuning.study, "hue"), ("chgo", "hue")):
        touch(layout.features(entry.network, study, binding) / "features.json")
    (result,) = find_unneeded([config])
    assert result.match("*/chgo")


def test_datasets_of_cues_in_another_order_are_kept(tmp_path):
    request = [
        "studies=[whac-95]",
        "bindings=all",
        f"root={tmp_path}",
        "samples=1",
        "counts.test=3240",
    ]
    request += ["baselines=[{name: small_cnn, bindings: [shape-hue-position]}]"]
    config = load_config(overrides=request)
    touch(Layout(tmp_path).recipes("whac-95", "shape-hue-position"))
    assert find_unneeded([config]) == []


def test_what_no_configuration_asks_for_is_listed(grown):
    assert sorted(map(str, find_unneeded([asking(".")]))) == grown
    pair = [str(path) for path in find_unneeded([asking("."), asking(".", baseline="resnet18")])]
    assert "results/runs/resnet18/chgo" in pair and "results/runs/resnet18" not in pair


def test_image_files_are_not_needed_where_images_are_rendered_in_training(grown):
    config = load_config(
        overrides=["root=.", "studies=[zgo]", "bindings=[hue-shape]", "images=render"]
    )
    assert Path("data/images") in find_unneeded([config])


def test_it_is_deleted_only_after_a_yes(grown, monkeypatch):
    def files() -> set[Path]:
        return {path for path in Path(".").rglob("*") if path.is_file()}

    before = files()
    prune([asking(".")], yes=False, dry_run=True)
    for answer in (False, True):
        assert files() == before
        monkeypatch.setattr("typer.confirm", lambda question, answer=answer: answer)
        prune([asking(".")], yes=False, dry_run=False)
    deleted = before - files()
    assert {path for path in before if any(path.is_relative_to(item) for item in grown)} == deleted
    assert find_unneeded([asking(".")]) == []


def test_of_a_link_what_it_leads_to_stays_and_nothing_goes_while_a_workflow_runs(grown):
    link = Path("results/runs/resnet18")
    link.rename("elsewhere")
    link.symlink_to(Path("elsewhere").resolve())
    lock = touch(Path(".snakemake/locks/0.input.lock"))
    with refused("a workflow is running here"):
        prune([asking(".")], yes=True, dry_run=False)
    assert link.is_symlink()
    lock.unlink()
    prune([asking(".")], yes=True, dry_run=False)
    assert not link.is_symlink() and Path("elsewhere/zgo/hue-shape/0/run.json").exists()


def test_a_root_is_known_however_it_is_written(tmp_path, monkeypatch):
    """Two configurations of one root."""
    monkeypatch.chdir(tmp_path)
    root = Layout(tmp_path / "mine")
    zso, zgo = touch(root.recipes("zso", "hue")), touch(root.recipes("zgo", "hue-shape"))
    beyond = touch(root.recipes("chgo", "hue-shape"))
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for spelling in ("mine", "other/../mine", tmp_path / "mine", "link"):
        configs = [asking("mine", "zso"), asking(spelling)]
        assert [path.resolve() for path in find_unneeded(configs)] == [beyond.parent]
    prune(configs, yes=True, dry_run=False)
    assert zso.exists() and zgo.exists() and not beyond.exists()


def test_images_that_roots_share_by_a_link_are_kept_for_each(tmp_path):
    roots = Layout(tmp_path / "a"), Layout(tmp_path / "b")
    touch(roots[0].digests("zgo", "hue-shape"))
    beyond = touch(roots[0].digests("fgo-20", "hue-shape")).parents[1]
    roots[1].all_images.parent.mkdir(parents=True)
    roots[1].all_images.symlink_to(roots[0].all_images)
    touch(tmp_path / "runs/zgo/hue-shape/0/run.json")
    roots[1].all_runs.mkdir(parents=True)
    (roots[1].all_runs / "small_cnn").symlink_to(tmp_path / "runs")
    configs = [asking(tmp_path / "a", "chgo"), asking(tmp_path / "b")]
    assert {path.resolve() for path in find_unneeded(configs)} == {beyond}


def test_an_unfinished_training_that_is_asked_for_is_kept(tmp_path):
    layout = Layout(tmp_path)
    subject = touch(layout.checkpoints("small_cnn", "zgo", "hue-shape") / "0.pt")
    alternative = touch(layout.checkpoints("resnet18", "zgo", "hue-shape") / "0.pt")
    touch(layout.digests("zgo", "hue-shape"))
    (result,) = find_unneeded([asking(tmp_path)])
    assert alternative.is_relative_to(result.resolve()) and not subject.is_relative_to(
        result.resolve()
    )
