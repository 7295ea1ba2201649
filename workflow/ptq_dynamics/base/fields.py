"""Base class and field types of the configuration."""

import difflib
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

T = TypeVar("T")
Values = TypeVar("Values", bound=Sequence[object])


class Strict(BaseModel):
    """A mapping that allows only known keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: object) -> object:
        known = list(cls.model_fields)
        if not isinstance(data, dict | cls):
            raise ValueError(f"must be a mapping (its keys: {', '.join(known)})")
        for key in data if isinstance(data, dict) else ():
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                allowed = {"key": key, "hint": hint, "allowed": ", ".join(known)}
                message = "unknown key{hint} (allowed: {allowed})"
                raise PydanticCustomError("unknown_key", message, allowed)
        return data


def _once(values: Values) -> Values:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"has {twice[0]!r} twice; name it once")
    return values


# Names in the configuration become folders, values of wildcards and targets on the command line.
PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"
Name = Annotated[str, Field(pattern=PATTERN, max_length=100)]
Named = dict[Name, T]
# A list without repeated values.
Once = AfterValidator(_once)
# Floating point counts exactly up to here.
MOST = 10**15
Count = Annotated[int, Field(gt=0, le=MOST)]
# A block of tokens has one target less than tokens.
Context = Annotated[int, Field(ge=2)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _fraction(value: object) -> Fraction:
    try:
        numerator, _, denominator = str(value).partition("/")
        return Fraction(numerator) / Fraction(denominator or "1")
    except (ValueError, ZeroDivisionError):
        raise ValueError("must be a number or a fraction such as 18/190") from None


_SCHEMA = WithJsonSchema({"type": ["number", "string"], "description": "a number, or as 18/190"})
_EXACT = BeforeValidator(_fraction)
# Exact fractions: 18/190 of 190,000 steps is 18,000.
Share = Annotated[Fraction, _EXACT, Field(gt=0, le=1), _SCHEMA]
Factor = Annotated[Fraction, _EXACT, Field(gt=0, le=1000), _SCHEMA]
