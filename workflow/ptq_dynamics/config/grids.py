"""Many entries from one: an entry with a key `over` stands for all combinations of its lists.

    wsd-{size}-{rate}: {over: {size: [70m, 160m], rate: ["1e-3", "3e-3"]}, model: "{size}",
                        peak_lr: "{rate}", ...}

makes wsd-70m-1e-3, wsd-70m-3e-3, wsd-160m-1e-3 and wsd-160m-3e-3: what stands in braces gives way
to the list's value, in the name and in every text of the entry. A text that is one placeholder and
nothing else becomes the value itself, a number if it is one.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from ptq_dynamics.base.problem import Problem

KEY = "over"
PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Expanded(NamedTuple):
    """Content of a file without grids, and for (section, name) of every entry that a grid made the
    name of that grid."""

    content: Any
    grids: Mapping[tuple[str, str], str]


def expand(content: Any, sections: tuple[str, ...], file: str) -> Expanded:
    """Replace the grids among the named entries of some sections of a file.

    Raises `Problem` when a grid's lists do not fit its name or its texts, or two entries have one
    name. What is no mapping is left to the checks of types.
    """
    if not isinstance(content, dict):
        return Expanded(content, {})
    content = dict(content)
    grids: dict[tuple[str, str], str] = {}
    for section in sections:
        if not isinstance(entries := content.get(section), dict):
            continue
        found = content[section] = dict[Any, Any]()
        for written, entry in entries.items():
            is_grid = isinstance(entry, dict) and KEY in entry
            place = f"{file}: {section}.{written}"
            for name, one in (
                _combinations(written, entry, place) if is_grid else [(written, entry)]
            ):
                if name in found:
                    other = grids.get((section, name), name)
                    raise Problem(f"{place} makes {name!r}, which {other} makes as well")
                found[name] = one
                if is_grid:
                    grids[section, name] = written
    return Expanded(content, grids)


def _combinations(name: Any, entry: dict[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    lists = entry[KEY]
    if not isinstance(lists, dict) or not all(
        isinstance(values, list)
        and values
        and all(isinstance(value, str | int | float) for value in values)
        for values in lists.values()
    ):
        raise Problem(
            f"{place}.{KEY} is {lists!r}: must be a mapping of placeholders to lists of numbers or "
            "texts"
        )
    if missing := [key for key in lists if f"{{{key}}}" not in str(name)]:
        raise Problem(f"{place}.{KEY}.{missing[0]} is not in the name; put {{{missing[0]}}} there")
    rest = {key: value for key, value in entry.items() if key != KEY}
    for values in product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        yield str(_fill(str(name), chosen, place)), _fill(rest, chosen, place)


def _fill(value: Any, chosen: Mapping[str, Any], place: str) -> Any:
    match value:
        case dict():
            return {key: _fill(one, chosen, f"{place}.{key}") for key, one in value.items()}
        case list():
            return [_fill(one, chosen, f"{place}.{index}") for index, one in enumerate(value)]
        case str():
            if unknown := [key for key in PLACEHOLDER.findall(value) if key not in chosen]:
                raise Problem(
                    f"{place} has {{{unknown[0]}}}, which is not in {KEY} ({', '.join(chosen)})"
                )
            if whole := PLACEHOLDER.fullmatch(value):
                return chosen[whole[1]]
            return PLACEHOLDER.sub(lambda found: str(chosen[found[1]]), value)
    return value
