"""Reading and checking all files under config/."""

import json
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.config.fields import Strict
from ptq_dynamics.config.quantizers import Quantizer
from ptq_dynamics.config.queries import Backends, Choice, Figure
from ptq_dynamics.config.runs import Runs
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.problem import Problem


class Config(Strict):
    """All of config/, for one scale."""

    choice: Choice
    scale: Scale
    runs: Runs
    quantizers: dict[str, Quantizer]
    figures: dict[str, Figure]
    backends: Backends


# Names of alternatives, which pydantic puts into the path of a key.
TAGS = {"whole", "branch", "lawa", "line", "embedded", "datasets"}
TAGS |= {"gptq", "gptqmodel", "autogptq", "awq", "int8", "nf4", "rtn"}

T = TypeVar("T")
FILES: dict[str, tuple[str, Any]] = {
    "runs": ("runs.yaml", Runs),
    "quantizers": ("quantizers.yaml", dict[str, Quantizer]),
    "figures": ("figures.yaml", dict[str, Figure]),
    "backends": ("backends.yaml", Backends),
}


def load(choice: dict[str, Any], folder: Path) -> Config:
    """Read and check all files under `folder` for the scale and figures of `choice`.

    Raises `Problem` naming file, key, value and what is allowed.
    """
    chosen = _check(choice, Choice, folder / "config.yaml")
    scale_file = folder / "scales" / f"{chosen.scale}.yaml"
    parts = {name: _read(folder / file, type_) for name, (file, type_) in FILES.items()}
    return Config(choice=chosen, scale=_read(scale_file, Scale), **parts)


def read_yaml(path: Path) -> Any:
    """Content of a YAML file; `Problem` when it is missing or no YAML."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Problem(f"{path} is missing; restore it with git checkout {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise Problem(f"{path} is no YAML: {reason}") from None


def _read(path: Path, type_: Any) -> Any:
    return _check(read_yaml(path), type_, path)


def _check(data: Any, type_: type[T], path: Path) -> T:
    try:
        return TypeAdapter(type_).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part not in TAGS)
        message = first["msg"].removeprefix("Value error, ")
        value = first["input"]
        shown = "" if isinstance(value, dict) else f" is {value!r}"
        if first["type"] == "missing":
            shown, message = "", "is required and missing"
        place = f"{path}: {key}{shown}" if key else str(path)
        more = len(error.errors()) - 1
        also = f" (and {more} more such errors)" if more else ""
        raise Problem(f"{place}: {message}{also}") from None


def schema() -> str:
    """JSON schema of everything under config/, as it stands in config/schema.json."""
    return json.dumps(Config.model_json_schema(), indent=1, sort_keys=True) + "\n"
