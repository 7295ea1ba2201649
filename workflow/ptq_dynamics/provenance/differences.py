"""What differs between two specifications of a job, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ptq_dynamics.base.content import canonical

# Of the definitions of a job's code: the key of the digest of how they refer to each other.
ALL = ""
ABSENT = object()
# Of the reasons for one result, those that are told.
TOLD = 3


def told(reasons: Sequence[str]) -> str:
    """The first reasons in one line, and how many more there are."""
    more = [f"and {len(reasons) - TOLD:,} more"] if len(reasons) > TOLD else []
    return "; ".join([*reasons[:TOLD], *more])


def differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    places: Mapping[str, Sequence[str]],
    table: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """What a specification has otherwise than an earlier one of the same result.

    `places` maps names of definitions to the modules that hold them now; `table` says of which
    definitions a code is, as far as that is known.
    """
    for key, name in (
        ("name", "name"),
        ("folder", "folder"),
        ("stem", "stem"),
        ("engine", "engine"),
    ):
        if before.get(key) != now.get(key):
            yield _changed(name, before.get(key), now.get(key))
    yield from settings(before.get("settings"), now.get("settings"))
    if before.get("code") != now.get("code"):
        codes = [table.get(each.get("code", "")) for each in (before, now)]
        yield from _code(codes[0], codes[1], places)
    yield from versions(before.get("environment") or {}, now.get("environment") or {})
    yield from _inputs(before.get("inputs") or {}, now.get("inputs") or {})


def settings(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Values that differ, each with its place: `schedule.peak_lr 0.003 → 0.005`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            at = f"{place}.{key}" if place else str(key)
            yield from settings(before.get(key, ABSENT), now.get(key, ABSENT), at)
    elif _is_list(before) and _is_list(now) and len(before) == len(now):
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from settings(one, other, f"{place}[{number}]")
    elif before is ABSENT:
        yield f"{place} is new ({_short(now)})"
    elif now is ABSENT:
        yield f"{place} is gone ({_short(before)})"
    elif canonical(before) != canonical(now):
        yield _changed(place or "settings", before, now)


def versions(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Libraries of which another version is installed."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield _changed(name, before.get(name, "unused"), now.get(name, "unused"))


def _code(
    before: Mapping[str, str] | None,
    now: Mapping[str, str] | None,
    places: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    if before is None or now is None:
        yield "its code changed (no table here says what of it)"
        return
    names = [name for name in sorted({*before, *now} - {ALL}) if before.get(name) != now.get(name)]
    # A class says less than those of its methods that changed.
    classes = {name.rpartition(".")[0] for name in names if name in before and name in now}
    for name in names:
        if name not in classes:
            verb = "is new" if name not in before else "is gone" if name not in now else "changed"
            yield f"{_named(name, places)} {verb}"
    if not names and before.get(ALL) != now.get(ALL):
        yield "what definitions of its code refer to changed"


def _named(name: str, places: Mapping[str, Sequence[str]]) -> str:
    """A definition with its modules; an effect, and a module that counts whole, by it alone."""
    modules = [module.partition(".")[2] for module in places.get(name.partition(".")[0], ())]
    if name.startswith("("):
        return f"a statement at the top of {' or '.join(modules) or 'a module'}"
    if name.startswith("*"):
        return f"the list of what is in {' or '.join(modules) or 'a module'}"
    return " or ".join(f"{module}.{name}" for module in modules) or name


def _inputs(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> Iterator[str]:
    old, new = ({path for group in each.values() for path in group} for each in (before, now))
    yield from (f"reads {path}" for path in sorted(new - old))
    yield from (f"no longer reads {path}" for path in sorted(old - new))
    if old == new and canonical(before) != canonical(now):
        yield "its inputs have other labels or another order"


def _changed(name: str, before: Any, now: Any) -> str:
    return f"{name} {_short(before)} → {_short(now)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
