"""Take results over from another checkout or a released archive, where they are what would be made
here."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.paths import ABSENT
from ptq_dynamics.engine.publish import OUT, publish, take_over
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.archive import RELEASE, packed
from ptq_dynamics.provenance.state import Finding, find


def adopt(plan: Plan, source: Path) -> tuple[int, int, list[Finding]]:
    """Copy what is up to date there, by its records and all of its bytes, and not here; how many
    results were taken over, how many were up to date here before, and those of the other place
    that would be made otherwise here.

    `source` is the folder of a checkout. Raises `Problem` where it has no results of the scale.
    """
    root, results = source.resolve(), plan.site.results
    if root == Path().resolve():
        raise Problem(f"{source} is this checkout; name another one")
    if not (root / results).is_dir():
        raise Problem(
            f"{source} has no {results}; name a checkout or a release that has it, or another "
            "--scale"
        )
    here = {each.manifest for each in find(plan, plan.last()) if each.state == "fresh"}
    with contextlib.chdir(root):
        there = [each for each in find(plan, plan.last(), deep=True) if each.manifest not in here]
    new = [each for each in there if each.state == "fresh"]
    for each in new:
        _take(plan.site.made[each.manifest], root)
    return len(new), len(here), [each for each in there if each.state == "stale"]


def _take(job: Job, root: Path) -> None:
    """Publish one result as its job would, with the record that it has: files that are here
    already and right, which the other place may lack, and copies of others."""
    paths, account = job.paths, record.read(root / job.paths.record)
    own, gone = account.manifest(paths.manifest), []
    paths.folder.mkdir(parents=True, exist_ok=True)
    with held(paths.lease, print) as lease:
        work = take_over(paths, account.identity, lease.token)
        shutil.rmtree(work, ignore_errors=True)
        (work / OUT).mkdir(parents=True)
        for name, entry in own.files.items():
            here, there, target = own.folder / name, root / own.folder / name, work / OUT / name
            is_right = here.is_file() and sha256(here) == entry["sha256"]
            if not is_right and not there.exists():
                # What lies here is of another result, and counts as absent.
                here.unlink(missing_ok=True)
                gone.append(name)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(here, target) if is_right else shutil.copyfile(there, target)
        publish(work, paths, account, lease.require)
        if gone:
            write_atomically(paths.part(ABSENT), own.note(gone))
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def unpacked(place: Path) -> Iterator[Path]:
    """The folder of a checkout that a place is, or that an archive holds: this file, or that of a
    release in this folder. `Problem` where it is neither."""
    archive = place / RELEASE if place.is_dir() else place
    if place.is_dir() and not archive.is_file():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-adopt-") as tree:
        with packed(archive) as entries:
            entries.extractall(tree, filter="data")
        yield Path(tree)
