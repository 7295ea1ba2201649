"""What a build takes: time, cores and GPUs, and room on the disk."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ptq_dynamics.curvature.settings import (
    ComponentsSettings,
    CurvatureSettings,
    LandscapeSettings,
)
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.keeping import LIGHT
from ptq_dynamics.graph.resources import Resources
from ptq_dynamics.graph.simulation import Schedule, Timed, high_water, schedule
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.sizes import FILES, Sizes
from ptq_dynamics.measure.settings import MeasureSettings
from ptq_dynamics.train.settings import DropSettings, TrainSettings

# Jobs that download, one after the other.
CONNECTIONS = 1


@dataclass(frozen=True)
class Machine:
    """What there is for a build; any number of cores where there are GPUs and none are said."""

    gpus: int
    cores: float = inf


@dataclass(frozen=True)
class OfKind:
    """What the jobs of a kind that are due take, in seconds of cores and GPUs; `again` are those of
    them that are current, and whose dropped weights others read; how many are `fresh`; how many of
    those that run compute `on_gpus`; and how many of the stages are estimated by records, and how
    many as assumed."""

    due: int = 0
    again: int = 0
    fresh: int = 0
    on_gpus: int = 0
    core_seconds: float = 0
    gpu_seconds: float = 0
    measured: int = 0
    assumed: int = 0


@dataclass(frozen=True)
class Forecast:
    """A build by kind of job, on a machine: seconds until it ends, of which the longest chain of
    jobs takes `chain` at least; bytes of results before it, when there are most of them, and after
    it."""

    kinds: Mapping[str, OfKind]
    machine: Machine
    seconds: float
    chain: float
    before: float
    most: float
    after: float

    @property
    def gpu_jobs(self) -> int:
        """How many jobs compute on GPUs."""
        return sum(kind.on_gpus for kind in self.kinds.values())

    @property
    def core_seconds(self) -> float:
        """Of all jobs."""
        return sum(kind.core_seconds for kind in self.kinds.values())

    @property
    def gpu_seconds(self) -> float:
        """Of all jobs."""
        return sum(kind.gpu_seconds for kind in self.kinds.values())


class Forecaster:
    """Forecasts for a site, by the resources of its jobs."""

    def __init__(self, site: Site, resources: Resources) -> None:
        self._site, self._resources = site, resources
        self._sizes = Sizes(site.config)

    def of(self, fresh: Sequence[Job], due: Sequence[Job], machine: Machine) -> Forecast:
        """A build of the jobs that are `due`, where others are `fresh`."""
        drops = {
            job.inputs["result"][0]: job
            for job in (*fresh, *due)
            if isinstance(job.settings, DropSettings)
        }
        again = self._again(fresh, due, drops)
        found = self._schedule([*due, *again], machine)
        before = sum(self._held(job, drops) for job in fresh)
        changes = self._changes(due, again, drops, found)
        return Forecast(
            kinds=self._kinds(fresh, due, again),
            machine=machine,
            seconds=found.seconds,
            chain=found.chain,
            before=before,
            most=high_water(changes, before),
            after=before + sum(change for _, change in changes),
        )

    def _again(
        self, fresh: Iterable[Job], due: Iterable[Job], drops: Mapping[str, Job]
    ) -> list[Job]:
        """Current jobs that run once more: weights of theirs were dropped that others read."""
        dropped = {job.manifest: job for job in fresh if job.paths.absent.exists()}
        found = dict[str, Job]()
        waiting = list(due) if dropped else []
        while waiting:
            job = waiting.pop()
            if job.stage.startswith(LIGHT) or isinstance(job.settings, DropSettings):
                continue
            read = _checkpoints(job)
            for path in set(job.needs) & dropped.keys() - found.keys():
                kept = drops[path].settings.kept if path in drops else ()
                if read is None or not read <= {*kept}:
                    found[path] = dropped[path]
                    waiting.append(dropped[path])
        return list(found.values())

    def _schedule(self, jobs: Sequence[Job], machine: Machine) -> Schedule:
        numbers = {job.manifest: number for number, job in enumerate(jobs)}
        timed = []
        for job in jobs:
            ask = self._resources.ask(job)
            # What asks for more than there is gets all there is, and takes longer with fewer cores.
            threads = min(ask.threads, machine.cores)
            gpus = min(ask.gpus, machine.gpus)
            taken = (threads, gpus, self._resources.work(job).network * CONNECTIONS)
            seconds = self._resources.seconds(job) * ask.threads / threads
            needs = [numbers[path] for path in dict.fromkeys(job.needs) if path in numbers]
            timed.append(Timed(seconds, needs, taken))
        return schedule(timed, (machine.cores, machine.gpus, CONNECTIONS))

    def _dropped(self, job: Job, drops: Mapping[str, Job]) -> float:
        """Bytes of a result that are dropped at some time, or were."""
        if job.manifest in drops:
            return self._sizes.dropped(drops[job.manifest], job)
        return self._sizes.of(job) - FILES

    def _held(self, job: Job, drops: Mapping[str, Job]) -> float:
        """Bytes of a result that is there."""
        size = self._sizes.of(job)
        return size - self._dropped(job, drops) if job.paths.absent.exists() else size

    def _changes(
        self, due: Sequence[Job], again: Sequence[Job], drops: Mapping[str, Job], found: Schedule
    ) -> list[tuple[float, float]]:
        """When there is how much more, or less, on the disk: a result is there from when its job
        starts, what is dropped until the job ends that drops it."""
        made = [*map(self._sizes.of, due), *(self._dropped(job, drops) for job in again)]
        changes = []
        for job, own, start, end in zip(
            [*due, *again], made, found.starts, found.ends, strict=True
        ):
            beside = self._sizes.beside(job)
            changes += [(start, own + beside), (end, -beside)]
            if isinstance(job.settings, DropSettings):
                result = self._site.made[job.inputs["result"][0]]
                changes.append((end, -self._dropped(result, drops)))
        return changes

    def _kinds(
        self, fresh: Iterable[Job], due: Iterable[Job], again: Iterable[Job]
    ) -> dict[str, OfKind]:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for job in fresh:
            counts[self._site.kind(job)]["fresh"] += 1
        for name, jobs in (("due", due), ("again", again)):
            for job in jobs:
                kind, ask = self._site.kind(job), self._resources.ask(job)
                known = self._resources.is_measured(job)
                counts[kind].update([name, "measured" if known else "assumed"])
                counts[kind]["on_gpus"] += ask.gpus > 0
                seconds[kind]["core_seconds"] += ask.threads * self._resources.seconds(job)
                seconds[kind]["gpu_seconds"] += ask.gpus * self._resources.seconds(job)
        return {
            kind: replace(OfKind(**counts[kind]), **dict[str, Any](seconds[kind]))
            for kind in sorted(counts)
        }


def _checkpoints(job: Job) -> set[str] | None:
    """The checkpoints that a job reads of a trajectory, by id; None where it may be any of them, or
    training states."""
    match job.settings:
        case MeasureSettings() | CurvatureSettings():
            return {*job.settings.checkpoints}
        case LandscapeSettings(final=final, previous=previous):
            return {final, previous}
        case ComponentsSettings(paths=paths):
            return {each for path in paths for each in path.checkpoints}
        case TrainSettings(start=str(start)):
            return {start}
    return None
