"""Arguments of several verbs, the configuration that they choose, and builds of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import checkout

if TYPE_CHECKING:
    from ptq_dynamics.config import Config
    from ptq_dynamics.plan import Plan

FOLDER = Path("config")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONFIGURED = "default: the value in config/config.yaml"


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


def load(**choice: str | bool | None) -> "Config":
    """Load the configuration; values on the command line override config/config.yaml."""
    from ptq_dynamics import config

    changes = {key: value for key, value in choice.items() if value is not None}
    return config.load({**config.read_yaml(FOLDER / "config.yaml"), **changes}, FOLDER)


def plan(**choice: str | bool | None) -> "Plan":
    """Return the plan of the chosen configuration."""
    from ptq_dynamics.plan import Plan

    return Plan(load(**choice), Path(os.path.relpath(checkout.ROOT)))


def write(file: Path, content: object) -> None:
    """Write a file of a project's configuration."""
    import yaml

    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_atomically(file, text)


def profile(name: str) -> Path:
    """Return the place of a Snakemake profile, by its name in profiles/ or by a path."""
    from ptq_dynamics.config import require

    own = checkout.ROOT / "profiles"
    places = [place for place in (own / name, Path(name)) if place.exists()]
    require("--profile", "profile", [] if places else [name], sorted(os.listdir(own)))
    return places[0].absolute()


@contextmanager
def ending(end: Callable[[int], object]) -> Iterator[None]:
    """Call `end` with the signals that would end this process, which ends after the block."""
    ended = list[int]()

    def hear(number: int, _: FrameType | None) -> None:
        ended.append(number)
        end(number)

    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if ended:
            os.kill(os.getpid(), ended[0])


def build(
    folder: Path,
    targets: Iterable[str],
    profile: Path,
    options: Iterable[str] = (),
    **choice: str,
) -> None:
    """Build the project in a folder under a profile, with further options of Snakemake; raises
    `Problem` if the build fails."""
    command = [sys.executable, "-m", "snakemake", "-s", str(checkout.ROOT / "Snakefile")]
    command += ["--workflow-profile", str(profile), *options]
    if choice:
        command += ["--config", *(f"{key}={value}" for key, value in choice.items())]
    environment = {**os.environ, **checkout.environment()}
    if profile.name != "default":  # it may need the packages for SLURM
        environment["PYTHONPATH"] += f"{os.pathsep}{checkout.ROOT / '.venv/slurm'}"
    # A group of its own, so that a signal to this process alone ends Snakemake and all its jobs.
    build = subprocess.Popen(
        [*command, "--", *targets], cwd=folder, env=environment, process_group=0
    )
    with ending(lambda number: os.killpg(build.pid, number)):
        status = build.wait()
    if status:
        raise Problem("the build failed (see above); to resume it, run the same command again")
