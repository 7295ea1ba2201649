"""What the repository keeps of a scale: an archive of all measurements with all records; tables,
claims, paper and pictures with their records; and SHA256SUMS.

Figures can be drawn from an adopted release. Weights and texts are left out, and are made again
where something new needs them."""

import contextlib
import io
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from ptq_dynamics import __version__
from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.curvature.settings import GRID, POINTS, SCORES
from ptq_dynamics.engine import machine, manifest, record
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.paths import ABSENT, RECORD, files
from ptq_dynamics.engine.publish import OUT, publish, take_over
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.build import write_page
from ptq_dynamics.measure.names import LAYERS, LOSSES, OUTCOMES, VALUES
from ptq_dynamics.paper.typeset import PAPER
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import DERIVED, REFERENCE, RELEASE, Archive, Result, packed
from ptq_dynamics.provenance.state import Finding, find
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
    """Write all of a scale that the repository keeps; the archive, and how many results it has."""
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
        for name in (*manifest.read(job.paths.manifest).files, job.paths.record.name)
        if (path := Path(job.folder, name)).suffix != ".pdf"
    }
    copies[Path(paper.folder, PAPER)] = results / PAPER
    copies[paper.paths.record] = results / f"{Path(PAPER).stem}.{paper.paths.record.name}"
    for path, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    write_page(plan.site.config.figures, pictures)
    costs.write(plan, results)
    raw = [job for job in jobs if not job.stage.startswith(DERIVED)]
    pack(raw, results / RELEASE)
    write_sums(scale)
    return results / RELEASE, len(raw)


def write_sums(scale: str) -> None:
    """Write the list of digests of what is released of a scale."""
    write_atomically(folders(scale)[0] / SUMS, "".join(_sums(scale)))


def _require_fresh(plan: Plan, targets: list[Job], jobs: list[Job]) -> None:
    """Raise `Problem` where what is released could not be made again from a commit alone."""
    if stale := [e for e in find(plan, targets, deep=True) if e.state != "up to date"]:
        raise Problem(
            f"{len(stale):,} results are missing or outdated ({stale[0].manifest}); run make all"
        )
    for name in ("CITATION.cff", ".zenodo.json"):
        named = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["version"]
        if named != __version__:
            raise Problem(f"{name} has version {named}, and the package has {__version__}; edit it")
    now = machine.commit(".")
    if now is None or now.dirty:
        raise Problem("the working tree is no clean commit; commit its edits, then release")
    known = machine.history()
    for place in (job.paths.record for job in jobs):
        git = record.read(place).git
        if git is None or git.dirty or (known and git.commit not in known):
            raise Problem(f"{place} names no clean commit of this branch; rm it, and run make all")


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


def _sums(scale: str) -> list[str]:
    every = sorted(path for folder in folders(scale) for path in files(folder))
    return [f"{sha256(path)}  {path}\n" for path in every if path.name not in LEFT_OUT]


def wrong(scale: str) -> Iterator[str]:
    """What of a release is not as its list of digests says, a line each."""
    place = folders(scale)[0] / SUMS
    listed = place.read_text(encoding="utf-8").splitlines(keepends=True)
    for name in sorted({line.split(maxsplit=1)[1].strip() for line in {*listed} ^ {*_sums(scale)}}):
        yield f"{name} is missing, not listed in {place}, or has other bytes than are listed"


def unreachable(scale: str, built: Iterable[Result]) -> Iterator[str]:
    """The commits in records of a scale that this branch lacks, also by tree, a line each."""
    kept = Archive(folders(scale), [folders(scale)[0] / RELEASE]).every
    known, named = machine.history(), {each.record.git: each.place for each in (*kept, *built)}
    for git, place in named.items() if known else ():
        if git and not known & {git.commit, git.tree}:
            yield f"{place}, for one, names commit {git.commit}; the branch lacks it and its tree"


def adopt(plan: Plan, source: Path, given: Path) -> tuple[int, int, list[Finding]]:
    """Copy what is up to date at `source`, a checkout from `given`, and not here; how many results
    were imported, how many were up to date here, and those that would be made otherwise here."""
    root, results = source.resolve(), plan.site.results
    if not (root / results).is_dir():
        raise Problem(f"{given} has no {results}; name a place that has it, or another --scale")
    here = {each.manifest for each in find(plan, plan.last()) if each.state == "up to date"}
    with contextlib.chdir(root):
        there = [each for each in find(plan, plan.last(), deep=True) if each.manifest not in here]
    new = [each for each in there if each.state == "up to date"]
    for each in new:
        _take(plan.site.made[each.manifest], root)
    return len(new), len(here), [each for each in there if each.state == "outdated"]


def _take(job: Job, root: Path) -> None:
    """Publish one result with its record: right files that are here, and copies of others."""
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


def seeds_in(source: Path, config: Config) -> str:
    """The further seeds that are chosen, or else those of the release that a checkout has."""
    runs, seeds = source / "results" / config.choice.scale / "train", config.scale.release_seeds
    found = (each for each in seeds if any(runs.glob(f"*/seed-{each}/{RECORD}")))
    return " ".join(map(str, config.choice.more_seeds or found))


@contextlib.contextmanager
def unpacked(place: Path) -> Iterator[Path]:
    """The folder of a checkout that a place is, or of the archive that it is or contains."""
    archive = place / RELEASE if place.is_dir() else place
    if place.is_dir() and not archive.is_file():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-adopt-") as tree:
        with packed(archive) as entries:
            entries.extractall(tree, filter="data")
        yield Path(tree)
