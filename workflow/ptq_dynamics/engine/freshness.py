"""Whether a result is up to date: its record against a specification, its inputs and its files."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.paths import Paths

MISSING, DAMAGED = "missing", "damaged"


def stale(spec: Mapping[str, Any], paths: Paths, *, deep: bool = False) -> list[str]:
    """Why a result is not what its specification makes of its inputs, in words, the root cause
    first; empty where it is. `deep` compares the bytes of its files, and not sizes alone."""
    try:
        found = record.read(paths.record)
    except Problem as problem:
        return [f"{DAMAGED}: {problem}" if paths.record.exists() else MISSING]
    reasons = list(differences(found.job, spec))
    for path in (path for group in spec["inputs"].values() for path in group):
        if found.inputs.get(path, "") != (now := digest(path)):
            reasons.append(f"its input {path} is {'other' if now else 'missing'}")
    # Who compares bytes mends all damage, also of what an input's damage alone would not reach.
    result = found.manifest(paths.manifest)
    if (deep or not reasons) and (harm := result.harm(deep)):
        return [f"{DAMAGED}: {harm}", *reasons]
    return reasons


def digest(path: str) -> str | None:
    """Digest of a manifest as it is now, or else by the record beside it; None without both."""
    with suppress(OSError):
        return sha256(Path(path))
    with suppress(Problem):
        return manifest.read(Path(path)).digest()
    return None


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """What differs between two specifications, a line a key: `method.damping 0.05 → 0.01`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            # The first level names parts of a specification.
            name = key if not place or place in ("settings", "inputs") else f"{place}.{key}"
            yield from differences(before.get(key), now.get(key), name)
    elif type(before) is not type(now) or before != now:
        if place.startswith("code."):
            yield f"{place.removeprefix('code.')} changed"
        else:
            yield f"{place.removeprefix('libraries.')} {_shown(before)} → {_shown(now)}"


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
