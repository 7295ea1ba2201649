"""The command `ptq-dynamics`. A verb is a function; its docstring is its help.

Verbs import what they need when they run, so that the help appears at once."""

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import maintainers as dev
from ptq_dynamics.cli.measuring import measure
from ptq_dynamics.cli.verbs import adopt, audit, compare, config, lock, release, status, trace
from ptq_dynamics.engine import checkout, run

Verbs = tuple[Callable[..., bool], ...]
VERBS: Verbs = (measure, status, trace, audit, compare, adopt, release, config, lock)
MAINTAINERS = (dev.accept, dev.claims, dev.cost, dev.crate, dev.outcomes, dev.regime)


def main() -> int:
    """Run a verb; return exit status 1 if anything is wrong, and 2 if it has wrong arguments."""
    run.end_at_once()
    group = get_command(application())
    try:
        with group.make_context("ptq-dynamics", sys.argv[1:]) as context:
            is_well = group.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        # A reader such as `head` has closed the pipe. Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except typer.TyperException as error:
        words = " ".join(error.format_message().split()).rstrip(".")
        verb = getattr(error, "ctx", None) or context
        print(f"error: {words}; see {verb.command_path} --help", file=sys.stderr)
        return error.exit_code
    except (Problem, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if is_well else 1


def application() -> typer.Typer:
    """Return the command with all verbs."""
    application = _group(VERBS, _enter_project)
    application.add_typer(_group(MAINTAINERS), name="dev", help="Commands for maintainers.")
    return application


def _group(verbs: Verbs, callback: Callable[..., None] | None = None) -> typer.Typer:
    group = typer.Typer(
        callback=callback,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for verb in verbs:
        group.command()(verb)
    return group


def _print_version(is_given: bool) -> None:
    if is_given:
        print(version("ptq-dynamics"))
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version)]


def _enter_project(context: typer.Context, print_version: Version = False) -> None:
    """Measure your own checkpoints; trace, verify and exchange results. Builds run with make."""
    here = Path.cwd()
    if context.invoked_subcommand != measure.__name__:
        above = (
            place for place in (here, *here.parents) if (place / "config/config.yaml").is_file()
        )
        home = next(above, here)
        context.obj = here.relative_to(home)
        os.chdir(home)
    checkout.require_own(Path())
