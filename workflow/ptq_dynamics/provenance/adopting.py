"""Take results over from another checkout or a released archive, where they are what would be made
here."""

import contextlib
import http.client
import json
import os
import re
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes, manifest, record, signals, verified
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.publish import OUT, prepare, publish
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.due import Due
from ptq_dynamics.provenance.archive import DERIVED
from ptq_dynamics.provenance.packed import HARMS, RELEASE
from ptq_dynamics.provenance.releasing import RELEASED
from ptq_dynamics.provenance.state import Explanation, Finding

CHUNK = 1 << 20
TOP = "results"  # of a checkout, with the folders of scales


@dataclass(frozen=True)
class Adopted:
    """Results that were taken over, those that were current here before, and those that the other
    checkout has and that are not what would be made here, with the reason."""

    taken: list[str]
    had: list[str]
    left: list[Finding]


def adopt(plan: Plan, source: Path, *, besides: Collection[str] = ()) -> Adopted:
    """Copy what is current there, by its records and by all of its bytes, and not here;
    `besides` some manifests, only what is measured, and no figures and tables.

    `source` is the folder of a checkout, or one of a scale below it. Raises `Problem` where it has
    no results of the scale.
    """
    root = _root(source, Path(plan.site.results))
    here = Due(plan.site, Results(Verifier()))
    with contextlib.chdir(root):
        verifier = Verifier(deep=True, remembers=False)
        there = Due(plan.site, Results(verifier))
        whole, rest = there.find(plan.last())
        explain = Explanation(plan.site, there, verifier)
        found = map(explain.of, rest)
        left = sorted((f for f in found if f.state != "missing"), key=lambda each: each.manifest)
    had = [job.manifest for job in whole if not here.is_due(job)]
    new = [job for job in whole if here.is_due(job)]
    if besides:
        stages = {job.manifest: job.stage for job in (*whole, *rest) if job.manifest not in besides}
        measured = {path for path, stage in stages.items() if not stage.startswith(DERIVED)}
        new = [job for job in new if job.manifest in measured]
        left = [each for each in left if each.manifest in measured]
    drops = {job.manifest for job in plan.last() if job.stage == "train.drop"}
    for job in new:
        _check(job, root, drops)
    for job in new:
        _take(job, root)
    # Else the next build says why not.
    with contextlib.suppress(OSError, Problem):
        current = {*had, *(job.manifest for job in new)}
        used = codes.of(job for job in whole if job.manifest in current)
        codes.add(codes.table_of(plan.site.results), used)
    return Adopted([job.manifest for job in new], had, left)


def further_seeds(plan: Plan, source: Path) -> list[int]:
    """The seeds of which there are results in `source`, as `adopt` takes it, and not in a plan."""
    results = Path(plan.site.results)
    folder = _root(source, results) / results
    there = {path.name for path in folder.glob("*/*/seed-*") if path.is_dir()}
    planned = {part for job in plan.site.needed(plan.last()) for part in Path(job.folder).parts}
    numbers = (name.removeprefix("seed-") for name in there - planned)
    # As seeds are written and can be.
    return sorted(int(number) for number in numbers if re.fullmatch(r"0|[1-9]\d{0,8}", number))


def _root(source: Path, results: Path) -> Path:
    """The checkout that a folder belongs to."""
    absolute = source.resolve()
    for root in (absolute, *absolute.parents[:2]):
        # An archive is unpacked below this checkout, which it is no folder of results of.
        is_below = absolute in (root, root / results.parent, root / results)
        if is_below and (root / results).is_dir():
            if root == Path().resolve():
                raise Problem(f"{source} is this checkout; name another one")
            return root
    raise Problem(
        f"{source} has no {results}; name a checkout or a release that has it, or another --scale"
    )


def _check(job: Job, root: Path, drops: set[str]) -> None:
    """Raise `Problem` where a result has files elsewhere, or a note of dropped ones that no job of
    this plan wrote."""
    known = manifest.read(root / job.paths.manifest)
    top, files = known.folder.resolve(), [known.folder / name for name in known.files]
    # Folders and links alone, since to resolve every file of a release takes long.
    for path in {each if each.is_symlink() else each.parent for each in files}:
        if not path.resolve().is_relative_to(top):
            raise Problem(f"{path} leads elsewhere; nothing was taken over")
    note = root / job.paths.absent
    if note.exists():
        by = _left_out_by(note)
        if not known.dropped() <= known.files.keys() or by not in {*drops, RELEASED}:
            raise Problem(f"{note} is of no job that would run here; nothing was taken over")


def _take(job: Job, root: Path) -> None:
    """Publish one result as its job would, with the record that it has."""
    paths = job.paths
    known = manifest.read(root / paths.manifest)
    account = record.read(root / paths.record)
    paths.folder.mkdir(parents=True, exist_ok=True)
    with held(paths.lease, print, lambda: None) as lease:
        for left in paths.left(account.identity):
            shutil.rmtree(left, ignore_errors=True)
        work = paths.work(account.identity, lease.token)
        (work / OUT).mkdir(parents=True)
        own = manifest.Manifest(paths.manifest, known.files, known.facts)
        gone = [name for name in own.files if not _brought(name, own, known, work / OUT)]
        for name in gone:
            # What lies there is of another result, and counts as absent.
            (own.folder / name).unlink(missing_ok=True)
        prepare(work, own, account.text())
        publish(work, paths, lease.require)
        if gone:
            write_atomically(paths.absent, own.note(gone, _left_out_by(root / paths.absent)))
        verified.note(own, own.files.keys() - gone)
        shutil.rmtree(work, ignore_errors=True)


def _brought(name: str, own: manifest.Manifest, known: manifest.Manifest, out: Path) -> bool:
    """Whether a file could be brought to where it is published from: the one that is here already,
    if it is the same, which the other place may lack; or a copy from there."""
    here, there, place = own.folder / name, known.folder / name, out / name
    is_here = here.is_file() and sha256(here) == own.files[name]["sha256"]
    if not is_here and not there.exists():
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(here, place) if is_here else shutil.copyfile(there, place)
    except OSError:
        if not is_here:
            raise
        shutil.copyfile(here, place)
    return True


def _left_out_by(note: Path) -> str:
    """What left files out, by the note of that; `Problem` where it is none."""
    try:
        return str(json.loads(note.read_text(encoding="utf-8"))["by"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(
            f"{note} does not say what is absent ({error}); nothing was taken over"
        ) from None


@contextlib.contextmanager
def unpacked(place: str, digest: str | None) -> Iterator[Path]:
    """The folder that a place is: itself, or what an archive holds, that of a release in a folder,
    or one, local or at an HTTPS address, whose sha256 has to be the one given.

    Raises `Problem` where it is none of these, out of reach, or another one.
    """
    is_folder = Path(place).is_dir()
    if is_folder and digest is not None:
        raise Problem(f"{place} is a folder, which has no sha256; leave that out")
    is_release = (Path(place) / RELEASE).is_file() and not (Path(place) / TOP).is_dir()
    if is_folder and not is_release:
        yield Path(place)
        return
    if not is_folder and digest is None:
        raise Problem(f"{place} is no folder; of an archive, also give --sha256")
    with (
        tempfile.TemporaryDirectory(prefix="ptq-dynamics-adopt-", dir=".") as name,
        signals.removing(name),
    ):
        folder = Path(name)
        archive = Path(place) / RELEASE if is_folder else Path(place)
        if place.startswith("https://"):
            archive = folder / "archive"
            _download(place, archive)
        elif not archive.is_file():
            raise Problem("PLACE is neither a folder, nor a file, nor an address with https")
        if digest is not None and sha256(archive) != digest.lower():
            raise Problem(f"the archive has sha256 {sha256(archive)}, not the one that is given")
        (folder / "tree").mkdir()
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(folder / "tree", filter="data")
        except HARMS as error:
            # Of an archive that is none at all, tar tells line by line what else it is not.
            why = str(error).partition("\n")[0]
            raise Problem(f"the archive is none that tar reads ({why})") from None
        yield _tree(folder / "tree")


def _tree(folder: Path) -> Path:
    """The checkout in an archive, which may lie in one folder."""
    entries = [path for path in folder.iterdir() if path.is_dir()]
    is_root = any(path.name == TOP for path in entries)
    return folder if is_root or len(entries) != 1 else entries[0]


def _download(address: str, target: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file, CHUNK)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Problem(f"the archive is out of reach ({error})") from None
