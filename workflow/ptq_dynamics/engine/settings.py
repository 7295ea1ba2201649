"""Settings of a stage across the job border: a frozen dataclass there and back through JSON."""

import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import TypeAdapter


def encode(settings: Any) -> Any:
    """Settings, a frozen dataclass, as plain data for JSON."""
    kind: Any = type(settings)
    return _adapter(kind).dump_python(settings, mode="json")


def decode(stage: Callable[..., Any], content: Any) -> Any:
    """What `encode` gave, as the dataclass that the stage's annotation names:
    `def run(context: Context[Settings])`."""
    (kind,) = typing.get_args(typing.get_type_hints(stage)["context"])
    return _adapter(kind).validate_python(content)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
