"""Reading and checking all files under config/."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from ptq_dynamics.base.components import union
from ptq_dynamics.base.fields import Once, Seed, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import Claim, TableKind
from ptq_dynamics.config import miniatures, releases
from ptq_dynamics.config.errors import problem
from ptq_dynamics.config.families import Families
from ptq_dynamics.config.grids import expand
from ptq_dynamics.config.names import Name, Named, require
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.config.trajectories import Runs
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.hub.lock import read as read_lock
from ptq_dynamics.measure import tasks
from ptq_dynamics.quantize.quantizers import AnyQuantizer

if TYPE_CHECKING:
    Task = tasks.Task
else:
    Task = union("ptq_dynamics.measure.tasks", tasks.Task, by="source")


def _words(value: Any) -> Any:
    # From the command line: --config figures="fig04 fig06".
    return value.split() if isinstance(value, str) and value != "all" else value


def _numbers(value: Any) -> Any:
    # From the command line: more_seeds="102 103" is text, more_seeds=102 a number.
    if isinstance(value, str) and not all(word.isdecimal() for word in value.split()):
        raise ValueError("must be whole numbers with spaces between")
    return [value] if isinstance(value, int) else _words(value)


class Choice(Strict):
    """What to build: the scale, the seed of initial weights and data order, and further seeds of
    what headline figures show; the figures; and whether to look for damage at all bytes of
    results."""

    scale: Name
    seed: Seed
    more_seeds: Annotated[tuple[Seed, ...], BeforeValidator(_numbers), Once] = ()
    figures: Annotated[
        Literal["all"] | Annotated[list[str], Field(min_length=1)], BeforeValidator(_words)
    ]
    deep: bool = False

    @model_validator(mode="after")
    def _seeds_differ(self) -> Self:
        if self.seed in self.more_seeds:
            raise ValueError(f"more_seeds has {self.seed}, which is seed already; name it once")
        return self


class Backends(Strict):
    """What `make backends` compares: groups of quantizers with equal settings, on the measured
    checkpoints of one trajectory."""

    trajectory: str
    groups: list[Annotated[list[str], Field(min_length=2)]]


class Sweep(Strict):
    """What `make sweep` trains: candidates for settings of a scale, each with what it changes in
    the scale's file, compared by the last losses of `runs`, and by whether `trunk` still learns."""

    scale: Name
    seed: Seed
    runs: Annotated[tuple[str, ...], Field(min_length=2), Once]
    trunk: str | None = None
    candidates: Annotated[Named[dict[str, Any]], Field(min_length=1)]


class Config(Strict):
    """All of config/, for one scale, with its families as that has them."""

    choice: Choice
    scale: Scale
    runs: Runs
    quantizers: Named[AnyQuantizer]
    figures: Named[Figure]
    tasks: Named[Task]
    backends: Backends
    claims: Named[Claim] = {}
    tables: Named[TableKind] = {}


# The type of every file, by name without suffix; every file under scales/ is a scale.
TYPES: dict[str, Any] = {
    "config": Choice,
    "scale": Scale,
    "runs": Runs,
    "families": Families,
    "quantizers": Named[AnyQuantizer],
    "tasks": Named[Task],
    "figures": Named[Figure],
    "claims": Named[Claim],
    "tables": Named[TableKind],
    "backends": Backends,
    "sweep": Sweep,
}
# Files that a configuration of one's own, for figures alone, need not have.
OPTIONAL = ("claims", "tables")
# Sections whose entries may be grids.
GRIDS = {"runs": ("runs", "averages"), "families": ("runs", "averages")}


def scales(folder: Path = Path("config")) -> list[str]:
    """Names of the scales: those of the files under `folder`/scales."""
    return sorted(path.stem for path in folder.glob("scales/*.yaml"))


def load(choice: dict[str, Any], folder: Path) -> Config:
    """Read and check all files under `folder` for the scale and figures of `choice`.

    Raises `Problem` naming file, key, value and what is allowed.
    """
    chosen: Choice = _check(choice, "config", folder / "config.yaml")
    require(f"{folder / 'config.yaml'}: scale", "scale", [chosen.scale], scales(folder))
    file = folder / "scales" / f"{chosen.scale}.yaml"
    parts = {"scale": _read(file, "scale")}
    for name in [name for name in TYPES if name in Config.model_fields and name != "scale"]:
        path = folder / f"{name}.yaml"
        parts[name] = {} if name in OPTIONAL and not path.exists() else _read(path, name)
    families: Families = _read(folder / "families.yaml", "families")
    families.check()
    if parts["scale"].miniatures is None:
        lock = read_lock(folder / "families.lock.json")
        parts["scale"], *made = releases.settle(families, parts["scale"], str(file), lock)
    else:
        parts["scale"], *made = miniatures.settle(families, parts["scale"], str(file))
    parts["runs"] = parts["runs"].with_families(*made, families.averages)
    return Config(choice=chosen, **parts)


def load_sweep(path: Path) -> Sweep:
    """Read and check what a sweep is made of; raises `Problem` as `load` does."""
    found: Sweep = _read(path, "sweep")
    return found


# Written in C where PyYAML was built so: every start of Snakemake reads all files.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(LOADER):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # Of a key that is there twice, YAML takes the last one in silence.
        seen = set[Any]()
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ValueError(f"{key.value} is there twice, again in line {line}; keep one")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(path: Path) -> Any:
    """Content of a YAML file; `Problem` when it is missing, no YAML, or has a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise Problem(
            f"{path} is missing; run this in the checkout, or restore it with git checkout {path}"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise Problem(f"{path} is no YAML: {' '.join(str(error).split())}") from None


def _read(path: Path, name: str) -> Any:
    return _check(expand(read_yaml(path), GRIDS.get(name, ()), str(path)), name, path)


def _check(data: Any, name: str, path: Path) -> Any:
    try:
        return TypeAdapter(TYPES[name]).validate_python(data)
    except ValidationError as error:
        raise problem(error, data, str(path)) from None
