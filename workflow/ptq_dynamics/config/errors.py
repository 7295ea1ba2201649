"""What is wrong with a file of configuration, in one line that names the whole key."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ptq_dynamics.base.problem import Problem

Key = tuple[Any, ...]

# Sayings of pydantic that speak of Python.
MESSAGES = {
    "missing": "is required and missing",
    "dict_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}
LONGEST_VALUE = 80
# Pydantic's last part of the location of an error in a key itself.
KEY = "[key]"


def problem(
    error: ValidationError,
    data: Any,
    place: str,
    grids: Mapping[tuple[str, str], str],
    below: Key = (),
) -> Problem:
    """The first error in the content `data` of the file at `place`, where it stands `below` these
    keys, and how many more there are.

    `grids` has the entries that stand in the file as part of a grid, whose name is told.

    What the alternatives of a type say of one value is one error.
    """
    found = [(_key(details, data), details) for details in error.errors()]
    first = found[0][0]
    same = [(key, details) for key, details in found if key[: len(first)] == first]
    # Of alternatives, the one that got deepest is the one that was meant.
    deepest = max((key for key, _ in same), key=len)
    messages = dict.fromkeys(_message(details) for key, details in same if key == deepest)
    details = next(details for key, details in same if key == deepest)
    more = len({key for key, _ in found} - {key for key, _ in same})
    also = f" (and {more} more such errors)" if more else ""
    if grid := grids.get(deepest[:2]):
        also = f" (in {deepest[1]}){also}"
        deepest = (deepest[0], grid, *deepest[2:])
    named = ".".join(map(_plain, (*below, *deepest)))
    where = f"{place}: {named}{_shown(details)}" if named else place
    return Problem(f"{where}: {' or '.join(messages)}{also}")


def _key(details: ErrorDetails, data: Any) -> Key:
    """Keys and indices of the data that lead to an error.

    Pydantic's location also has the names of types and alternatives, which are dropped.
    """
    location, value = details["loc"], details["input"]
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            location, rest = location[:-1], location[-1:]
        case "unknown_key":
            rest = (context["key"],)
        case "union_tag_invalid" | "union_tag_not_found":
            rest = (_discriminator(details),)
        case _:
            rest = ()
    ways = list(_ways(location, data))
    return (*next((key for key, end in ways if end is value), ways[0][0]), *rest)


def _ways(location: Key, data: Any) -> Iterator[tuple[Key, Any]]:
    """The ways to follow a location through the data, and where they end; first the one that takes
    every part which the data have."""
    if not location:
        yield (), data
        return
    part, *rest = location
    index = isinstance(data, list) and isinstance(part, int) and part < len(data)
    if index or (isinstance(data, dict) and part in data):
        for key, end in _ways(tuple(rest), data[part]):
            yield (part, *key), end
    yield from _ways(tuple(rest), data)


def _discriminator(details: ErrorDetails) -> str:
    return str(details["ctx"]["discriminator"]).strip("'")


def _message(details: ErrorDetails) -> str:
    match details["type"]:
        case "union_tag_invalid":
            return f"must be one of {details['ctx']['expected_tags']}"
        case "union_tag_not_found":
            return MESSAGES["missing"]
        case known if known in MESSAGES:
            return MESSAGES[known]
        case "too_short":
            least = details["ctx"]["min_length"]
            return f"must have at least {least} item{'s' if least > 1 else ''}"
        case "string_too_short":
            return "must not be empty"
    message = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def _shown(details: ErrorDetails) -> str:
    value = details["input"]
    if details["loc"][-1:] == (KEY,):
        return ""
    match details["type"]:
        case "missing" | "unknown_key" | "union_tag_not_found":
            return ""
        case "union_tag_invalid":
            value = value[_discriminator(details)]
    if isinstance(value, dict):
        return ""
    text = repr(value)
    return f" is {text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + '…'}"


def _plain(part: Any) -> str:
    return str(part) if str(part).isprintable() else repr(part)
