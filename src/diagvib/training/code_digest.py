"""A digest of the code that affects a run: unfinished or tuned work of older code does not
count."""

import hashlib
import subprocess
from importlib.metadata import PackageNotFoundError, version

from diagvib.foundation.code import code_of, find_source
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import checkout_path
from diagvib.foundation.program_digest import program_digest
from diagvib.methods.registry import METHODS
from diagvib.models.registry import MODELS, family
from diagvib.scenes import SCENES

# Every module that one of our baselines may name; a user's own modules come from the settings.
PLUG_INS = sorted({where.partition(":")[0] for where in (*METHODS.values(), *MODELS.values())})


def code_digest(settings: dict, stage: str, scene: str | None = None) -> str:
    """sha256, as hex, of the code by which the module `stage` trains a baseline of these settings
    on images of a scene.

    Our files and the user's count by their `program_digest`, as `foundation.code` finds them; other
    packages by the versions of those that the baseline's modules import. DiagvibError if a user's
    `package.module:function` does not exist.
    """
    modules = baseline_modules(settings)
    absent = next((module for module in modules if find_source(module) is None), None)
    if absent:
        raise DiagvibError(
            f"model or method: there is no module {absent}; it must read package.module:name, from an "
            "installed package or from the current folder"
        )
    code = code_of([*modules, stage], [SCENES.get(scene, scene)] if scene else [], strict=True)
    return hashlib.sha256(
        repr(
            [
                sorted((name, program_digest(path)) for name, path in code.modules.items()),
                sorted((name, _version(name)) for name in code_of(modules).packages),
            ]
        ).encode()
    ).hexdigest()


def baseline_modules(settings: dict) -> list[str]:
    """The modules of a baseline's model and method, including the user's own."""
    method, model = settings["method"]["name"], (settings["model"] or {}).get("name")
    wheres = [METHODS.get(method, method)]
    if model:
        wheres += [MODELS[family(model)], *([model] if family(model) == "own" else [])]
    return [where.partition(":")[0] for where in wheres]


def git_state() -> dict | None:
    """The commit of the checkout that contains the package, and whether code or definitions have
    changed since (by `git status`, in src and config); None outside a checkout."""
    if not checkout_path(".git").exists():
        return None
    git = ["git", "-C", str(checkout_path("")), "--no-optional-locks"]
    try:
        commit, changed = (
            subprocess.run(
                [*git, *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "src", "config"])
        )
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # no git, or a checkout that git does not trust
        return None
    return {"commit": commit, "changed": bool(changed)}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # its distribution has a different name
        return ""
