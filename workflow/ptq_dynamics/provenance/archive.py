"""The results that lie in folders or in a released archive, found by their records."""

import contextlib
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.paths import RECORD, Paths, beside, files
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.settings import ORIGIN

TOP = ("results", "figures", "paper")
# Below results and figures: what is released, a folder a scale.
REFERENCE = "reference"
RELEASE = "release.tar.xz"
# Stages that join and draw raw results: what they make can be derived from these again.
DERIVED = ("figures.", "measure.collect", "claims.", "paper.")
# What reading a damaged archive ends in.
HARMS = (tarfile.TarError, EOFError, OSError, KeyError, ValueError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Result:
    """A record, and where it lies: beside its result, in a released folder or archive."""

    record: Record
    place: Path

    @cached_property
    def path(self) -> str:
        """Path of the manifest, as other records name it."""
        return str(Paths.of(self.record.job).manifest)

    @cached_property
    def digest(self) -> str:
        """Digest of the manifest."""
        return self.record.manifest(Path(self.path)).digest()

    @property
    def in_place(self) -> bool:
        """Whether the record lies beside the manifest of its result."""
        return self.place == beside(self.path, RECORD)

    @property
    def stage(self) -> str:
        """The stage that made the result: its module below the package."""
        return str(self.record.job["stage"])

    @property
    def label(self) -> str:
        """The job in words."""
        return label(self.record.job)

    @property
    def commit(self) -> str:
        """The commit of the code that made it, in words."""
        return str(self.record.git or "none")

    @property
    def about(self) -> list[str]:
        """How it came to be, in words."""
        account = self.record
        return [
            f"digest {self.digest[:16]}",
            f"identity {account.identity[:16]}",
            f"commit {self.commit}",
            f"{account.started[:16]}, {account.seconds:.1f} s",
            account.device.name or account.machine.processor,
            *(f"accepted: {each.reason}" for each in account.accepted),
        ]


def label(job: Mapping[str, Any]) -> str:
    """A job in words: the last part of its stage, and its name."""
    return f"{str(job['stage']).rpartition('.')[2]} {job['name']}"


def at(place: Path) -> Result:
    """The result of a record; raises `Problem` where that cannot be read."""
    return Result(record.read(place), place)


class Archive:
    """All results below some folders and in released archives. Records that cannot be read are
    listed in `damaged` and count as missing."""

    def __init__(self, folders: Iterable[Path], releases: Iterable[Path] = ()) -> None:
        self.folders, self._releases = [*folders], [*releases]
        self.damaged = list[str]()

    @classmethod
    def of_scale(cls, scale: str) -> "Archive":
        """What lies in the folders of one scale."""
        return cls(Path(top, scale) for top in TOP)

    @classmethod
    def here(cls) -> "Archive":
        """What lies in the folders of all scales, and what is released."""
        return cls(map(Path, TOP), Path("results", REFERENCE).glob(f"*/{RELEASE}"))

    @cached_property
    def every(self) -> list[Result]:
        """All results, those in their place first."""
        found = list[Result]()
        there = (path for folder in self.folders for path in files(folder))
        for path in (path for path in there if path.name.endswith(RECORD)):
            try:
                found.append(at(path))
            except Problem as problem:
                self.damaged.append(str(problem))
        for release in filter(Path.is_file, self._releases):
            try:
                with packed(release) as entries:
                    for entry in entries:
                        file = entries.extractfile(entry)
                        if file is not None and entry.name.endswith(RECORD):
                            place = release / entry.name
                            found.append(Result(record.read(place, file.read().decode()), place))
            except Problem as problem:
                self.damaged.append(str(problem))
        return sorted(found, key=lambda each: (not each.in_place, each.place))

    @cached_property
    def results(self) -> dict[str, Result]:
        """One result for each manifest, by its path."""
        return {each.path: each for each in reversed(self.every)}

    def follow(self, inputs: Mapping[str, str]) -> tuple[dict[str, Result], list[str]]:
        """Results of these manifests and of their inputs, inputs first; and what has no record."""
        found, missing = dict[str, Result](), list[str]()

        def visit(inputs: Mapping[str, str]) -> None:
            for path, digest in sorted(inputs.items()):
                if path in found or path in missing:
                    continue
                if (result := self._maker(path, digest)) is None:
                    missing.append(path)
                else:
                    visit(result.record.inputs)
                    found[path] = result

        visit(inputs)
        return found, missing

    def _maker(self, path: str, digest: str) -> Result | None:
        with contextlib.suppress(Problem):
            found = at(beside(path, RECORD))
            if found.digest == digest:
                return found
        return self._by_digest.get((path, digest))

    @cached_property
    def _by_digest(self) -> dict[tuple[str, str], Result]:
        return {(each.path, each.digest): each for each in self.every}

    def in_order(self) -> Iterator[Result]:
        """All results, each after those that it was made from."""
        graph = {path: sorted(each.record.inputs) for path, each in sorted(self.results.items())}
        return filter(None, map(self.results.get, TopologicalSorter(graph).static_order()))


@contextlib.contextmanager
def packed(place: Path) -> Iterator[tarfile.TarFile]:
    """An archive, to be read from its begin to its end; `Problem` where it is damaged."""
    try:
        with tarfile.open(place, "r|*") as archive:
            yield archive
    except HARMS as error:
        reason = str(error).partition("\n")[0]
        raise Problem(f"{place} is not an archive that tar reads ({reason})") from None


def identity_in(path: Path) -> tuple[str, str] | None:
    """The scale and the identity that a picture carries in its metadata, wherever it lies."""
    mark = ORIGIN.format(scale="([^:\n]+)", identity="([0-9a-f]{64})")
    found = re.search(mark.encode(), path.read_bytes())
    return (unescape(found[1].decode(errors="replace")), found[2].decode()) if found else None
