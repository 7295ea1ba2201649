"""What the planners of a plan share: configuration, timeline, places of results, resources."""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from ptq_dynamics.config import Config
from ptq_dynamics.engine.paths import MANIFEST
from ptq_dynamics.engine.specification import Job, settle
from ptq_dynamics.train.timeline import Timeline, TrainedShape

# Folders of results by rule, with wildcards; a stem of the files if rules share a folder.
PLACES = {
    "corpus": "results/SCALE/corpus/{corpus}/",
    "functions": "results/SCALE/functions/{corpus}/",
    "train": "results/SCALE/train/{run}/seed-{seed}/",
    "fetch": "results/SCALE/fetch/{public}/{shard}/",
    "average": "results/SCALE/average/{average}/seed-{seed}/{shard}/",
    "measure": "results/SCALE/measure/{trajectory}/seed-{seed}/{quantizer}/{shard}/",
    "make_task": "results/SCALE/tasks/{made}/{corpus}/",
    "fetch_task": "results/SCALE/tasks/{fetched}/",
    "curvature": "results/SCALE/curvature/{trajectory}/seed-{seed}/{probe}/{shard}/",
    "landscape": "results/SCALE/landscape/{trajectory}/seed-{seed}/{quantizer}/back-{steps}/",
    "components": "results/SCALE/components/{figure}/",
    "comparison": "results/SCALE/backends/",
    "environment": "envs/{tool}/",
    "collect": "results/SCALE/measurements.",
    "figure": "figures/SCALE/{figure}.",
    "judge": "results/SCALE/claims.",
    "tabulate": "results/SCALE/tables/",
    "typeset": "paper/SCALE/",
    "report": "results/SCALE/index.",
}
# Rules by the names of targets.
BY_NAME = {"claims": "judge", "tables": "tabulate", "paper": "typeset", "backends": "comparison"}
DAY = 1440  # minutes; usual partitions allow no more
# Rules whose jobs use the scale's number of threads; others use one.
COMPUTING = {"corpus", "train", "average", "measure", "curvature", "landscape", "components"}


class Site:
    """A configuration as its scale has it, the root of its project, and the trajectories that the
    scale leaves out of each figure."""

    def __init__(self, config: Config, root: Path, left_out: Mapping[str, tuple[str, ...]]) -> None:
        self.config, self.root, self.left_out = config, root, left_out
        self.timeline, name = Timeline(config), config.choice.scale
        self.results, self.pictures = f"results/{name}", f"figures/{name}"
        # Jobs and names of their rules, by manifest.
        self.made, self.rules = dict[str, Job](), dict[str, str]()
        self.settled, self.stale = set[str](), dict[str, Job]()

    def pattern(self, rule: str) -> str:
        """Return the manifests that a rule builds, with wildcards."""
        return PLACES[rule].replace("SCALE", self.config.choice.scale) + MANIFEST

    def rule_of(self, path: str) -> tuple[str, dict[str, str]]:
        """Return the rule that builds a manifest, or "other", and its wildcards."""
        for rule in PLACES:
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.pattern(rule)))
            if found := re.fullmatch(pattern, path):
                return rule, found.groupdict()
        return "other", {}

    def make(
        self,
        rule: str,
        stage: str,
        name: str,
        inputs: Mapping[str, list[str]],
        settings: Any,
        distributions: tuple[str, ...] = (),
        **wildcards: object,
    ) -> Job:
        """Return the job of a rule with these wildcards."""
        path = self.pattern(rule).format(**wildcards)
        folder, _, last = path.rpartition("/")
        stem = last.removesuffix(MANIFEST).removesuffix(".") or None
        self.made[path] = Job(stage, name, folder, inputs, settings, stem, distributions)
        self.rules[path] = rule
        return self.made[path]

    def settle(self, job: Job) -> None:
        """Set the times of a job's files and of its inputs, so Snakemake runs what is outdated."""
        if job.manifest not in self.settled:
            self.settled.add(job.manifest)
            for path in job.needs:
                self.settle(self.made[path])
            waits = any(path in self.stale for path in job.needs)
            if not settle(job, waits=waits, deep=self.config.choice.deep):
                self.stale[job.manifest] = job

    def needed(self, targets: Iterable[Job]) -> Iterator[Job]:
        """Yield some jobs and all that they need, each once."""
        waiting, seen = list(targets), set[str]()
        while waiting:
            job = waiting.pop()
            if job.manifest not in seen:
                seen.add(job.manifest)
                waiting += [self.made[path] for path in job.needs]
                yield job


class Planner:
    """Base of the planners of a `plan.Plan`."""

    def __init__(self, plan: Any) -> None:
        self.plan, self.site = plan, plan.site
        self.make = plan.site.make
        self.timeline: Timeline = plan.site.timeline
        self.config: Config = plan.site.config
        self.scale = self.config.scale

    def seed(self, trajectory: str, seed: int | None = None) -> int:
        """Return the given seed, or the first of a trajectory."""
        return self.timeline.seeds_of(trajectory)[0] if seed is None else seed

    def shape(self, trajectory: str) -> TrainedShape:
        """Return the shape of a trajectory's model."""
        return self.timeline.trajectories[trajectory].model_shape(self.timeline)

    def parameters(self, trajectory: str) -> int:
        """Return the number of parameters of a trajectory's model."""
        shape = self.shape(trajectory)
        return shape.model.parameters(self.scale.whole(shape.corpus).vocabulary)


class Resources(Planner):
    """Resource requests of jobs, on which no result depends."""

    def ask(self, rule: str, attempt: int = 1, wildcards: Mapping[str, str] = {}) -> dict[str, int]:
        """Return Snakemake's resources, which grow with the attempt and a trajectory's model."""
        table = self.scale.resources
        asked, known = table.rules.get(rule, table.default), self.timeline.trajectories
        about = [each for each in wildcards.values() if each in known]
        more, billions = asked.per_billion, self.parameters(about[0]) / 1e9 if about else 0
        minutes = max(1, asked.minutes + billions * more.minutes)
        found = {
            "mem_mb": ceil(attempt * (asked.memory + billions * more.memory)),
            "runtime": ceil(min(attempt * minutes, max(minutes, DAY))),
        }
        if asked.gpus or more.gpus:
            found["gpu"] = ceil(asked.gpus + attempt * billions * more.gpus)
        return found
