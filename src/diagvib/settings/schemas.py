"""JSON schemas of the files that users write, made from the models: `python -m diagvib.settings.schemas`.

They are for editors and readers; the program itself validates with the models.
"""

import yaml

from diagvib.foundation.files import definition_path, read_yaml, write_text
from diagvib.scenes.sources import SourceFiles
from diagvib.settings.config import default_path
from diagvib.settings.configuration import Configuration
from diagvib.studies.study import StudyFile


def schema_texts() -> dict[str, str]:
    """File name in `config/schema` -> what it says."""
    schemas = {"config": _config_schema(), "studies": StudyFile.model_json_schema(),
               "sources": SourceFiles.model_json_schema()}
    return {f"{name}.schema.yaml": _as_text(schema) for name, schema in schemas.items()}


def _config_schema() -> dict:
    """No key is needed: config/config.yaml says what a configuration does not."""
    schema, defaults = Configuration.model_json_schema(), read_yaml(default_path())
    sections = [(schema, defaults), *((schema["$defs"][key.capitalize()], value) for key, value in defaults.items()
                                      if key.capitalize() in schema["$defs"])]
    for section, values in sections:
        del section["required"]
        for key, value in values.items():
            section["properties"][key]["default"] = value
    return schema


def _as_text(schema: dict) -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return ("# Made by `python -m diagvib.settings.schemas` from the models in src/diagvib; change those.\n"
            + yaml.dump(head | schema, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=116))


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data) -> bool:
        return True


if __name__ == "__main__":
    for name, text in schema_texts().items():
        write_text(definition_path("schema") / name, text)
