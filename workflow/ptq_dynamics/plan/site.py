"""What the planners share: configuration, trajectories, places of results, resources."""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from pathlib import Path

from ptq_dynamics.engine.paths import MANIFEST
from ptq_dynamics.engine.specification import Job, settle
from ptq_dynamics.plan.resolved import Resolved

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


class Site:
    """What all planners share: a configuration as its scale has it, its planned trajectories, the
    root of its project, and all jobs that were planned."""

    def __init__(self, resolved: Resolved, root: Path) -> None:
        self.config, self.root = resolved.config, root
        self.left_out, self.absent = resolved.gone, resolved.absent
        self.planned, name = resolved.trajectories(), resolved.config.choice.scale
        # Reasons for trajectories that the scale leaves out.
        self.reasons = {**resolved.unknown, **resolved.config.scale.regime.left_out}
        self.results, self.pictures = f"results/{name}", f"figures/{name}"
        # Jobs and names of their rules, by manifest.
        self.made, self.rules = dict[str, Job](), dict[str, str]()
        self.marked, self.stale = set[str](), dict[str, Job]()

    def pattern(self, rule: str) -> str:
        """Return the manifests that a rule builds, with wildcards."""
        return PLACES[rule].replace("SCALE", self.config.choice.scale) + MANIFEST

    def rule_of(self, path: str) -> tuple[str, dict[str, str]]:
        """Return the rule that builds a manifest, or "other", and its wildcards."""
        for rule in PLACES:
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.pattern(rule)))
            if match := re.fullmatch(pattern, path):
                return rule, match.groupdict()
        return "other", {}

    def make(
        self,
        rule: str,
        stage: str,
        name: str,
        inputs: Mapping[str, list[str]],
        settings: object,
        distributions: tuple[str, ...] = (),
        /,
        **wildcards: object,
    ) -> Job:
        """Return the job of a rule with these wildcards."""
        path = self.pattern(rule).format(**wildcards)
        folder, _, last = path.rpartition("/")
        stem = last.removesuffix(MANIFEST).removesuffix(".") or None
        self.made[path] = Job(stage, name, folder, inputs, settings, stem, distributions)
        self.rules[path] = rule
        return self.made[path]

    def mark_outdated(self, job: Job) -> None:
        """Set the times of a job's files and of its inputs, so Snakemake runs what is outdated."""
        if job.manifest not in self.marked:
            self.marked.add(job.manifest)
            for path in job.needs:
                self.mark_outdated(self.made[path])
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
    """Base of the classes that plan jobs."""

    def __init__(self, site: Site) -> None:
        self.site, self.make, self.planned = site, site.make, site.planned
        self.config, self.scale = site.config, site.config.scale

    def seed(self, trajectory: str, seed: int | None = None) -> int:
        """Return the given seed, or the first of a trajectory."""
        return self.planned[trajectory].seeds[0] if seed is None else seed


class Resources(Planner):
    """Resource requests of jobs, on which no result depends."""

    def ask(self, rule: str, attempt: int = 1, wildcards: Mapping[str, str] = {}) -> dict[str, int]:
        """Return Snakemake's resources, which grow with the attempt and a trajectory's model."""
        table = self.scale.resources
        request = table.rules.get(rule, table.default)
        sizes = [self.planned[w].parameters for w in wildcards.values() if w in self.planned]
        more, billions = request.per_billion, sizes[0] / 1e9 if sizes else 0
        minutes = max(1, request.minutes + billions * more.minutes)
        resources = {
            "mem_mb": ceil(attempt * (request.memory + billions * more.memory)),
            "runtime": ceil(min(attempt * minutes, max(minutes, DAY))),
        }
        if request.gpus or more.gpus:
            resources["gpu"] = ceil(request.gpus + attempt * billions * more.gpus)
        return resources
