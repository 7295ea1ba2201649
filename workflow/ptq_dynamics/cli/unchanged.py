"""What `status` last said, for as long as nothing that it looked at has changed.

To plan thousands of jobs takes seconds, to look at size and times of all files a fraction of one.
So when all is fresh, these are noted; while they hold, the answer is the same. Only the standard
library is imported here, since this comes before all else.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ptq_dynamics.engine.checkout import ROOT, SOURCES

NOTES = Path(".snakemake/ptq-dynamics-fresh")
VERB = "status"
# They change what is printed, and not what is looked at, or look at more.
SILENT, MORE = "--quiet", {"--deep", "--json", "-h", "--help"}
BEGAN = time.time()
# Of the clock of files, in seconds: one may change twice within it, and so after it was read.
TICK = 0.1
# What specifications are made of, beside the libraries.
READ, CONFIG = ("workflow", "envs", "pyproject.toml"), "config"
IGNORED = "__pycache__"


def told(arguments: Sequence[str]) -> str | None:
    """What was said of these arguments of the command, if it holds still."""
    note = _note(arguments)
    if note is None:
        return None
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        files = dict.fromkeys((*content["results"], *_sources()))
        holds = files.keys() == content["files"].keys() and all(
            _state(path) == state for path, state in content["files"].items()
        )
        said = str(content["said"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return said if holds else None


def keep(arguments: Sequence[str], said: str, results: Iterable[str]) -> None:
    """Note what was said of results, given by all their files, if none has changed since this
    process began; where nothing can be written, nothing is."""
    note = _note(arguments)
    if note is None:
        return
    results = list(results)
    files = {path: _state(path) for path in (*results, *_sources())}
    # What changed since then, or is gone, may have been looked at before.
    if any(state is None or state[2] > (BEGAN - TICK) * 1e9 for state in files.values()):
        return
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=note.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"said": said, "results": results, "files": files}, file)
        os.replace(name, note)


def _note(arguments: Sequence[str]) -> Path | None:
    """Where it is noted what these arguments say, with this Python; None for what is not."""
    if not arguments or arguments[0] != VERB or not MORE.isdisjoint(arguments):
        return None
    told = [argument for argument in arguments if argument != SILENT]
    key = json.dumps([told, sys.version, sys.prefix, sys.path, str(SOURCES)])
    return NOTES / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _state(path: str) -> list[int] | None:
    """Size and times of what lies at a path, in nanoseconds; None where nothing does."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _sources() -> Iterator[str]:
    """Code, configuration and locks; and the folders of libraries, in which an installation
    changes names. Folders of our own are not: compiled code may appear in them."""
    seen = set[str]()
    # Configuration is read from the folder that this runs in.
    for top in (*(ROOT / name for name in READ), Path.cwd() / CONFIG):
        for folder, folders, names in os.walk(top, followlinks=True):
            known, real = len(seen), os.path.realpath(folder)
            seen.add(real)
            if len(seen) == known:
                folders[:] = []
                continue
            folders[:] = [name for name in folders if name != IGNORED]
            yield from (f"{folder}/{name}" for name in names)
        if top.is_file():
            yield str(top)
    own = ROOT / "workflow"
    yield from (path for path in sys.path if os.path.exists(path) and not _is_in(path, own))


def _is_in(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)
