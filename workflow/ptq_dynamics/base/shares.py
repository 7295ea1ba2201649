"""Shares of a scale's budget of training steps, as configuration has them."""

from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema


def _fraction(value: Any) -> Fraction:
    try:
        numerator, _, denominator = str(value).partition("/")
        return Fraction(numerator) / Fraction(denominator or "1")
    except (ValueError, ZeroDivisionError):
        raise ValueError("must be a number or a fraction such as 18/190") from None


def _schema(description: str, most: int) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "description": description,
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": most},
                {"type": "string", "pattern": r"^[0-9.]+(/[0-9.]+)?$"},
            ],
        }
    )


# Exact: 18/190 of 190,000 steps is 18,000.
Share = Annotated[
    Fraction,
    BeforeValidator(_fraction),
    Field(gt=0, le=1),
    _schema("share of the budget of steps, as 0.1 or 18/190", 1),
]
# Of sizes.
Factor = Annotated[
    Fraction,
    BeforeValidator(_fraction),
    Field(gt=0, le=1000),
    _schema("factor, as 2 or 1/2", 1000),
]
