"""The program: commands by task, and the options that several of them have."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from diagvib.stages import option

# What commands are for: the groups of `--help`.
TRY, LOOK, SHARE, STAGES = "Try", "Look", "Share", "Stages that Snakemake calls"


class Tasks(TyperGroup):
    """Commands by task, each with a summary that is wrapped instead of cut off."""

    def by_task(self) -> dict[str, dict[str, Any]]:
        """Task -> its commands by name. Those of `diagvib new` have no task."""
        tasks: dict[str, dict[str, Any]] = {task: {} for task in (TRY, LOOK, SHARE, STAGES)}
        for name, command in self.commands.items():
            tasks.setdefault(command.rich_help_panel or "Commands", {})[name] = command
        return {task: commands for task, commands in tasks.items() if commands}

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:
        for task, commands in self.by_task().items():
            with formatter.section(task):
                formatter.write_dl(
                    [(name, c.get_short_help_str(1000)) for name, c in commands.items()]
                )


app = typer.Typer(
    cls=Tasks,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measures when vision models learn shortcuts instead of the task. Begin with `diagvib run "
    "demo`. `diagvib COMMAND --help` has an example.",
    epilog="Pages: README.md and docs/ in the repository; `make docs` builds a site of them.",
)


def register(task: str, example: str, name: str | None = None, **settings: dict) -> Callable:
    """Register a function as a command for a task. example: what follows `diagvib`."""
    line = f"Example: diagvib {example}"
    return app.command(name, rich_help_panel=task, epilog=line, **settings)


Config = Annotated[
    Path | None, option("Configuration file; default: the paper's protocol.", "--config")
]
Override = Annotated[
    list[str] | None, option("Override a key; repeatable.", "--set", metavar="KEY=VALUE")
]
Root = Annotated[str | None, option("Folder for data/ and results/; default: the configuration's.")]
Classes = Annotated[
    str | None,
    option(
        "Which output or prediction means which class: OUTPUT=CLASS,..., or a .yaml or .csv file."
    ),
]
