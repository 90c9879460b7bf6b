"""The JSON schemas in config/schema match the models, and accept the shipped files."""

import pytest
import yaml
from jsonschema import Draft202012Validator

from diagvib.foundation.files import definition_path
from diagvib.settings.schemas import schema_texts

SHIPPED = [
    ("config", "config.yaml"),
    ("config", "demo.yaml"),
    ("config", "ci.yaml"),
    ("sources", "sources.yaml"),
    ("studies", "studies/diagvib6.yaml"),
    ("studies", "studies/spawrious.yaml"),
    ("baselines", "baselines/diagvib6.yaml"),
]


@pytest.mark.parametrize("name", schema_texts())
def test_schemas_are_those_of_the_models(name):
    assert (definition_path("schema") / name).read_text() == schema_texts()[name], (
        "run `python -m diagvib.settings.schemas`"
    )


@pytest.mark.parametrize(("schema", "name"), SHIPPED)
def test_shipped_files_follow_their_schema(schema, name):
    validator = Draft202012Validator(yaml.safe_load(schema_texts()[f"{schema}.schema.yaml"]))
    value = yaml.safe_load(definition_path(name).read_text())
    assert not list(validator.iter_errors(value))
    assert list(validator.iter_errors({**value, "tpyo": 1}))


def test_a_pattern_is_of_the_whole_value():
    validator = Draft202012Validator(yaml.safe_load(schema_texts()["baselines.schema.yaml"]))
    entry = yaml.safe_load(definition_path("baselines/diagvib6.yaml").read_text())["resnet18"]
    for mistakes in (
        {"model": {"name": "resnet 18!"}},
        {"selection": "val_loss_typo"},
        {"selection": "blast"},
    ):
        assert list(validator.iter_errors({"mine": {**entry, **mistakes}})), mistakes
