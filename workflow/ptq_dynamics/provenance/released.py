"""What the repository keeps of a scale: an archive of all that is measured, with the records of all
that it comes from; tables, claims, paper and pictures with their records; and SHA256SUMS.

Who takes a release over (see `adopting`) draws every figure from it. Weights and texts stay out, as
if they had been dropped to save space: they are made again where something new asks for them.
"""

import io
import lzma
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature.settings import GRID, POINTS, SCORES
from ptq_dynamics.engine import machine, manifest, record
from ptq_dynamics.engine.paths import ABSENT, is_passing
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.build import write_page
from ptq_dynamics.measure.names import LAYERS, LOSSES, OUTCOMES, VALUES
from ptq_dynamics.paper.settings import PAPER
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import DERIVED, REFERENCE, RELEASE
from ptq_dynamics.provenance.state import find
from ptq_dynamics.train.trajectory import CURVE

# What figures, claims and tables read of raw results; a test draws them from these alone.
MEASURED = {LOSSES, OUTCOMES, VALUES, LAYERS, CURVE, SCORES, POINTS, GRID}
SUMS = "SHA256SUMS"
# Beside what the repository has, and made of it.
LEFT_OUT = ("crate.zip", SUMS)


def folders(scale: str) -> tuple[Path, Path]:
    """The folders of a scale's released results and pictures."""
    return Path("results", REFERENCE, scale), Path("figures", REFERENCE, scale)


def release(plan: Plan) -> tuple[Path, int]:
    """Write all of a scale that the repository keeps in place of an earlier release; the archive,
    and how many results it has.

    Raises `Problem` where a result is not up to date, or was not made by a clean commit.
    """
    scale = plan.site.config.choice.scale
    results, pictures = folders(scale)
    paper = plan.typeset(Path("config"))
    shown = [*plan.last(), plan.claims.judge(), plan.tables.write()]
    targets = [*shown, paper]
    jobs = sorted(plan.site.needed(targets), key=lambda each: each.manifest)
    _require_fresh(plan, targets, jobs)
    for folder in (results, pictures):
        shutil.rmtree(folder, ignore_errors=True)
    copies = {
        path: Path(path.parts[0], REFERENCE, *path.parts[1:])
        for job in shown
        for path in (*map(Path, job.outputs), job.paths.record)
        if path.suffix != ".pdf"
    }
    copies[Path(paper.folder, PAPER)] = results / PAPER
    copies[paper.paths.record] = results / f"{Path(PAPER).stem}.{paper.paths.record.name}"
    for path, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    write_page(plan.site.config.figures, pictures)
    costs.write(scale, results)
    raw = [job for job in jobs if not job.stage.startswith(DERIVED)]
    pack(raw, results / RELEASE)
    write_sums(scale)
    return results / RELEASE, len(raw)


def write_sums(scale: str) -> None:
    """Write the list of digests of what is released of a scale."""
    write_atomically(folders(scale)[0] / SUMS, "".join(_sums(scale)))


def _require_fresh(plan: Plan, targets: list[Job], jobs: list[Job]) -> None:
    """Raise `Problem` where what is released could not be made again from a commit alone."""
    stale = [each for each in find(plan, targets, deep=True) if each.state != "fresh"]
    if stale:
        raise Problem(
            f"{len(stale)} results are not fresh, {stale[0].manifest} for one; make all makes them"
        )
    now = machine.commit()
    if now is None or now.dirty:
        raise Problem("the working tree is no clean commit; commit its edits, then release")
    for job in jobs:
        git = record.read(job.paths.record).git
        if git is None or git.dirty:
            raise Problem(
                f"{job.manifest} was made by code that is in no commit; delete "
                f"{job.paths.record} and make it again"
            )


def pack(jobs: list[Job], place: Path) -> None:
    """Write the archive of the results of some jobs, equal for equal results."""
    with lzma.open(place, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        for job in jobs:
            for path, content in _parts(job):
                # Time, owner and rights, which differ between machines, stay out.
                entry = tarfile.TarInfo(path.as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _parts(job: Job) -> Iterator[tuple[Path, bytes]]:
    paths = job.paths
    result = manifest.read(paths.manifest)
    yield paths.manifest, result.text().encode()
    yield paths.record, paths.record.read_bytes()
    kept = [name for name in result.files if name in MEASURED]
    for name in kept:
        yield result.folder / name, result.file(name).read_bytes()
    if left := result.files.keys() - kept:
        yield paths.part(ABSENT), result.note(left).encode()


def found_in(folder: Path) -> Iterator[Path]:
    """All files below a folder but logs and work of jobs; links to folders are followed."""
    for place, within, names in os.walk(folder, followlinks=True):
        within.sort()
        paths = (Path(place, name) for name in sorted(names))
        yield from (path for path in paths if not is_passing(path.relative_to(folder)))


def _sums(scale: str) -> list[str]:
    every = sorted(path for folder in folders(scale) for path in found_in(folder))
    return [f"{sha256(path)}  {path}\n" for path in every if path.name not in LEFT_OUT]


def wrong(scale: str) -> Iterator[str]:
    """What of a release is not as its list of digests says, a line each."""
    place = folders(scale)[0] / SUMS
    listed = place.read_text(encoding="utf-8").splitlines(keepends=True)
    for name in sorted({line.split(maxsplit=1)[1].strip() for line in {*listed} ^ {*_sums(scale)}}):
        yield f"{name} is missing, not listed in {place}, or has other bytes than are listed"
