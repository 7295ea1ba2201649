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
from typing import Any

from ptq_dynamics.base.problem import Problem

KEY = "over"
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def expand(content: Any, sections: tuple[str, ...], file: str) -> Any:
    """The content of a file with the entries that grids among those of some sections stand for.

    Raises `Problem` when a grid's lists do not fit its name or its texts, or two entries have one
    name. What is no mapping is left to the checks of types.
    """
    content = dict(content) if isinstance(content, dict) else content
    for section in sections if isinstance(content, dict) else ():
        entries, found = content.get(section), dict[Any, Any]()
        if not isinstance(entries, dict):
            continue
        for written, entry in entries.items():
            is_grid = isinstance(entry, dict) and KEY in entry
            place = f"{file}: {section}.{written}"
            made = _combinations(written, entry, place) if is_grid else [(written, entry)]
            for name, one in made:
                if name in found:
                    raise Problem(f"{place} makes {name!r}, which another entry makes as well")
                found[name] = one
        content[section] = found
    return content


def _combinations(name: Any, entry: dict[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    lists = entry[KEY]
    if not isinstance(lists, dict) or not all(isinstance(each, list) for each in lists.values()):
        raise Problem(f"{place}.{KEY} is {lists!r}: must be a mapping of placeholders to lists")
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
