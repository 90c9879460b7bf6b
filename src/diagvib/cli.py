"""The command line: one command for each stage, and others such as `plan` and `compare`."""

import gc
import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from diagvib import __version__, stages
from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.imagenet_w.commands import plan_workflow, register_commands
from diagvib.operations.cutout import cutout
from diagvib.scenes import load_scene
from diagvib.settings.config import check_root, load_config, read_settings, stage_settings
from diagvib.settings.grid import Layout, scenes, study_of
from diagvib.studies.binding import bind

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measures when vision models learn shortcuts instead of the task. `snakemake --cores all` runs "
    "every stage in order; each stage is also a separate command.",
)

# As in config/schema; with --settings alone, no file says which names exist.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _checked_name(given: str | list[str]) -> str | list[str]:
    """A name that becomes a folder name. DiagvibError for one that would lead elsewhere."""
    for name in [given] if isinstance(given, str) else given or []:
        if not _NAME.fullmatch(name):
            raise DiagvibError(
                f"{one_line(repr(name), 120)} is not a valid name of a study, binding or baseline; use "
                "letters, digits, '_', '-' and '.', beginning with a letter or digit"
            )
    return given


Config = Annotated[
    Path | None, typer.Option("--config", help="Configuration file; default: the paper's protocol.")
]
Override = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeatable.")
]
Settings = Annotated[
    str | None, typer.Option(help="This stage's settings as JSON, instead of a configuration.")
]
Root = Annotated[
    str | None, typer.Option(help="Folder for data/ and results/; default: the configuration's.")
]
Device = Annotated[
    str | None, typer.Option(help="auto, cpu or cuda; default: the configuration's.")
]
Mirror = Annotated[
    Path | None, typer.Option(help="Local folder with source files and published weights.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads; default: all cores.")
]
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        callback=_checked_name,
        help="A study from config/studies, or from the configuration's `studies_from`.",
    ),
]
BindingName = Annotated[
    str,
    typer.Argument(
        metavar="BINDING",
        callback=_checked_name,
        help="The factors for the study's roles: TARGET-CUE.",
    ),
]
SceneName = Annotated[
    str | None,
    typer.Argument(
        metavar="[SCENE]",
        show_default=False,
        help="Default: all scenes of the configuration's studies.",
    ),
]
BaselineName = Annotated[
    str,
    typer.Argument(
        metavar="BASELINE", callback=_checked_name, help="One of the configuration's baselines."
    ),
]


class Job:
    """What a stage command was asked to do: settings as JSON (from Snakemake) or from a
    configuration (by hand)."""

    def __init__(self, stage: str, config, override, settings, root, **names):
        if settings is not None and (config or override):
            raise DiagvibError(
                "--settings replaces a configuration; give it alone, or use --config and --set"
            )
        self._config = {} if settings is not None else load_config(config, override)
        self.settings = (
            read_settings(settings, stage)
            if settings is not None
            else stage_settings(self._config, stage, **names)
        )
        if root is not None:
            check_root(root, "--root")
        self.layout = Layout(Path(root or self._config.get("root", ".")))
        self.mirror = Path(self._config["mirror"]) if self._config.get("mirror") else None

    def scenes(self, given: str | None) -> list[str]:
        """The given scene, or all scenes of the configuration. DiagvibError for an unknown one."""
        if given is None and not self._config:
            raise DiagvibError("--settings does not name a scene; give one as an argument")
        chosen = scenes(self._config) if given is None else [given]
        for scene in chosen:
            load_scene(scene)
        return chosen

    def check_binding(self, study: str, binding: str) -> str:
        """The study's real name, which may be given as an alias. DiagvibError if a study of the
        configuration has no such binding; with settings alone this is not checked."""
        if not self._config:
            return study
        definition = study_of(self._config, study)
        bind(definition, binding, load_scene(definition.scene).factors)
        return definition.name

    def device(self, device: str | None) -> str:
        return device or self._config.get("device", "auto")

    def switch(self, key: str, given: bool | None, otherwise: bool) -> bool:
        return self._config.get(key, otherwise) if given is None else given


def _cores(threads: int | None) -> int:
    return threads or os.cpu_count() or 1


@app.command()
def fetch(
    scene: SceneName = None,
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    mirror: Mirror = None,
) -> None:
    """Fetch a scene's source files and check their hashes. They are downloaded, or taken from a
    mirror."""
    job = Job("fetch", config, override, settings, root)
    for name in job.scenes(scene):
        stages.fetch(job.layout, job.settings, name, mirror or job.mirror)


@app.command()
def prepare(
    scene: SceneName = None,
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
) -> None:
    """Prepare a scene's source files for rendering."""
    job = Job("prepare", config, override, settings, root)
    for name in job.scenes(scene):
        stages.prepare(job.layout, job.settings, name)


@app.command()
def draw(
    study: StudyName,
    binding: BindingName,
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
) -> None:
    """Draw the recipes of a study and binding. Covers all dataset samples."""
    job = Job("draw", config, override, settings, root, study=study)
    study = job.check_binding(study, binding)
    stages.draw(job.layout, job.settings, study, binding)


@app.command()
def render(
    study: StudyName,
    binding: BindingName,
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Render the recipes of a study and binding to image files. Covers all dataset samples."""
    job = Job("render", config, override, settings, root, study=study)
    study = job.check_binding(study, binding)
    stages.render(job.layout, job.settings, study, binding, job.device(device), _cores(threads))


@app.command()
def encode(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK",
            callback=_checked_name,
            help="A baseline with a frozen network, or that network's folder in data/features.",
        ),
    ],
    study: StudyName,
    binding: BindingName,
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    device: Device = None,
    threads: Threads = None,
    mirror: Mirror = None,
) -> None:
    """Compute the features of a frozen network for a study and binding. Covers all dataset
    samples; all baselines with this network share them."""
    job = Job("encode", config, override, settings, root, study=study, baseline=network)
    study = job.check_binding(study, binding)
    stages.encode(
        job.layout,
        job.settings,
        study,
        binding,
        job.device(device),
        _cores(threads),
        mirror or job.mirror,
    )


@app.command()
def train(
    baseline: BaselineName,
    study: StudyName,
    binding: BindingName,
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    device: Device = None,
    mirror: Mirror = None,
    keep_weights: Annotated[
        bool | None, typer.Option(help="Also write weights.pt; default: the configuration's.")
    ] = None,
    tensorboard: Annotated[
        bool | None,
        typer.Option(help="Also write curves to logs/tensorboard; default: the configuration's."),
    ] = None,
    cuda_graphs: Annotated[
        bool | None,
        typer.Option(
            help="Record training steps as CUDA graphs, for speed; default: the configuration's."
        ),
    ] = None,
) -> None:
    """Train and test a baseline on a study and binding. Covers all dataset samples."""
    job = Job("train", config, override, settings, root, study=study, baseline=baseline)
    study = job.check_binding(study, binding)
    stages.train(
        job.layout,
        job.settings,
        baseline,
        study,
        binding,
        job.device(device),
        job.switch("keep_weights", keep_weights, False),
        job.switch("tensorboard", tensorboard, False),
        job.switch("cuda_graphs", cuda_graphs, True),
        mirror or job.mirror,
    )


@app.command()
def tune(
    baselines: Annotated[
        list[str],
        typer.Argument(
            metavar="BASELINE...",
            callback=_checked_name,
            help="Baselines from config/baselines, or from the configuration's `baselines_from`.",
        ),
    ],
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    device: Device = None,
    mirror: Mirror = None,
) -> None:
    """Choose a baseline's settings by validation. Uses a grid or random search (`tuning` in the
    configuration)."""
    if settings is not None and len(baselines) > 1:
        raise DiagvibError("--settings holds the settings of one baseline; name exactly one")
    tasks = {
        name: Job("tune", config, override, settings, root, baseline=name) for name in baselines
    }
    for name, job in tasks.items():
        stages.tune(job.layout, job.settings, name, job.device(device), mirror or job.mirror)


@app.command()
def tabulate(
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    threads: Threads = None,
) -> None:
    """Make the tables from all finished runs. Names the missing runs."""
    job = Job("tabulate", config, override, settings, root)
    stages.tabulate(job.layout, job.settings, _cores(threads))


@app.command()
def plot(
    config: Config = None,
    override: Override = None,
    settings: Settings = None,
    root: Root = None,
    threads: Threads = None,
) -> None:
    """Make figures and results/report.html from the tables."""
    job = Job("plot", config, override, settings, root)
    stages.plot(job.layout, job.settings, _cores(threads))


@app.command()
def compare(
    runs_a: Annotated[Path, typer.Argument(help="A results folder.")],
    runs_b: Annotated[Path, typer.Argument(help="Another results folder.")],
    out: Annotated[
        Path | None, typer.Option(help="Also write the table: .csv, .md or .html.")
    ] = None,
) -> None:
    """Compare the runs of two results folders, cell by cell."""
    from diagvib.results.compare import compare_results, print_comparison, write_comparison

    table = compare_results(runs_a, runs_b, _cores(None))
    print_comparison(table)
    if out:
        write_comparison(table, out)


@app.command()
def plan(
    config: Config = None,
    override: Override = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda; default: that of --rates, or the configuration's."),
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="Estimate for this many GPUs together.")] = 1,
    rates: Annotated[
        list[Path] | None,
        typer.Option(
            help="Result file of benchmarks/render.py or train.py from another machine; repeatable."
        ),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of a table.")
    ] = False,
) -> None:
    """Show what a configuration will make. Estimates disk space and time, and starts nothing."""
    from diagvib.operations.plan import estimate, print_plan

    if plan_workflow(config, override, json_output):
        return
    if device not in (None, "cpu", "cuda"):
        raise DiagvibError(f"--device {device}: must be cpu or cuda")
    resolved = load_config(config, override)
    estimated = estimate(resolved, device, gpus, rates)
    if json_output:
        print(json.dumps(estimated, indent=2))
    else:
        print_plan(estimated, resolved)


@app.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the shards and the data card go.")
    ],
    config: Config = None,
    override: Override = None,
) -> None:
    """Write datasets in the layout of the Hugging Face Hub. Adds a data card. Reads image files,
    which `snakemake images --cores all --configfile FILE` makes first."""
    from diagvib.operations.export import export

    export(load_config(config, override), folder)


@app.command()
def record(config: Config = None, root: Root = None) -> None:
    """Record finished results, as `snakemake` does. Writes the root's dvc.lock."""
    from diagvib.operations.ledger import record

    chosen, resolved = _ledger(config, root)
    print(record(chosen, config=resolved, file=config))


@app.command()
def verify(config: Config = None, root: Root = None) -> None:
    """Find files that differ from the record. Hashes every recorded file again. Exit code 1 if any
    was changed."""
    from diagvib.operations.ledger import print_verified, verify

    chosen, _ = _ledger(config, root)
    if not print_verified(verify(chosen), chosen):
        raise typer.Exit(1)


def _ledger(config: Path | None, root: str | None) -> tuple[str, dict | None]:
    """The root of a ledger, and the configuration that names it, if one is given."""
    from diagvib.operations.ledger import configured_root

    if root and config:
        raise DiagvibError(f"--config and --root: give one of them; {config} names its root itself")
    if config:
        resolved = load_config(config)
        return resolved["root"], resolved
    return check_root(root, "--root") if root else configured_root(), None


@app.command()
def prune(
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config", help="Configuration whose files are kept; repeatable. Default: the paper's."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List only; delete nothing.")] = False,
) -> None:
    """Delete what no configuration needs. Lists these recipes, images, checkpoints and runs first,
    and asks."""
    from diagvib.operations.prune import prune

    prune([load_config(path) for path in config or [None]], yes, dry_run)


app.command()(cutout)
register_commands(app)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run a command. A user's mistake ends with one line on standard error and exit code 1."""
    gc.set_threshold(
        100_000, 50, 100
    )  # by default, garbage collection takes a fifth of torch's import time
    try:
        app()
    except DiagvibError as error:
        print(f"error: {one_line(error, 3000)}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # a file or folder that cannot be used as needed
        if error.strerror is None:
            raise
        where = (
            "the output" if error.filename is None else error.filename
        )  # as of `print` on a full disk
        print(f"error: {where}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)
