"""The list of digests of what is released of a scale, as sha256sum writes and checks them from the
folder of the project."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.paths import is_passing, walk
from ptq_dynamics.provenance.archive import REFERENCE

SUMS = "SHA256SUMS"
# What sweeps measured, which is of no scale, and kept beside those.
SWEEPS = "sweeps"
# Beside what the repository has, and made of it.
LEFT_OUT = ("crate.zip", SUMS)
LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True)
class Places:
    """The folders of a scale's results and pictures that are kept."""

    results: Path
    pictures: Path

    @classmethod
    def of(cls, scale: str) -> "Places":
        """Those in the repository."""
        return cls(Path("results") / REFERENCE / scale, Path("figures") / REFERENCE / scale)

    @property
    def sums(self) -> Path:
        """The list of their digests."""
        return self.results / SUMS

    def files(self) -> list[Path]:
        """What the list is of."""
        left_out = {self.results / name for name in LEFT_OUT}
        both = [*found_in(self.results), *found_in(self.pictures)]
        return sorted(path for path in both if path not in left_out)


def found_in(folder: Path) -> Iterator[Path]:
    """All files below a folder, but for logs and work of jobs."""
    files = sorted(Path(place, name) for place, _, names in walk(folder) for name in names)
    yield from (path for path in files if not is_passing(path.relative_to(folder)))


def write(places: Places) -> None:
    """Write the list of a scale."""
    write_atomically(places.sums, _text({str(path): sha256(path) for path in places.files()}))


def renew(folder: Path) -> None:
    """Write the list again that a folder of released pictures is in, if there is one."""
    places = Places.of(folder.resolve().name)
    if places.pictures.resolve() == folder.resolve() and places.sums.is_file():
        write(places)


def read(path: Path) -> dict[str, str]:
    """The digests in a list, by paths; `Problem` where it is none, or not as it was written."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read ({error})") from None
    found = {line[2]: line[1] for line in map(LINE.fullmatch, text.splitlines()) if line}
    if text != _text(found):
        raise Problem(f"{path} is not as it was written; restore it from git")
    return found


def wrong(places: Places) -> Iterator[str]:
    """What of a release is not as its list has it, a line each."""
    try:
        listed = read(places.sums)
    except Problem as problem:
        yield str(problem)
        return
    there = {str(path): path for path in places.files()}
    for name in sorted({*listed, *there}):
        if name not in there:
            yield f"{name} is missing, which {places.sums} lists"
        elif name not in listed:
            yield f"{name} is not in {places.sums}"
        else:
            try:
                if sha256(there[name]) != listed[name]:
                    yield f"{name} has other bytes than {places.sums} says"
            except OSError as error:
                yield f"{name} cannot be read ({error.strerror})"


def _text(digests: dict[str, str]) -> str:
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
