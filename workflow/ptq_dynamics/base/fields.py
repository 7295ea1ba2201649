"""What all types of configuration share."""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ptq_dynamics.base.shares import Factor as Factor
from ptq_dynamics.base.shares import Share as Share

Values = TypeVar("Values", bound=Sequence[Any])


class Strict(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict | cls):
            raise ValueError(f"must be a mapping (its keys: {', '.join(cls.model_fields)})")
        if isinstance(data, dict):
            _require_known(data, list(cls.model_fields))
        return data


def _once(values: Values) -> Values:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"has {twice[0]!r} twice; name it once")
    return values


# Of a list: no value is there twice.
Once = AfterValidator(_once)


def keys_of(kinds: Any, by: str) -> BeforeValidator:
    """The same for a union of frozen dataclasses that are told apart by the literal field `by`."""
    known = {
        get_args(get_type_hints(kind)[by])[0]: [field.name for field in fields(kind)]
        for kind in get_args(get_args(kinds)[0])
    }

    def check(data: Any) -> Any:
        if isinstance(data, dict) and (kind := data.get(by)) in [*known]:
            _require_known(data, known[kind])
        return data

    return BeforeValidator(check)


def _require_known(data: dict[Any, Any], known: list[str]) -> None:
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            raise PydanticCustomError(
                "unknown_key",
                "unknown key{hint} (allowed: {allowed})",
                {
                    "key": key,
                    "hint": f"; did you mean {near[0]!r}?" if near else "",
                    "allowed": ", ".join(known),
                },
            )


# Of steps, tokens, layers: less than floating point counts exactly.
MOST = 10**15  # more than anything is counted to
Count = Annotated[int, Field(gt=0, le=MOST)]
# A block has as many targets as it has tokens after the first.
Context = Annotated[int, Field(ge=2)]
# What generators of random numbers take.
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
