"""Reading and checking all files under config/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import Claim, TableKind
from ptq_dynamics.config import miniatures, releases
from ptq_dynamics.config.errors import problem
from ptq_dynamics.config.families import Families
from ptq_dynamics.config.grids import expand
from ptq_dynamics.config.names import DISTINCT, FigureName, Named, QuantizerName, require
from ptq_dynamics.config.quantizers import Quantizer
from ptq_dynamics.config.queries import Backends, Choice, Sweep
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.config.tasks import Task
from ptq_dynamics.config.trajectories import Runs
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.hub.lock import read as read_lock

Quantizers = Annotated[dict[QuantizerName, Quantizer], DISTINCT]
Figures = Annotated[dict[FigureName, Figure], DISTINCT]


class Config(Strict):
    """All of config/, for one scale, with its families as that has them."""

    choice: Choice
    scale: Scale
    runs: Runs
    quantizers: Quantizers
    figures: Figures
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
    "quantizers": Quantizers,
    "tasks": Named[Task],
    "figures": Figures,
    "claims": Named[Claim],
    "tables": Named[TableKind],
    "backends": Backends,
    "sweep": Sweep,
}
# Files that a configuration of one's own, for figures alone, need not have.
OPTIONAL = ("claims", "tables")
# Where entries may be grids.
SECTIONS = {"runs": ("runs", "averages"), "families": ("runs", "averages")}


def scales(folder: Path = Path("config")) -> list[str]:
    """Names of the scales: those of the files under `folder`/scales."""
    return sorted(path.stem for path in folder.glob("scales/*.yaml"))


def load(choice: dict[str, Any], folder: Path) -> Config:
    """Read and check all files under `folder` for the scale and figures of `choice`.

    Raises `Problem` naming file, key, value and what is allowed.
    """
    chosen: Choice = _check(choice, "config", folder / "config.yaml", {})
    require(f"{folder / 'config.yaml'}: scale", "scale", [chosen.scale], scales(folder))
    file = folder / "scales" / f"{chosen.scale}.yaml"
    parts = {"scale": _read(file, "scale")}
    for name in [name for name in TYPES if name in Config.model_fields and name != "scale"]:
        path = folder / f"{name}.yaml"
        parts[name] = {} if name in OPTIONAL and not path.exists() else _read(path, name)
    path = folder / "families.yaml"
    content, grids = expand(read_yaml(path), SECTIONS["families"], str(path))
    families: Families = _check(content, "families", path, grids)
    families.check()
    if parts["scale"].miniatures is None:
        lock = read_lock(path.with_suffix(".lock.json"))
        parts["scale"], *made = releases.settle(families, parts["scale"], str(file), lock)
    else:
        parts["scale"], *made = miniatures.settle(families, parts["scale"], str(file))
    parts["runs"] = parts["runs"].with_families(*made, families.averages, grids)
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
    content, grids = expand(read_yaml(path), SECTIONS.get(name, ()), str(path))
    return _check(content, name, path, grids)


def _check(data: Any, name: str, path: Path, grids: Mapping[tuple[str, str], str]) -> Any:
    try:
        return TypeAdapter(TYPES[name]).validate_python(data, context={"grids": grids})
    except ValidationError as error:
        raise problem(error, data, str(path), grids) from None
