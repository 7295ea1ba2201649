"""What all planners of a plan share: the configuration, its timeline, and where results lie."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptq_dynamics.config import Config
from ptq_dynamics.engine.specification import Job, settle
from ptq_dynamics.graph.places import PLACES
from ptq_dynamics.train.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Site:
    """A configuration without what its scale leaves out; the root of the project it belongs to; and
    the trajectories that each figure goes without."""

    config: Config
    root: Path
    left_out: Mapping[str, tuple[str, ...]]
    timeline: Timeline = field(init=False)
    made: dict[str, Job] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    stale: dict[str, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "timeline", Timeline(self.config))

    @property
    def results(self) -> str:
        """Folder of all results of the scale."""
        return f"results/{self.config.choice.scale}"

    @property
    def pictures(self) -> str:
        """Folder of all figures of the scale."""
        return f"figures/{self.config.choice.scale}"

    @property
    def paper(self) -> str:
        """Folder of the paper of the scale, beside its text."""
        return f"paper/{self.config.choice.scale}"

    @property
    def folders(self) -> tuple[str, ...]:
        """All of these."""
        return (self.results, self.pictures, self.paper)

    def add(self, job: Job) -> Job:
        """The same job, so that it is found by the path of its manifest from now on."""
        self.made[job.manifest] = job
        return job

    def settle(self, job: Job, *, deep: bool = False) -> None:
        """Have the times of files say which results are up to date, for a job and all it needs."""
        if job.manifest not in self.settled:
            self.settled.add(job.manifest)
            for path in job.needs:
                self.settle(self.made[path], deep=deep)
            if not settle(job, waits=any(path in self.stale for path in job.needs), deep=deep):
                self.stale[job.manifest] = job

    def needed(self, targets: Iterable[Job]) -> Iterator[Job]:
        """Some jobs and all that they need, each once."""
        waiting, seen = list(targets), set[str]()
        while waiting:
            job = waiting.pop()
            if job.manifest not in seen:
                seen.add(job.manifest)
                waiting += [self.made[path] for path in job.needs]
                yield job

    def kind(self, job: Job) -> str:
        """What a job makes: the first folder of its result below those of the scale."""
        kinds = {self.pictures: "figure", self.results: "table", self.paper: "paper"}
        if job.folder in kinds:
            return kinds[job.folder]
        below = job.folder.removeprefix(f"{self.results}/").split("/")[0]
        return "environment" if below == "envs" else below

    def seed(self, trajectory: str, seed: int | None) -> int:
        """The seed asked for, or the first that a trajectory is made for."""
        return self.timeline.seeds_of(trajectory)[0] if seed is None else seed

    def places(self, kind: str) -> str:
        """Folder of what jobs of a kind make, with wildcards."""
        return f"{self.results}/{PLACES[kind]}"

    def place(self, kind: str, **wildcards: object) -> str:
        """Folder of what a job makes."""
        return self.places(kind).format(**wildcards)
