"""The real Snakefile and rules in a copy of the repository; only the command that their jobs call
is a stand-in."""

from pathlib import Path

from full_workflow import environment_with_stand_in

from toy import call, copy_of_the_repository


def repository_with_stand_in(top: Path, config: str, before_training: str = "") -> Path:
    """The copy, `top/repository`, with the configuration `toy.yaml`.

    before_training: shell commands at the start of the stand-in's training.
    """
    (top / "repository").mkdir()
    folder = copy_of_the_repository(top / "repository")
    (folder / "toy.yaml").write_text(config)
    environment_with_stand_in(top / "environment")
    if before_training:
        change_stand_in(folder, "  train) ", f"  train) {before_training}; ")
    return folder


def change_stand_in(repository: Path, old: str, new: str) -> None:
    """Replace text in the stand-in, a shell script."""
    path = repository.parent / "environment/bin/diagvib"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def command(repository: Path, *arguments: str, cores: int = 1, code: str = "") -> list[str | Path]:
    """The command that runs `toy.yaml`. code: Python that stands for the program snakemake."""
    python = repository.parent / "environment/bin/python"
    program = ["-c", code] if code else ["-m", "snakemake"]
    options = ["--cores", str(cores), *arguments, "--configfile", "toy.yaml"]
    return [python, *program, *options]


def snakemake(repository: Path, *arguments: str, cores: int = 1) -> str:
    """Run `toy.yaml`; returns Snakemake's output."""
    return call(repository, *command(repository, *arguments, cores=cores))
