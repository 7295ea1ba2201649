"""Results in folders and in released archives, found by their records."""

import contextlib
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from xml.sax.saxutils import unescape

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.paths import RECORD, TOP, Paths, Spec, beside, files
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.labels import ORIGIN

REFERENCE = "reference"  # the folder of releases below results and figures
RELEASE = "release.tar.xz"
CHANGES = "changes.tar.xz"  # files of a later release that differ from those in RELEASE
# Stages that derive results from raw results; measure.collect wrote the table in older releases.
DERIVED = ("figures.", "measure.measurements", "measure.collect", "claims.", "paper.")


@dataclass(frozen=True)
class Result:
    """A record, and its place: beside the result, in a released folder, or in an archive."""

    record: Record
    place: Path

    @cached_property
    def path(self) -> str:
        """Path of the result's manifest, as in other records."""
        return str(Paths.of(self.record.job).manifest)

    @cached_property
    def digest(self) -> str:
        """Digest of the manifest."""
        return self.record.manifest(Path(self.path)).digest()

    @property
    def in_place(self) -> bool:
        """Whether the record lies beside its manifest."""
        return self.place == beside(self.path, RECORD)

    @property
    def stage(self) -> str:
        """Module of the job's stage, relative to the package."""
        return str(self.record.job["stage"])

    @property
    def label(self) -> str:
        """The job in words."""
        return label(self.record.job)

    @property
    def about(self) -> list[str]:
        """Digest, identity, commit, time and device of the result, in words."""
        account = self.record
        return [
            f"digest {self.digest[:16]}",
            f"identity {account.identity[:16]}",
            f"commit {account.git or 'none'}",
            f"{account.started[:16]}, {account.seconds:.1f} s",
            account.device.name or account.machine.processor,
            *(f"accepted: {acceptance.reason}" for acceptance in account.accepted),
        ]


def label(job: Spec) -> str:
    """Return the last part of a job's stage, and the job's name."""
    return f"{str(job['stage']).rpartition('.')[2]} {job['name']}"


def at(place: Path) -> Result:
    """Read the record at `place`; raises `Problem` if the record is unreadable."""
    return Result(record.read(place), place)


class Archive:
    """All results in folders and in archives of releases. `damaged` has errors of unreadable
    records."""

    def __init__(self, folders: Iterable[Path], releases: Iterable[Path] = ()) -> None:
        self.folders, self._releases = [*folders], [*releases]
        self.damaged = list[str]()

    @classmethod
    def of_scale(cls, scale: str) -> "Archive":
        """Return the results of one scale."""
        return cls(Path(top, scale) for top in TOP)

    @classmethod
    def here(cls) -> "Archive":
        """Return the results of all scales, and all releases."""
        return cls(map(Path, TOP), Path("results", REFERENCE).glob("*"))

    @cached_property
    def every(self) -> list[Result]:
        """All results, those in their place first; later archives before earlier ones."""
        results = list[Result]()
        paths = (path for folder in self.folders for path in files(folder))
        for path in (path for path in paths if path.name.endswith(RECORD)):
            try:
                results.append(at(path))
            except Problem as problem:
                self.damaged.append(str(problem))
        archives = (folder / name for folder in self._releases for name in (CHANGES, RELEASE))
        for release in filter(Path.is_file, archives):
            try:
                with packed(release) as entries:
                    for entry in entries:
                        file = entries.extractfile(entry)
                        if file is not None and entry.name.endswith(RECORD):
                            place = release / entry.name
                            results.append(Result(record.read(place, file.read().decode()), place))
            except Problem as problem:
                self.damaged.append(str(problem))
        return sorted(results, key=lambda result: (not result.in_place, result.place))

    @cached_property
    def results(self) -> dict[str, Result]:
        """One result for each manifest, by its path."""
        return {result.path: result for result in reversed(self.every)}

    def follow(self, inputs: Mapping[str, str]) -> tuple[dict[str, Result], list[str]]:
        """Return the lineage of manifests, inputs first, and the manifests without a record."""
        lineage, missing = dict[str, Result](), list[str]()

        def visit(inputs: Mapping[str, str]) -> None:
            for path, digest in sorted(inputs.items()):
                if path in lineage or path in missing:
                    continue
                if result := self._find(path, digest):
                    visit(result.record.inputs)
                    lineage[path] = result
                else:
                    missing.append(path)

        visit(inputs)
        return lineage, missing

    def _find(self, path: str, digest: str) -> Result | None:
        with contextlib.suppress(Problem):
            result = at(beside(path, RECORD))
            if result.digest == digest:
                return result
        return self._by_digest.get((path, digest))

    @cached_property
    def _by_digest(self) -> dict[tuple[str, str], Result]:
        return {(result.path, result.digest): result for result in reversed(self.every)}

    def in_order(self) -> Iterator[Result]:
        """All results, each after its inputs."""
        graph = {path: sorted(made.record.inputs) for path, made in sorted(self.results.items())}
        return filter(None, map(self.results.get, TopologicalSorter(graph).static_order()))


@contextlib.contextmanager
def packed(place: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for reading from begin to end; raises `Problem` if it is damaged."""
    try:
        with tarfile.open(place, "r|*") as archive:
            yield archive
    except (tarfile.TarError, EOFError, OSError, KeyError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise Problem(f"{place} is not an archive that tar reads ({reason})") from None


def identity_in(path: Path) -> tuple[str, str] | None:
    """Return the scale and the identity from the metadata of a picture."""
    mark = ORIGIN.format(scale="([^:\n]+)", identity="([0-9a-f]{64})")
    match = re.search(mark.encode(), path.read_bytes())
    return (unescape(match[1].decode(errors="replace")), match[2].decode()) if match else None
