"""The sources of the package, as they stand on disk or as this process has loaded them."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics.jobs.checkout import PACKAGE, SOURCES

ENGINE = f"{PACKAGE}.jobs"

_texts: dict[Path, tuple[tuple[int, int], str]] = {}


def on_disk(root: Path = SOURCES) -> dict[str, str]:
    """Text of every module of the package below `root`, by name."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = _text(path)
    return found


def as_loaded(root: Path = SOURCES) -> dict[str, str]:
    """As on disk, but modules that this process loaded with the engine are as they were then."""
    return {**on_disk(root), **_LOADED}


def _text(path: Path) -> str:
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    known = _texts.get(path)
    if known is None or known[0] != stamp:
        known = _texts[path] = (stamp, path.read_text(encoding="utf-8"))
    return known[1]


def _loaded_now() -> Mapping[str, str]:
    names = [name for name in sys.modules if name.split(".")[0] == PACKAGE]
    files = {name: getattr(sys.modules[name], "__file__", None) for name in names}
    return {
        name: _text(Path(file))
        for name, file in files.items()
        if file is not None and not f"{name}.".startswith(f"{ENGINE}.")
    }


# The few modules that the engine itself needs, which a warm process has loaded long before a job.
_LOADED = _loaded_now()
