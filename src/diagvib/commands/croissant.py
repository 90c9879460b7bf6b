"""Croissant metadata of exported datasets, with its vocabulary for responsible AI:
`mlcroissant.Dataset("FOLDER/croissant.json").records("zgo-shape-hue-0/train")` reads a split.

Specifications: https://docs.mlcommons.org/croissant/docs/croissant-spec.html and
https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from diagvib.commands.data_card import Exported
from diagvib.foundation.files import file_sha256, read_json, write_json
from diagvib.foundation.version import RELEASE_DATE, __version__

CROISSANT = "croissant.json"
_CONTEXT = Path(__file__).with_suffix(".json")  # the names of the vocabularies
_TYPES = {"Image": "sc:ImageObject", "string": "sc:Text", "float": "sc:Float", "double": "sc:Float"}


def write_croissant(
    out: Path,
    exported: Sequence[Exported],
    licences: Sequence[tuple[str, str]],
    facts: Mapping[str, str],
) -> None:
    """Write `out`/croissant.json. licences: of the sources, with their citations. facts: of the data
    card, by their names in the vocabulary for responsible AI."""
    files, records = [], []
    for dataset in exported:
        for split in dataset.images:
            path, name = f"{dataset.folder}/{split}.parquet", f"{dataset.name}/{split}"
            files.append(
                {
                    "@id": path,
                    "@type": "cr:FileObject",
                    "name": path,
                    "contentUrl": path,
                    "encodingFormat": "application/x-parquet",
                    "sha256": file_sha256(out / path),
                }
            )
            fields = [*_fields(name, path, out)]
            records.append({"@id": name, "@type": "cr:RecordSet", "name": name, "field": fields})
    description = {
        "name": "-".join(["diagvib", *dict.fromkeys(dataset.study for dataset in exported)]),
        "description": facts["dataBiases"],
        "version": __version__,
        # Of this version, not the day of the export: exported again, the file is the same.
        "datePublished": RELEASE_DATE,
        "license": sorted({licence for licence, _ in licences}),
        "citeAs": "; ".join(citation for _, citation in licences),
        **{f"rai:{name}": fact for name, fact in facts.items()},
        "distribution": files,
        "recordSet": records,
    }
    write_json(out / CROISSANT, read_json(_CONTEXT) | description)


def _fields(name: str, path: str, out: Path) -> Iterator[dict]:
    """Each column of a file, from the features that the Hub reads."""
    metadata = json.loads(pq.read_schema(out / path).metadata[b"huggingface"])
    for column, feature in metadata["info"]["features"].items():
        kind = feature.get("dtype", feature["_type"])
        source = {"fileObject": {"@id": path}, "extract": {"column": column}}
        if kind == "Image":
            source["transform"] = {"jsonPath": "bytes"}
        yield {
            "@id": f"{name}/{column}",
            "@type": "cr:Field",
            "name": column,
            "description": ", ".join(feature.get("names", [kind])),
            "dataType": _TYPES.get(kind, "sc:Integer"),
            "source": source,
        }
