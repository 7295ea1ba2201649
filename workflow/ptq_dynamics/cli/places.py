"""Folders of projects, and names of runs, by the places of their checkpoints."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from shutil import rmtree

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli.chosen import ending
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.paths import RECORD


@contextmanager
def claimed(out: Path | None, places: Sequence[str], names: Sequence[str]) -> Iterator[Path]:
    """Hold the folder of a project against other calls: `out`, or a folder in own/ with the names
    of runs. This folder has no other runs. A new folder without any measurement is removed again,
    also where a signal ends this process."""
    for root in [out] if out else _roots(names, places):
        if out is None and not _is_free(root, places):
            continue
        root.parent.mkdir(parents=True, exist_ok=True)
        with ending(sys.exit), held(root.parent / f".{root.name}.lease", print) as require:
            # It may have waited for a call with other runs.
            if out is None and not _is_free(root, places):
                continue
            is_new = not root.exists()
            (root / "config").mkdir(parents=True, exist_ok=True)
            try:
                yield root
            finally:
                if is_new and not any(root.glob(f"results/*/measure/**/*{RECORD}")):
                    require()
                    rmtree(root)
            return


def _roots(names: Sequence[str], places: Sequence[str]) -> Iterator[Path]:
    """Yield folders for runs: by their names, then with the parent folders, then with a number."""
    yield Path("own", "-".join(names))
    above = [Path(place).resolve().parent.name for place in places]
    first = "-".join(f"{one}-{two}" for one, two in zip(above, names, strict=True))
    yield Path("own", first)
    yield from (Path("own", f"{first}-{number}") for number in count(2))


def _is_free(root: Path, places: Sequence[str]) -> bool:
    """Return whether a folder has no project, or one of these runs."""
    if not (file := root / "config/families.yaml").is_file():
        return True
    sources = [entry["checkpoints"] for entry in config.read_yaml(file)["own"].values()]
    earlier = [s.get("repository") or str((root / s["folder"]).resolve()) for s in sources]
    return earlier == [str(Path(p).resolve()) if Path(p).is_dir() else p for p in places]


def names_of(places: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the names of runs: those given, or the last parts of their places that differ."""
    if given and (len(given) != len(places) or len({*given}) < len(given)):
        raise Problem(f"--names has {', '.join(given)}: must be {len(places)} different names")
    parts = [Path(place).resolve().parts for place in places]
    if len({*parts}) < len(parts):
        raise Problem(f"{', '.join(places)} has a run twice; name each run once")
    for depth in range(1, max(map(len, parts))):
        if len({own[-depth:] for own in parts}) == len(parts):
            return list(given) or ["-".join(own[-depth:]) for own in parts]
    raise AssertionError(parts)
