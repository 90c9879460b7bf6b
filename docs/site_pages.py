"""Pages of the site that mkdocs makes from the code and from README, and working links.

A link to a page of the repository leads to its page on the site, a link to a file to a page that
shows it, and a link to a table of results to the table. `<!-- folded -->` becomes the long tables of
a page of results.
"""

import base64
import json
import math
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent

import typer
from mkdocs.structure.files import File, Files

from diagvib.cli import app
from diagvib.commands.submit import Entry, Number, read_entry
from diagvib.foundation.files import read_yaml
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.reader_tables import markdown_table, markdown_text
from diagvib.settings.keys import Configuration
from diagvib.settings.resolve import default_path
from diagvib.studies.known_studies import SHIPPED

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import result_pages  # noqa: E402
from result_tables.comparison import TOLD  # noqa: E402

# Pages of the repository outside docs/ -> their path on the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "profiles/README.md": "cluster.md",
}
SHOWN = {
    ".py": "python",
    ".yaml": "yaml",
    ".smk": "python",
    ".cff": "yaml",
    ".sh": "bash",
    ".md": "markdown",
}
PLAYGROUND = (
    '<iframe src="playground.html" title="Playground" loading="lazy" '
    'style="width: 100%; height: 44rem; border: 1px solid #8a949e; border-radius: 6px"></iframe>'
)
# A notebook that becomes a page, and services that open it from a public repository.
NOTEBOOK = Path("docs/quickstart.ipynb")
SERVICES = {
    "Colab": "https://colab.research.google.com/github/{repository}/blob/main/{path}",
    "Binder": "https://mybinder.org/v2/gh/{repository}/main?labpath={path}",
}
# A picture for light pages with another one for dark pages.
_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]+)">\s*</picture>'
)
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")

# The modules on the page of the library -> their path.
NAMES = {
    "diagvib.load": "diagvib.library.loading.load",
    "diagvib.StudyDataset": "diagvib.library.study_dataset.StudyDataset",
    "diagvib.probe": "diagvib.library.linear_probe.probe",
    "diagvib.score": "diagvib.library.scoring.score",
    "diagvib.studies()": "diagvib.studies.known",
    "diagvib.models()": "diagvib.models.known",
    "diagvib.methods()": "diagvib.methods.known",
    "Metrics of predictions": "diagvib.results.evaluation.evaluate",
    "diagvib.studies.study_cells": "diagvib.studies.study.study_cells",
    "diagvib.metrics": "diagvib.results.metrics",
    "diagvib.renderer.Renderer": "diagvib.scenes.digits.renderer.Renderer",
    "diagvib.digits.prepare_digit": "diagvib.scenes.digits.digits.prepare_digit",
    "diagvib.textures.prepare_texture": "diagvib.scenes.digits.textures.prepare_texture",
    "A scene": "diagvib.scenes.scene.Scene",
    "A method": "diagvib.methods.method.Method",
}


def on_files(files: Files, config) -> Files:
    """Add the pages that are made here, and every file that a page links to."""
    made = {site: (REPOSITORY / page).read_text() for page, site in OUTSIDE.items()}
    made |= {"commands.md": commands(), "configuration.md": configuration(), "api.md": api()}
    made["glossary.md"] = glossary()
    made |= notebook(config.extra["repository"], config.extra["execute_notebook"])
    texts = {
        **{page: (REPOSITORY / page).read_text() for page in OUTSIDE},
        **{f"docs/{path.name}": path.read_text() for path in (REPOSITORY / "docs").glob("*.md")},
    }
    for page, text in texts.items():
        for target in {
            link.partition("#")[0] for _, link in _LINK.findall(text) if not _leads_away(link)
        }:
            path = _in_repository(page, target)
            if path.is_file() and _on_site(path) not in made and not str(path).startswith("docs/"):
                made[_on_site(path)] = (
                    _shown(path) if path.suffix in SHOWN or not path.suffix else path.read_bytes()
                )
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """Make the links of a page of the repository lead to the site's pages."""
    site = page.file.src_uri
    if site == "leaderboard.md":
        markdown = markdown.replace("<!-- entries -->", leaderboard())
    if "<!-- folded -->" in markdown:
        markdown = markdown.replace("<!-- folded -->", folded(site.removesuffix(".md")))
    if site == "index.md":
        markdown = home(markdown)
    markdown = _PICTURE.sub(r"![\3](\2#only-light)\n![\3](\1#only-dark)", markdown)
    own = next((name for name, uri in OUTSIDE.items() if uri == site), f"docs/{site}")

    def lead(match: re.Match) -> str:
        text, link = match.groups()
        target, _, anchor = link.partition("#")
        if _leads_away(link) or not target:
            return match[0]
        path = _in_repository(own, target)
        if path.is_dir():
            return text.strip("[]")
        where = os.path.relpath(_on_site(path), Path(site).parent)
        return f"{text}({where}{'#' + anchor if anchor else ''})"

    # Code is left unchanged.
    parts = re.split(r"(```.*?```)", markdown, flags=re.S)
    return "".join(part if part.startswith("```") else _LINK.sub(lead, part) for part in parts)


def home(readme: str) -> str:
    """README with the playground, and a link in place of its glossary."""
    page = readme.replace("\n## Try it\n", f"\n{PLAYGROUND}\n\n## Try it\n", 1)
    words = "Words: [glossary](docs/glossary.md)."
    return re.sub("<details>.*?</details>", words, page, flags=re.S)


def glossary() -> str:
    """The part of README that is folded there."""
    (text,) = re.findall(
        r"<summary>Glossary</summary>\n(.*?)</details>",
        (REPOSITORY / "README.md").read_text(),
        re.S,
    )
    return f"# Glossary\n{text}"


def on_post_template(output: str, template_name: str, config) -> str:
    """Make the links of the page for missing pages relative, unless the site's address is known."""
    if template_name != "404.html" or config.site_url:
        return output
    return output.replace('="/', '="').replace('"/"', '"."')


def folded(page: str) -> str:
    tables = result_pages.folded(page).items()
    return "\n\n".join(f'??? note "{title}"\n\n{indent(table, "    ")}' for title, table in tables)


def leaderboard() -> str:
    """A table for each study that has entries."""
    entries: dict[str, list[Entry]] = {}
    for path in sorted((REPOSITORY / "leaderboard").glob("*/*.json")):
        entries.setdefault(path.parent.name, []).append(read_entry(path))
    return "".join(f"\n\n{_about(name, own)}\n\n{_rankings(own)}" for name, own in entries.items())


def _rankings(entries: list[Entry]) -> str:
    """A table for each kind of images and training: accuracies on others have no common order."""
    alike: dict[str, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(_conditions(entry), []).append(entry)
    if len(alike) == 1:
        return _ranking(entries)
    parts = sorted(alike.items(), key=lambda part: -len(part[1]))
    return "\n\n".join(f"{markdown_text(said)}\n\n{_ranking(own)}" for said, own in parts)


def _conditions(entry: Entry) -> str:
    """`official sources; train 12,000, val 1,080, ... images of 128 pixels; max_epochs 30, ...`"""
    protocol, training = entry.protocol, dict(entry.protocol.get("training", {}))
    counts = (f"{name} {n:,}" for name, n in sorted(protocol.get("counts", {}).items()))
    trained = (f"{key} {training.get(key)}" for key in ("max_epochs", "patience"))
    images = f"{', '.join(counts)} images of {protocol.get('image_size')} pixels"
    return "; ".join([f"{' and '.join(entry.sources)} sources", images, ", ".join(trained)])


def _about(name: str, entries: list[Entry]) -> str:
    """A study's heading; what it means, if it is one of the package's; the binding, if there is one."""
    study = SHIPPED.studies.get(name)
    bindings = {one.binding for entry in entries for one in entry.metrics}
    lines = [f"## {study.title if study else name}"]
    if study and len(bindings) == 1:
        (binding,) = map(markdown_text, bindings)
        lines += [f"{study.meaning[0].upper()}{study.meaning[1:]}. Binding: {binding}."]
    return "\n\n".join(lines)


def _ranking(entries: list[Entry]) -> str:
    columns = list(dict.fromkeys((one.metric, one.binding) for e in entries for one in e.metrics))
    # What the rows are sorted by comes first.
    columns.sort(key=lambda column: column[0] != "worst_group")
    rows = []
    for entry in sorted(entries, key=lambda entry: -_mean(entry, *columns[:1])):
        found = {(one.metric, one.binding): _number(one) for one in entry.metrics}
        n = min((one.n for one in entry.metrics), default=0)
        doubts = [*entry.doubts, *([] if entry.counted else ["not computed again"])]
        told = TOLD.get(entry.supervision, entry.supervision)
        row = [entry.baseline, told, *(found.get(column, "") for column in columns)]
        row += [str(n), "; ".join(doubts), entry.by, entry.date]
        *cells, by, day = map(markdown_text, row)
        rows.append([*cells, f'<a href="{entry.link}">{by}</a>' if entry.link else by, day])
    heads = ["baseline", "told", *_names_of(columns), "n", "doubts", "by", "date"]
    return "\n".join(markdown_table([markdown_text(head) for head in heads], rows))


def _names_of(columns: list[tuple[str, str]]) -> list[str]:
    """Metrics in words: with one binding its cues by their factors, with several each with its binding."""
    if len({binding for _, binding in columns}) > 1:
        return [f"{metric} {binding}".replace("_", " ") for metric, binding in columns]
    names = [metric.replace("_", " ") for metric, _ in columns]
    for number, cue in enumerate(columns[0][1].split("-")[1:] if columns else (), 1):
        names = [name.replace(f"cue {number}", cue) for name in names]
    return names


def _mean(entry: Entry, column: tuple[str, str] | None = None) -> float:
    """Of a metric and binding; without it, an entry is last."""
    means = (one.mean for one in entry.metrics if (one.metric, one.binding) == column)
    return next(means, -math.inf)


def _number(one: Number) -> str:
    many = 1 if one.metric in METRIC_SETS["watermark"].unbounded else 100
    interval = "" if one.low is None else f" ({many * one.low:z.0f} to {many * one.high:z.0f})"
    return f"{many * one.mean:z.1f}{interval}"


def _leads_away(link: str) -> bool:
    return link.startswith(("http:", "https:", "mailto:", "#"))


def _in_repository(page: str, target: str) -> Path:
    return Path(os.path.normpath(Path(page).parent / target))


def _on_site(path: Path) -> str:
    """The path of a repository file on the site."""
    if str(path) in OUTSIDE:
        return OUTSIDE[str(path)]
    if path == NOTEBOOK:
        return "quickstart.md"
    if path.parts[0] == "docs":
        return str(path.relative_to("docs"))
    return f"files/{path}.md" if path.suffix in SHOWN or not path.suffix else f"files/{path}"


def _shown(path: Path) -> str:
    return f"# {path}\n\n````{SHOWN.get(path.suffix, 'text')}\n{(REPOSITORY / path).read_text()}\n````\n"


def notebook(repository: str, execute: bool) -> dict[str, str | bytes]:
    """The notebook's page and its pictures. repository: OWNER/NAME on GitHub, if it has such an
    address; execute: run it, if nbclient is installed, else take the output that it was saved with."""
    path = REPOSITORY / NOTEBOOK
    content = executed(path) if execute and find_spec("nbclient") else json.loads(path.read_text())
    links = [f"<a href='{NOTEBOOK.name}' download>Download the notebook</a>"]
    for service, address in SERVICES.items() if repository else ():
        link = address.format(repository=repository, path=NOTEBOOK)
        links.append(f"<a href='{link}'>Open it in {service}</a>")
    pictures, parts = {}, []
    for cell in content["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{NOTEBOOK.stem}-{len(pictures)}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Figure of the cell above]({name})")
            elif text := "".join(output.get("text") or data.get("text/plain", "")):
                parts.append(f"```text\n{text}\n```")
    parts.insert(1, " · ".join(links))
    return {"quickstart.md": "\n\n".join(parts), **pictures}


def executed(path: Path) -> dict:
    """A notebook with the output of its cells, run now in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    content = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        NotebookClient(content, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    return content


def api() -> str:
    """The library and the interfaces, for mkdocstrings to fill in."""
    parts = [
        f"::: {where}\n    options:\n      heading: {name}\n      toc_label: {name}\n"
        for name, where in NAMES.items()
    ]
    return "\n".join(
        [
            "# Python",
            "",
            "The functions of `import diagvib`, and the interfaces that your own code implements.",
            "",
            *parts,
        ]
    )


def commands() -> str:
    """Every command with its arguments, options and example, as in `--help`."""
    lines = ["# Commands", "", "`diagvib COMMAND --help` shows the same text.", ""]
    for task, by_name in typer.main.get_command(app).by_task().items():
        lines += [f"## {task}", ""]
        for name, command in by_name.items():
            for sub, entry in getattr(command, "commands", {"": command}).items():
                lines += [f"### diagvib {name} {sub}".rstrip(), "", *_command(entry)]
    return "\n".join(lines)


def _command(command) -> list[str]:
    rows = [
        (_names(parameter), getattr(parameter, "help", None) or "")
        for parameter in command.params
        if parameter.name != "help"
    ]
    lines = [command.help or "", "", f"`{command.epilog.removeprefix('Example: ')}`", ""]
    if rows:
        lines += ["| argument, option | meaning |", "|---|---|"]
        lines += [*(f"| {left} | {_cell(right)} |" for left, right in rows), ""]
    return lines


def _names(parameter) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def configuration() -> str:
    """Every configuration key with its default and its meaning."""
    schema, usual = Configuration.model_json_schema(), read_yaml(default_path())
    lines = [
        "# Configuration",
        "",
        "The keys of a file for `--configfile`. The defaults are those of `config/config.yaml`, the paper's "
        "protocol.",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *_keys(schema, schema["$defs"], usual, "")]) + "\n"


def _keys(schema: dict, definitions: dict, usual: object, before: str):
    for key, about in schema["properties"].items():
        value = usual.get(key) if isinstance(usual, dict) else None
        yield f"| `{before}{key}` | {_value(value)} | {_cell(about.get('description', ''))} |"
        name = about.get("$ref", "").rpartition("/")[2]
        if name:
            yield from _keys(definitions[name], definitions, value, f"{before}{key}.")


def _value(value: object) -> str:
    return "" if isinstance(value, dict) else f"`{str(value).replace('|', '/')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
