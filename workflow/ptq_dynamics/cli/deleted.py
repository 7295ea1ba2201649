"""Checkpoints of own runs that were deleted after they had been measured: they stay on the page."""

from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from ptq_dynamics.base.checkpoints import CONFIG
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import Local
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.paths import MANIFEST, RECORD, beside
from ptq_dynamics.engine.specification import stale
from ptq_dynamics.hub import folders
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.planned_averages import PlannedAverage
from ptq_dynamics.trajectories.local import LocalCheckpoint, LocalSettings

Shards = Set[tuple[str, str]]  # names of trajectories, and ids of their checkpoints


def linked(results: Path, folder: str) -> Iterator[tuple[Path, LocalCheckpoint]]:
    """Yield the checkpoints that were linked from a folder, each with the record of its job."""
    for path in sorted(results.glob(f"*/{RECORD}")):
        with suppress(Problem):
            settings = record.read(path).job["settings"]
            if settings.get("folder") == folder:
                known = TypeAdapter(LocalSettings).validate_python(settings)
                yield from ((path, checkpoint) for checkpoint in known.checkpoints)


def without_files(results: Path, source: Local) -> Iterator[LocalCheckpoint]:
    """Yield checkpoints that were linked from a folder which has them no more."""
    folder = Path(source.folder).resolve()
    present = folders.checkpoints(folder, source.step, source.exclude)
    times = {step or 0: (path / CONFIG).stat().st_mtime_ns for path, step in present.items()}
    for path, local in linked(results, source.folder):
        step, when = local.checkpoint.step or 0, max(file.changed for file in local.files)
        # A folder that was trained in again has other checkpoints than the records tell.
        is_of_run = step not in times and step < max(times)
        is_of_run &= not folders.is_excluded(local.subfolder, source.exclude)
        is_of_run &= all((at < step) == (time < when) for at, time in times.items())
        if is_of_run and not (folder / local.subfolder).exists():
            # Links to nothing are no damage once they are dropped.
            own = manifest.read(beside(path, MANIFEST))
            own.drop(own.files)
            yield local


def lost(plan: Plan) -> Shards:
    """Return the deleted checkpoints of a plan whose measurements are not up to date. If there are
    none, return the averages of deleted checkpoints of which this is true."""
    plan.targets()
    planned = plan.site.planned
    gone = {
        (name, local.checkpoint.id)
        for name, entry in plan.site.config.families.own.items()
        for local in entry.deleted
    }
    means = {
        (name, mean.id)
        for name, average in planned.items()
        if isinstance(average, PlannedAverage)
        for mean in average.means
        if any((average.sources[m.source].name, m.checkpoint) in gone for m in mean.members)
    }
    return _outdated(plan, gone) or _outdated(plan, means)


def _outdated(plan: Plan, shards: Shards) -> Shards:
    outdated = set[tuple[str, str]]()
    for path, job in [*plan.site.made.items()] if shards else ():
        _, at = plan.rule_of(path)
        shard = at.get("trajectory", ""), at.get("shard", "")
        if shard in shards - outdated and any(
            stale(needed.spec, needed.paths) for needed in plan.site.needed([job])
        ):
            outdated.add(shard)
    return outdated
