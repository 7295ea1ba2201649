"""Arguments of several verbs."""

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

CONFIGURED = "default: the value in config/config.yaml"
SEVERAL = "repeat it, or quote several"


def _typed(context: Context, path: Path) -> Path:
    """Return a typed path relative to the project, whose place `context.obj` has."""
    return Path(os.path.normpath(context.obj / path))


def words(values: list[str] | None) -> list[str]:
    """Return the words of an option that is given several times, or with several words."""
    return " ".join(values or ()).split()


Scale = Annotated[str | None, Option(help=CONFIGURED)]
Figures = Annotated[str | None, Option(help=CONFIGURED)]
Seeds = Annotated[str | None, Option(help=CONFIGURED)]
Json = Annotated[bool, Option("--json", help="print the complete result as JSON")]
Place = Annotated[Path, Argument(callback=_typed, show_default=False)]
