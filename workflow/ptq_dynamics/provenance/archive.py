"""The results that lie in folders, found by their records."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from xml.sax.saxutils import unescape

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import MANIFEST, RECORD, beside, records
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.settings import ORIGIN
from ptq_dynamics.provenance import packed
from ptq_dynamics.provenance.packed import RELEASE

TOP = ("results", "figures", "paper")
# Below results and figures: what is released, a folder a scale.
REFERENCE = "reference"
# Stages that join and draw raw results: what they make can be derived from these again.
DERIVED = ("figures.", "measure.collect", "claims.", "paper.")


@dataclass(frozen=True)
class Result:
    """A result by the path of its manifest, as it stands in records, with the record of it, and
    where that lies."""

    path: str
    record: Record
    place: Path

    @property
    def in_place(self) -> bool:
        """Whether the record lies beside the manifest that it names."""
        return self.place == beside(self.path, RECORD)

    @property
    def digest(self) -> str:
        """That of the manifest."""
        return self.record.output[self.path]

    @property
    def identities(self) -> set[str]:
        """That of the result, the one that it was made with, and those between, as others were
        accepted for it."""
        before = {each.identity for each in self.record.accepted}
        return {self.record.identity, self.record.made_with, *before}

    @property
    def label(self) -> str:
        """Its job in words."""
        return label(self.record.job)


def label(job: Mapping[str, object]) -> str:
    """A job in words, as its progress lines have it, without the room of its stage."""
    return f"{str(job['stage']).rpartition('.')[2]} {job['name']}"


def _results(account: Record, place: Path) -> list[Result]:
    return [Result(output, account, place) for output in account.output]


class Archive:
    """All results below some folders, and in archives of releases, by their records.

    Records that are damaged are told, and count as missing. Of several records of one result, those
    below the folders that come `first` stand before those in their place, and these before others.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        releases: Iterable[Path] = (),
        first: Iterable[Path] = (),
    ) -> None:
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._releases = [release for release in releases if release.is_file()]
        self._first = [*first]

    @classmethod
    def of_scale(cls, scale: str, root: Path = Path()) -> "Archive":
        """What lies in the folders of one scale."""
        return cls(root / top / scale for top in TOP)

    @classmethod
    def here(cls, scales: Iterable[str] = (), first: Iterable[Path] = ()) -> "Archive":
        """What lies in the folders of all scales, and what is released; that of some scales with
        all that it comes from."""
        releases = [Path("results", REFERENCE, scale, RELEASE) for scale in scales]
        return cls(map(Path, TOP), releases, first)

    @property
    def folders(self) -> list[Path]:
        """The folders that there are."""
        return self._folders

    @cached_property
    def records(self) -> list[Path]:
        """Paths of all records."""
        return sorted(path for folder in self._folders for path in records(folder))

    @cached_property
    def read(self) -> tuple[list[Result], list[str]]:
        """All results with a record, and what is wrong with records that are none."""
        found, harmed = list[Result](), list[str]()
        for path in self.records:
            try:
                found += _results(record.read(path), path)
            except Problem as problem:
                harmed.append(str(problem))
        for release in self._releases:
            try:
                for path, text in packed.records(release):
                    found += _results(record.read(path, text), path)
            except Problem as problem:
                harmed.append(str(problem))
        return sorted(found, key=self._rank), harmed

    def _rank(self, result: Result) -> tuple[bool, bool]:
        is_first = any(result.place.is_relative_to(folder) for folder in self._first)
        return not is_first, not result.in_place

    @cached_property
    def results(self) -> dict[str, Result]:
        """By the path of the manifest."""
        found: dict[str, Result] = {}
        for result in self.read[0]:
            found.setdefault(result.path, result)
        return found

    @cached_property
    def _by_digest(self) -> dict[tuple[str, str], Result]:
        return {(each.path, each.digest): each for each in reversed(self.read[0])}

    def maker(self, path: str, digest: str) -> Result | None:
        """The result of just this manifest."""
        return self._by_digest.get((path, digest))

    def by_identity(self, identity: str) -> Result | None:
        """The result whose pictures carry this identity."""
        return next((r for r in self.read[0] if identity in r.identities), None)

    def cycle(self) -> list[str]:
        """Manifests that need themselves; none where all is well."""
        graph = {path: result.record.inputs.keys() for path, result in self.results.items()}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def in_order(self) -> Iterator[Result]:
        """All results, each after those that it was made from."""
        results = self.results
        graph = {path: sorted(result.record.inputs) for path, result in sorted(results.items())}
        for path in TopologicalSorter(graph).static_order():
            if path in results:
                yield results[path]


def manifest_of(path: Path) -> Manifest | None:
    """The manifest of the result that a file belongs to, or that it is itself or describes."""
    if path.name.endswith(RECORD):
        path = beside(path, MANIFEST)
    if path.name.endswith(MANIFEST):
        return manifest.read(path)
    for folder in path.parents:
        for each in (folder / f"{path.stem}.{MANIFEST}", folder / MANIFEST):
            with contextlib.suppress(Problem):
                found = manifest.read(each)
                if path.relative_to(folder).as_posix() in found.files:
                    return found
        if folder.name in TOP:
            break
    return None


def identity_in(path: Path) -> tuple[str, str] | None:
    """The scale and the identity that a picture carries, wherever it lies: in the words of its
    format, or in its XMP packet, where a tool left that alone. Both stand in the bytes as they
    are."""
    mark = ORIGIN.format(scale="([^:\n]+)", identity="([0-9a-f]{64})")
    found = re.search(mark.encode(), path.read_bytes())
    return (unescape(found[1].decode(errors="replace")), found[2].decode()) if found else None
