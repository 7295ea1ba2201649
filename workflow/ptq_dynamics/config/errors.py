"""Errors in configuration files, in one line that names the whole key."""

import difflib
import re
from collections.abc import Iterable
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ptq_dynamics.base.problem import Problem

# Replacements for messages of pydantic that use terms of Python.
MESSAGES = {
    "missing": "is required and missing",
    "union_tag_not_found": "is required and missing",
    "dict_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "tuple_type": "must be a list",
    "int_parsing": "must be an integer",
    "bool_parsing": "must be true or false",
    "too_short": "must have at least {min_length} entries",
    "union_tag_invalid": "must be one of {expected_tags}",
}
LONGEST_VALUE = 80
T = TypeVar("T")
# An error lists names with at least this similarity, or else the most similar ones.
NEAR, MOST_NAMED = 0.8, 8


def require(place: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `Problem` if a name is not among those known."""
    for name in names:
        if name not in known:
            # Without leading zeros of numbers, so that fig4 matches fig04.
            plain, *others = (re.sub(r"(?<!\d)0+(?=\d)", "", text) for text in (name, *known))
            ratios = [difflib.SequenceMatcher(None, plain, other).ratio() for other in others]
            ordered = sorted(zip(ratios, known, strict=True), key=lambda pair: (-pair[0], pair[1]))
            near = [other for ratio, other in ordered if ratio >= NEAR or ordered[0][0] < NEAR]
            nearest = ", ".join(near[:MOST_NAMED])
            raise Problem(f"{place}: no {kind} {name!r}; the nearest: {nearest}")


def validated(kind: TypeAdapter[T], data: object, place: str) -> T:
    """Return the content `data` of `place` in its type. Raises `Problem` with its first error."""
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        raise _problem(error, data, place) from None


def _problem(error: ValidationError, data: object, place: str) -> Problem:
    """Return the first error in the content `data` of `place`, with all its alternatives."""
    errors = [(_key(details, data), details) for details in error.errors()]
    first = errors[0][0]
    # The alternative with the deepest error is probably the intended one.
    deepest = max((key for key, _ in errors if key[: len(first)] == first), key=len)
    chosen = [details for key, details in errors if key == deepest]
    named = ".".join(str(part) for part in deepest)
    where = f"{place}: {named}{_value(chosen[0])}" if named else place
    return Problem(f"{where}: {' or '.join(dict.fromkeys(map(_message, chosen)))}")


def _key(details: ErrorDetails, data: object) -> tuple[int | str, ...]:
    """Return the keys and indices that lead to an error, without names of types."""
    key = list[int | str]()
    for part in details["loc"]:
        items = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(items, dict) and part in items:
            key.append(part)
            data = items[part]
    match details["type"]:
        case "missing":
            key.append(details["loc"][-1])
        case "unknown_key":
            key.append(details["ctx"]["key"])
        case "union_tag_invalid" | "union_tag_not_found":
            key.append(details["ctx"]["discriminator"].strip("'"))
    return tuple(key)


def _message(details: ErrorDetails) -> str:
    if known := MESSAGES.get(details["type"]):
        return known.format(**details.get("ctx", {}))
    message = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def _value(details: ErrorDetails) -> str:
    """Return the wrong value if it is short and adds something to its key."""
    value, kind = details["input"], details["type"]
    if kind == "union_tag_invalid":
        value = value[details["ctx"]["discriminator"].strip("'")]
    if isinstance(value, dict) or kind in ("missing", "unknown_key"):
        return ""
    text = repr(value)
    return f" is {text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + '…'}"
