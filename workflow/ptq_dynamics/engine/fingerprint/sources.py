"""The sources of the package, as they stand on disk or as this process has loaded them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics.engine.checkout import PACKAGE, SOURCES

ENGINE = f"{PACKAGE}.jobs"

_texts: dict[str, tuple[tuple[int, int], str]] = {}


def on_disk(root: Path = SOURCES) -> dict[str, str]:
    """Text of every module of the package below `root`, by name."""
    # Every job asks three times: paths as text are made four times as fast.
    found = {}
    for folder, _, files in os.walk(root / PACKAGE):
        package = os.path.relpath(folder, root).replace(os.sep, ".")
        for file in files:
            stem, suffix = os.path.splitext(file)
            if suffix == ".py":
                name = package if stem == "__init__" else f"{package}.{stem}"
                found[name] = _text(os.path.join(folder, file))
    return dict(sorted(found.items()))


def as_loaded(root: Path = SOURCES) -> dict[str, str]:
    """As on disk, but modules that this process loaded with the engine are as they were then."""
    return {**on_disk(root), **_LOADED}


def _text(path: str) -> str:
    status = os.stat(path)
    stamp = (status.st_mtime_ns, status.st_size)
    known = _texts.get(path)
    if known is None or known[0] != stamp:
        known = _texts[path] = (stamp, Path(path).read_text(encoding="utf-8"))
    return known[1]


def _loaded_now() -> Mapping[str, str]:
    names = [name for name in sys.modules if name.split(".")[0] == PACKAGE]
    files = {name: getattr(sys.modules[name], "__file__", None) for name in names}
    return {
        name: _text(file)
        for name, file in files.items()
        if file is not None and not f"{name}.".startswith(f"{ENGINE}.")
    }


# The few modules that the engine itself needs, which a warm process has loaded long before a job.
_LOADED = _loaded_now()
