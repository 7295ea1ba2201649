"""Releases: what is measured at a scale, with manifests and records of all that it comes from, in
one archive that is small enough for a repository.

Who takes one over (see `adopting`) draws every figure from it. Weights and texts stay out of it, as
if they had been dropped to save space: they are made again where something new asks for them.
"""

import io
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature.settings import GRID, POINTS, SCORES
from ptq_dynamics.engine import codes, manifest
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.due import Due
from ptq_dynamics.measure.names import LAYERS, LOSSES, OUTCOMES, VALUES
from ptq_dynamics.provenance.archive import DERIVED
from ptq_dynamics.provenance.packed import RELEASE
from ptq_dynamics.train.trajectory import CURVE

# In the place of the job that drops files.
RELEASED = "release"
# What figures and tables are made of.
MEASURED = {LOSSES, OUTCOMES, VALUES, LAYERS, CURVE, SCORES, POINTS, GRID}


@dataclass(frozen=True)
class Released:
    """How many results an archive has, and its size in bytes."""

    results: int
    size: int


def release(plan: Plan, folder: Path) -> Released:
    """Write the archive of a scale into a folder, equal for equal results.

    Raises `Problem` where not all is fresh, or where the archive cannot be written.
    """
    fresh, due = Due(plan.site, Results(Verifier(deep=True))).find(plan.last())
    if due:
        raise Problem(
            f"{len(due)} results are not fresh, {due[0].manifest} for one; make figures makes them"
        )
    jobs = [job for job in fresh if not job.stage.startswith(DERIVED)]
    place = folder / RELEASE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unready:
            made = Path(unready) / RELEASE
            with lzma.open(made, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
                for job in sorted(jobs, key=lambda each: each.manifest):
                    for path, content in _parts(job):
                        _add(archive, path, content)
                table = codes.table_of(plan.site.results)
                for digest, definitions in sorted(codes.of(fresh).items()):
                    _add(archive, table / f"{digest}.json", codes.as_text(definitions).encode())
            made.replace(place)
    except OSError as error:
        raise Problem(f"{place} cannot be written ({error.strerror})") from None
    return Released(len(jobs), place.stat().st_size)


def _parts(job: Job) -> Iterator[tuple[Path, bytes]]:
    """The files of a result that are released, and the note of those that are not."""
    paths = job.paths
    result = manifest.read(paths.manifest)
    yield paths.manifest, paths.manifest.read_bytes()
    yield paths.record, paths.record.read_bytes()
    kept = [name for name in result.files if name in MEASURED]
    for name in kept:
        yield result.folder / name, result.file(name).read_bytes()
    if left := result.files.keys() - kept:
        yield paths.absent, result.note(left, RELEASED).encode()


def _add(archive: tarfile.TarFile, path: Path, content: bytes) -> None:
    """A file without time, owner or rights, which differ between machines."""
    entry = tarfile.TarInfo(path.as_posix())
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
