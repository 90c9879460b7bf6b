"""The ImageNet-W workflow: from stand-ins to its tables, its rules, and the paper's size without a
photo."""

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from conftest import REPOSITORY
from diagvib.cli import app
from diagvib.foundation.errors import DiagvibError
from diagvib.imagenet_w import stages
from diagvib.imagenet_w.plan import estimate, is_workflow
from diagvib.imagenet_w.settings import STAGES, load_config, models, resolve, stage_settings
from diagvib.imagenet_w.workflow import photo_state, stage_code
from imagenet_w_photos import cjk_font
from test_house import KEYS
from test_workflow import command, count, environment

RULES = REPOSITORY / "rules" / "imagenet_w.smk"
SMALL = {
    "name": "diagvib.imagenet_w.small_net:small_net",
    "weights": "toy/data/small_net.pt",
    "size": 64,
}
TOY = {
    "root": "toy",
    "stand_ins": {"train": 30, "val": 10},
    "threads": 1,
    "device": "cpu",
    "models": [SMALL],
    "last_layer": {
        "model": SMALL,
        "methods": ["erm", "watermark_augmentation", "lle"],
        "epochs": 20,
        "batch_size": 32,
        "learning_rates": [0.1],
    },
}


def snakemake(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        command("--snakefile", str(RULES), *arguments),
        cwd=folder,
        env=environment(REPOSITORY),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The whole workflow at toy size, once."""
    cjk_font()
    folder = tmp_path_factory.mktemp("imagenet_w")
    (folder / "toy.yaml").write_text(yaml.safe_dump(TOY))
    snakemake(folder, "--configfile", "toy.yaml")
    return folder


def test_a_small_net_falls_for_the_watermark_and_methods_that_know_it_mend_that(made):
    models_ = pd.read_csv(made / "toy/results/tables/models.csv").iloc[0]
    assert models_["in1k_accuracy"] > 60
    assert models_["in_w_gap"] < -5 and models_["carton_gap"] > 20 and models_["delta_p_carton"] > 5
    methods = pd.read_csv(made / "toy/results/tables/last_layer.csv").set_index("method")
    assert list(methods.index) == ["erm", "watermark_augmentation", "lle"]
    for other in ("watermark_augmentation", "lle"):
        assert methods.loc[other, "delta_p_carton"] < methods.loc["erm", "delta_p_carton"]
        assert methods.loc[other, "in_w_gap"] > methods.loc["erm", "in_w_gap"]
    assert methods[["sin_gap", "in_r_gap", "in_9_gap"]].notna().all(axis=None)


def test_tables_say_what_they_were_made_from(made):
    for name in ("models", "last_layer"):
        text = (made / f"toy/results/tables/{name}.md").read_text()
        assert (
            "not comparable to the paper" in text
            and cjk_font().name in text
            and "| paper |" not in text
        )
    result = json.loads((made / "toy/results/last_layer/lle.json").read_text())
    assert result["font"] == cjk_font().name and str(made) not in json.dumps(result)


def test_nothing_runs_again_but_what_a_change_decides(made):
    assert "Nothing to be done" in snakemake(made, "--configfile", "toy.yaml", "-n")
    (made / "more.yaml").write_text(
        yaml.safe_dump(
            {
                **TOY,
                "last_layer": {
                    **TOY["last_layer"],
                    "methods": [*TOY["last_layer"]["methods"], "sd"],
                },
            }
        )
    )
    assert count(snakemake(made, "--configfile", "more.yaml", "-n")) == {
        "last_layer": 1,
        "compare": 1,
        "tables": 1,
    }


def test_the_papers_size_is_planned_without_a_photo(tmp_path):
    found = count(
        snakemake(tmp_path, "--configfile", str(REPOSITORY / "config/imagenet_w.yaml"), "-n")
    )
    assert found == {"evaluate": 13, "features": 1, "last_layer": 12, "compare": 1, "tables": 1}


def test_the_plan_knows_what_will_be_read_and_kept():
    found = estimate(load_config(REPOSITORY / "config/imagenet_w.yaml"))
    assert found["jobs"] == {"evaluate": 13, "features": 1, "last_layer": 12}
    measured = 2 * 50_000 + 50_000 + 30_000 + 4 * 2025
    assert found["passes"] == {"evaluate": 13 * measured, "features": 7 * 1_281_167 + measured}
    demo = REPOSITORY / "config/imagenet_w_demo.yaml"
    shown = CliRunner().invoke(app, ["plan", "--config", str(demo), "--json"])
    assert json.loads(shown.output)["photos"] == {
        "train": 600,
        "val": 200,
        "sin": 200,
        "in_r": 100,
        "in_9": 400,
    }
    assert not is_workflow(REPOSITORY / "config/demo.yaml") and not is_workflow(None)


def test_the_plan_of_stand_ins_is_what_is_drawn(made):
    found = estimate(load_config(made / "toy.yaml"))
    drawn = made / "toy/data/photos"
    assert found["photos"] == {
        name: len(list((drawn / name).rglob("*.png"))) for name in found["photos"]
    }


def test_every_stage_has_one_rule_function_and_log_of_its_name():
    text = RULES.read_text()
    assert re.findall(r"^rule (\w+):", text, re.M) == ["tables", *STAGES]
    for stage in STAGES:
        rule = text.split(f"rule {stage}:")[1].split("\nrule ")[0]
        assert callable(getattr(stages, stage)) and f"diagvib imagenet-w-stage {stage} " in rule
        assert f"/{stage}/" in rule.split("log:")[1].split("benchmark:")[0]
        keys = re.findall(r"^    (\w+):", rule, re.M)
        assert keys == [key for key in KEYS if key in keys] and set(KEYS) - set(keys) <= {
            "resources",
            "input",
        }
        assert f'stage_code("{stage}").digest,' in rule and f'settings=stage("{stage}"),' in rule
    assert not re.search(r"^\s+run:", text, re.M)


def test_a_stage_depends_on_the_code_that_it_uses():
    code = {stage: set(stage_code(stage).files) for stage in STAGES}
    ours = {
        stage: {name.removeprefix("diagvib.imagenet_w.") for name in names}
        for stage, names in code.items()
    }
    assert all(
        {"watermark", "photos"} <= ours[stage] for stage in ("stand_ins", "evaluate", "features")
    )
    assert "stand_ins" not in ours["evaluate"] | ours["features"]
    assert "tables" not in ours["last_layer"]
    assert "cached_methods" in ours["last_layer"] and "cached_methods" not in ours["evaluate"]
    assert "diagvib.methods.jtt" in code["last_layer"] - code["evaluate"]


def test_photos_that_come_or_go_are_noticed(tmp_path):
    (tmp_path / "n01").mkdir()
    before = photo_state({"val": str(tmp_path), "sin": None})
    assert before == photo_state({"val": str(tmp_path), "sin": None})
    (tmp_path / "n01" / "0.jpg").touch()
    assert before != photo_state({"val": str(tmp_path), "sin": None})
    assert photo_state({"val": str(tmp_path / "absent")}) != photo_state({"val": str(tmp_path)})


WRONG = [
    ({"photos": None, "stand_ins": None}, "give either photos, your own folders, or stand_ins"),
    ({"photos": {"val": "x"}}, "give either photos, your own folders, or stand_ins"),
    ({"stand_ins": None, "photos": {"val": "x"}}, "last_layer needs training photos"),
    ({"models": [SMALL, SMALL]}, "a model is listed twice"),
    ({"model": [SMALL]}, "unknown key 'model'; did you mean models"),
    (
        {"last_layer": {"model": SMALL, "methods": ["ermm"]}},
        "last_layer.methods.0: unknown value 'ermm'; did you mean",
    ),
    (
        {"last_layer": {"model": SMALL, "methods": ["erm"], "learning_rates": [0]}},
        "last_layer.learning_rates.0",
    ),
    ({"stand_ins": {"train": 1, "val": 9}}, "stand_ins.train"),
]


@pytest.mark.parametrize(("changed", "says"), WRONG)
def test_a_wrong_configuration_is_refused_by_its_key(changed, says):
    with pytest.raises(DiagvibError, match=re.escape(says)):
        resolve({**TOY, **changed}, "x.yaml")


@pytest.mark.parametrize("name", ["imagenet_w", "imagenet_w_demo"])
def test_the_shipped_configurations_are_valid(name):
    config = load_config(REPOSITORY / f"config/{name}.yaml")
    assert all(stage_settings(config, "evaluate", folder)["model"] for folder in models(config))
    with pytest.raises(DiagvibError, match="unknown model 'resnet5'"):
        stage_settings(config, "evaluate", "resnet5")


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("evaluate", r"^evaluate needs a model: resnet50\S*, regnet_y_32gf"),
        ("last_layer", "^last_layer needs a method: erm, "),
    ],
)
def test_a_stage_that_needs_a_name_says_so(stage, says):
    with pytest.raises(DiagvibError, match=says):
        stage_settings(load_config(REPOSITORY / "config/imagenet_w.yaml"), stage)


@pytest.mark.parametrize("stage", ["features", "last_layer"])
def test_a_stage_that_the_configuration_has_no_use_for_says_so(stage):
    config = load_config(REPOSITORY / "config/imagenet_w.yaml") | {"last_layer": None}
    with pytest.raises(
        DiagvibError, match=f"^{stage}: the configuration trains no last layer; add last_layer"
    ):
        stage_settings(config, stage, "erm")
