"""Take results over from another checkout or a released archive, where they are what would be made
here."""

import contextlib
import os
import shutil
import tarfile
import tempfile
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
    """How many results were taken over, how many were up to date here before, and those of the
    other place that would be made otherwise here."""

    taken: int
    had: int
    left: list[Finding]


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
    return Adopted(len(new), len(here), left)


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
def unpacked(place: Path) -> Iterator[Path]:
    """The folder of a checkout that a place is, or that an archive holds: this file, or that of a
    release in this folder. `Problem` where it is neither."""
    archive = place / RELEASE if place.is_dir() else place
    if place.is_dir() and not archive.is_file():
        yield place
        return
    with (
        tempfile.TemporaryDirectory(prefix="ptq-dynamics-adopt-", dir=".") as tree,
        signals.removing(tree),
    ):
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(tree, filter="data")
        except HARMS as error:
            reason = str(error).partition("\n")[0]
            raise Problem(f"{place} is not an archive that tar reads ({reason})") from None
        # A checkout may lie in one folder of its archive.
        entries = list(Path(tree).iterdir())
        yield Path(tree) if Path(tree, "results").is_dir() else entries[0]
