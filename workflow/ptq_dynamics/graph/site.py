"""What all planners of a plan share: the configuration, its timeline, and where results lie."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptq_dynamics.config import Config
from ptq_dynamics.engine.specification import Job, settle
from ptq_dynamics.train.timeline import Timeline

# Where results lie below those of a scale, by the kind of job; with wildcards, for the rules.
PLACES = {
    "corpus": "corpus/{corpus}",
    "functions": "functions/{corpus}",
    "train": "train/{run}/seed-{seed}",
    "fetch": "fetch/{public}/{shard}",
    "average": "average/{average}/seed-{seed}/{shard}",
    "measure": "measure/{trajectory}/seed-{seed}/{method}/{shard}",
    "make_task": "tasks/{made}/{corpus}",
    "fetch_task": "tasks/{fetched}",
    "curvature": "curvature/{trajectory}/seed-{seed}/{probe}/{shard}",
    "landscape": "landscape/{trajectory}/seed-{seed}/{quantizer}/back-{steps}",
    "components": "components/{figure}",
    "comparison": "backends",
    "tabulate": "tables",
}


@dataclass(eq=False)
class Site:
    """A configuration without what its scale leaves out; the root of the project it belongs to; and
    the trajectories that each figure goes without."""

    config: Config
    root: Path
    left_out: Mapping[str, tuple[str, ...]]
    made: dict[str, Job] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    stale: dict[str, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timeline, name = Timeline(self.config), self.config.choice.scale
        self.results, self.pictures = f"results/{name}", f"figures/{name}"
        self.paper = f"paper/{name}"

    def add(self, job: Job) -> Job:
        """The same job, so that it is found by the path of its manifest from now on."""
        self.made[job.manifest] = job
        return job

    def make(
        self,
        kind: str,
        stage: str,
        name: str,
        inputs: Mapping[str, list[str]],
        settings: Any,
        distributions: tuple[str, ...] = (),
        **wildcards: object,
    ) -> Job:
        """A job of a kind, in the place of that."""
        folder = self.places(kind).format(**wildcards)
        return self.add(Job(stage, name, folder, inputs, settings, distributions=distributions))

    def places(self, kind: str) -> str:
        """Folder of what jobs of a kind make, with wildcards."""
        return f"{self.results}/{PLACES[kind]}"

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
        below = job.folder.removeprefix(f"{self.results}/").split("/")[0]
        return kinds.get(job.folder) or ("environment" if below == "envs" else below)


class Planner:
    """What plans the jobs of a room, beside the others of its `graph.Plan`."""

    def __init__(self, plan: Any) -> None:
        self.plan, self.site = plan, plan.site
        self.timeline: Timeline = plan.site.timeline
        self.config: Config = plan.site.config
        self.scale = self.config.scale

    def seed(self, trajectory: str, seed: int | None) -> int:
        """The seed asked for, or the first that a trajectory is made for."""
        return self.timeline.seeds_of(trajectory)[0] if seed is None else seed

    def context(self, trajectory: str) -> int:
        """Tokens of the blocks that a trajectory is measured on."""
        return self.timeline.trajectory(trajectory).model_shape(self.timeline).context
