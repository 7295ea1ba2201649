"""Take results over from another checkout or a released archive, where they are what would be made
here."""

import contextlib
import os
import re
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record, signals
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import ABSENT
from ptq_dynamics.engine.publish import OUT, publish
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.archive import HARMS, RELEASE
from ptq_dynamics.provenance.state import Finding, find


@dataclass(frozen=True)
class Adopted:
    """How many results were taken over, and how many were up to date here before; those of the
    other place that would be made otherwise here; seeds that only the other place has."""

    taken: int
    had: int
    left: list[Finding]
    seeds: list[int]


def adopt(plan: Plan, source: Path) -> Adopted:
    """Copy what is up to date there, by its records and all of its bytes, and not here.

    `source` is the folder of a checkout, or one of a scale below it. Raises `Problem` where it has
    no results of the scale.
    """
    root = _root(source, Path(plan.site.results))
    here = {each.manifest for each in find(plan, plan.last()) if each.state == "fresh"}
    with contextlib.chdir(root):
        there = find(plan, plan.last(), deep=True)
    new = [each for each in there if each.state == "fresh" and each.manifest not in here]
    for each in new:
        _take(plan.site.made[each.manifest], root)
    left = [each for each in there if each.state == "stale" and each.manifest not in here]
    return Adopted(len(new), len(here), left, _further_seeds(plan, root))


def _further_seeds(plan: Plan, root: Path) -> list[int]:
    """The seeds of which there are results in another checkout, and none in a plan."""
    there = {path.name for path in (root / plan.site.results).glob("*/*/seed-*")}
    planned = {part for job in plan.site.needed(plan.last()) for part in Path(job.folder).parts}
    numbers = (name.removeprefix("seed-") for name in there - planned)
    return sorted(int(number) for number in numbers if re.fullmatch(r"0|[1-9]\d{0,8}", number))


def _root(source: Path, results: Path) -> Path:
    """The checkout that a folder belongs to."""
    absolute = source.resolve()
    for root in (absolute, *absolute.parents[:2]):
        # An archive is unpacked below this checkout, whose results it does not belong to.
        is_below = absolute in (root, root / results.parent, root / results)
        if is_below and (root / results).is_dir():
            if root == Path().resolve():
                raise Problem(f"{source} is this checkout; name another one")
            return root
    raise Problem(
        f"{source} has no {results}; name a checkout or a release that has it, or another --scale"
    )


def _take(job: Job, root: Path) -> None:
    """Publish one result as its job would, with the record that it has."""
    paths, account = job.paths, record.read(root / job.paths.record)
    own, known = (account.manifest(place / paths.manifest) for place in (Path(), root))
    paths.folder.mkdir(parents=True, exist_ok=True)
    with held(paths.lease, print, lambda: None) as lease:
        for left in paths.left(account.identity):
            shutil.rmtree(left, ignore_errors=True)
        work = paths.work(account.identity, lease.token)
        (work / OUT).mkdir(parents=True)
        gone = [name for name in own.files if not _brought(name, own, known, work / OUT)]
        for name in gone:
            # What lies there is of another result, and counts as absent.
            (own.folder / name).unlink(missing_ok=True)
        publish(work, paths, account, lease.require)
        if gone:
            write_atomically(paths.part(ABSENT), own.note(gone))
        shutil.rmtree(work, ignore_errors=True)


def _brought(name: str, own: Manifest, known: Manifest, out: Path) -> bool:
    """Whether a file could be brought to where it is published from: the one that is here already,
    if it is the same, which the other place may lack; or a copy from there."""
    here, there, place = own.folder / name, known.folder / name, out / name
    is_here = here.is_file() and sha256(here) == own.files[name]["sha256"]
    if not is_here and not there.exists():
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    if is_here:
        os.link(here, place)
    else:
        shutil.copyfile(there, place)
    return True


@contextlib.contextmanager
def unpacked(place: str, digest: str | None) -> Iterator[Path]:
    """The folder that a place is: itself, or what an archive holds: that of a release in a folder,
    or one, local or at an HTTPS address, whose sha256 has to be the one given.

    Raises `Problem` where it is none of these, out of reach, or another one.
    """
    folder, release = Path(place), Path(place, RELEASE)
    if folder.is_dir() and not release.is_file():
        yield folder
        return
    if not folder.is_dir() and digest is None:
        raise Problem(f"{place} is no folder; of an archive, also give --sha256")
    with (
        tempfile.TemporaryDirectory(prefix="ptq-dynamics-adopt-", dir=".") as name,
        signals.removing(name),
    ):
        archive = release if release.is_file() else folder
        if place.startswith("https://"):
            archive = Path(name, "archive")
            try:
                with (
                    urllib.request.urlopen(place, timeout=60) as answer,
                    archive.open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
            except (OSError, ValueError) as error:
                raise Problem(f"{place} is out of reach ({error})") from None
        elif not archive.is_file():
            raise Problem(f"{place} is neither a folder, nor a file, nor an address with https")
        if digest is not None and (found := sha256(archive)) != digest.lower():
            raise Problem(f"{place} has sha256 {found}, not the one that is given")
        tree = Path(name, "tree")
        tree.mkdir()
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(tree, filter="data")
        except HARMS as error:
            reason = str(error).partition("\n")[0]
            raise Problem(f"{place} is not an archive that tar reads ({reason})") from None
        # A checkout may lie in one folder of its archive.
        entries = list(tree.iterdir())
        yield tree if Path(tree, "results").is_dir() or len(entries) != 1 else entries[0]
