"""Releases: the results of a scale with all records, without weights and texts."""

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
from ptq_dynamics.engine.execute import OUT, publish, take_over
from ptq_dynamics.engine.job import Job
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.paths import ABSENT, MANIFEST, RECORD, beside, files
from ptq_dynamics.figures.captions import write_page
from ptq_dynamics.measure.names import LAYERS, LOSSES, OUTCOMES, VALUES
from ptq_dynamics.paper.typeset import PAPER
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import (
    CHANGES,
    DERIVED,
    REFERENCE,
    RELEASE,
    Archive,
    Result,
    packed,
)
from ptq_dynamics.provenance.state import Finding, find
from ptq_dynamics.trajectories.trajectory import CURVE

# Files of raw results that figures, claims and tables read.
MEASURED = {LOSSES, OUTCOMES, VALUES, LAYERS, CURVE, SCORES, POINTS, GRID}
SUMS = "SHA256SUMS"
UNLISTED = ("crate.zip", SUMS)


def folders(scale: str) -> tuple[Path, Path]:
    """Return the folders of a scale's released results and pictures."""
    return Path("results", REFERENCE, scale), Path("figures", REFERENCE, scale)


def release(plan: Plan) -> tuple[Path, int]:
    """Write the release of a scale; return its new archive and the number of archived results."""
    scale = plan.site.config.choice.scale
    results, pictures = folders(scale)
    paper = plan.paper.typeset()
    shown = [*plan.targets(), plan.claims.judge(), plan.claims.tabulate()]
    jobs = sorted(plan.site.needed([*shown, paper]), key=lambda job: job.manifest)
    _require_releasable(plan, jobs)
    shutil.rmtree(pictures, ignore_errors=True)
    for path in [*files(results)]:
        if path.name != RELEASE:
            path.unlink()
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
    costs.write_costs(scale, results)
    raw = [job for job in jobs if not job.stage.startswith(DERIVED)]
    place = pack(raw, results)
    write_atomically(results / SUMS, "".join(_sums(scale)))
    return place, len(raw)


def require_clean() -> None:
    """Raise `Problem` if the working tree has edits."""
    if machine.read_commit(".").dirty:
        raise Problem("the working tree is no clean commit; commit its edits, then release")


def _require_releasable(plan: Plan, jobs: list[Job]) -> None:
    """Raise `Problem` unless one clean commit of the branch can build all results again."""
    if stale := [e for e in find(plan, jobs, deep=True) if e.state != "up to date"]:
        some = f"{len(stale):,} results, such as {stale[0].manifest},"
        raise Problem(f"{some} are missing or outdated; run make all")
    for name in ("CITATION.cff", ".zenodo.json"):
        named = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["version"]
        if named != __version__:
            raise Problem(f"{name} has version {named}, and the package has {__version__}; edit it")
    require_clean()
    known, gap = machine.history()
    if gap:
        raise Problem(f"commits of records cannot be verified: {gap}, then release")
    for place in (job.paths.record for job in jobs):
        git = record.read(place).git
        if git is None or git.dirty or git.commit not in known:
            raise Problem(f"{place} names no clean commit of this branch; remove it, then make all")


def pack(jobs: list[Job], folder: Path) -> Path:
    """Write records and measurements into an archive in `folder`; return its path. If an earlier
    archive there has most of the bytes, write only the other files, into another archive."""
    earlier, parts = dict[str, bytes](), dict[str, bytes]()
    # A damaged archive has none of them.
    with contextlib.suppress(Problem), packed(folder / RELEASE) as archive:
        opened = ((entry.name, archive.extractfile(entry)) for entry in archive)
        earlier = {name: file.read() for name, file in opened if file is not None}
    for job in jobs:
        result = manifest.read(job.paths.manifest)
        kept = [result.file(name) for name in result.files if name in MEASURED]
        parts |= {path.as_posix(): path.read_bytes() for path in (job.paths.record, *kept)}
    place, new = folder / CHANGES, {n: c for n, c in parts.items() if earlier.get(n) != c}
    if 2 * sum(map(len, new.values())) > sum(map(len, parts.values())):
        place, new = folder / RELEASE, parts
    if not new:
        return folder / RELEASE
    with lzma.open(place, "wb", preset=9) as file, tarfile.open(fileobj=file, mode="w") as archive:
        # Files of one kind lie together, which makes the archive smaller.
        for name in sorted(new, key=lambda name: (Path(name).name, name)):
            # An entry from the file would hold its time and owner.
            entry = tarfile.TarInfo(name)
            entry.size = len(new[name])
            archive.addfile(entry, io.BytesIO(new[name]))
    return place


def _sums(scale: str) -> list[str]:
    every = sorted(path for folder in folders(scale) for path in files(folder))
    return [f"{sha256(path)}  {path}\n" for path in every if path.name not in UNLISTED]


def wrong(scale: str) -> Iterator[str]:
    """Yield a line for each released file that differs from the list of digests."""
    place = folders(scale)[0] / SUMS
    listed = place.read_text(encoding="utf-8").splitlines(keepends=True)
    for name in sorted({line.split(maxsplit=1)[1].strip() for line in {*listed} ^ {*_sums(scale)}}):
        yield f"{name} is missing, not listed in {place}, or differs from its listed digest"


def unreachable(scale: str, built: Iterable[Result]) -> tuple[list[str], str]:
    """Return a line for each commit in a scale's records that is not known here, nor its tree, and
    why the branch may have it all the same, if so."""
    kept = Archive(folders(scale), folders(scale)[:1]).results.values()
    named = {result.record.git: result.place for result in (*kept, *built)}
    known, gap = machine.history()
    return [
        f"{place} names commit {git.commit}; the branch lacks this commit and its tree"
        for git, place in named.items()
        if git and not known & {git.commit, git.tree}
    ], gap


def adopt(plan: Plan, source: Path, given: Path) -> tuple[int, int, list[Finding]]:
    """Import results that are up to date in the checkout `source`, unpacked from `given`. Return
    their number, how many were up to date before, and the outdated results of `source`."""
    root, results = source.resolve(), plan.site.results
    if not (root / results).is_dir():
        raise Problem(f"{given} has no {results}; name a place that has it, or another --scale")
    here = {item.manifest for item in find(plan, plan.targets()) if item.state == "up to date"}
    with contextlib.chdir(root):
        there = find(plan, plan.targets(), deep=True)
    there = [item for item in there if item.manifest not in here]
    new = [item for item in there if item.state == "up to date"]
    for item in new:
        _take(plan.site.made[item.manifest], root)
    return len(new), len(here), [item for item in there if item.state == "outdated"]


def _take(job: Job, root: Path) -> None:
    """Publish a result with its record; local files with the right bytes stay."""
    paths, account = job.paths, record.read(root / job.paths.record)
    own, gone = account.manifest(paths.manifest), []
    paths.folder.mkdir(parents=True, exist_ok=True)
    with held(paths.lease, print):
        work = take_over(paths, account.identity)
        shutil.rmtree(work, ignore_errors=True)
        (work / OUT).mkdir(parents=True)
        for name, entry in own.files.items():
            here, there, target = own.folder / name, root / own.folder / name, work / OUT / name
            is_right = here.is_file() and sha256(here) == entry["sha256"]
            if not is_right and not there.exists():
                here.unlink(missing_ok=True)
                gone.append(name)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(here, target) if is_right else shutil.copyfile(there, target)
        publish(work, paths, account)
        if gone:
            write_atomically(beside(paths.manifest, ABSENT), own.note(gone))
        shutil.rmtree(work, ignore_errors=True)


def seeds_in(source: Path, config: Config) -> str:
    """Return the seeds that are chosen, or the release's seeds that a checkout has runs of."""
    runs, seeds = source / "results" / config.choice.scale / "train", config.scale.release_seeds
    released = (seed for seed in seeds if any(runs.glob(f"*/seed-{seed}/{RECORD}")))
    return " ".join(map(str, config.choice.more_seeds or released))


@contextlib.contextmanager
def unpacked(place: Path) -> Iterator[Path]:
    """Yield a checkout: `place`, or a folder with the files of a release in or at `place`."""
    archive = place / RELEASE if place.is_dir() else place
    if place.name == CHANGES:
        archive = place.with_name(RELEASE)
    if place.is_dir() and not archive.is_file():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-adopt-") as tree:
        for part in (archive, *filter(Path.is_file, [archive.with_name(CHANGES)])):
            with packed(part) as entries:
                # Archives of version 0.2 hold manifests, which may be those of earlier results.
                rest = (e for e in entries if not e.name.endswith((MANIFEST, ABSENT)))
                entries.extractall(tree, rest, filter="data")
        for path in Path(tree).rglob(f"*{RECORD}"):
            result = manifest.read(beside(path, MANIFEST))
            result.drop(name for name in result.files if not (result.folder / name).exists())
        yield Path(tree)
