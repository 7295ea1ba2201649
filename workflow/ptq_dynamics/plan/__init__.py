"""From configuration to jobs: which results exist, and what each depends on.

A plan has a planner for each group of rules. Each rule stands, with the folder of its results, its
stage and the type of its settings, above the planner that makes its jobs."""

from collections.abc import Mapping
from math import ceil
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.engine.job import Job, settle
from ptq_dynamics.hub.lock import LOCK
from ptq_dynamics.plan import (
    claim_jobs,
    figure_jobs,
    measurement_jobs,
    paper_jobs,
    trajectory_jobs,
)
from ptq_dynamics.plan.checks import check
from ptq_dynamics.plan.site import Rule, Site

FROM_NETWORK = ("trajectories.fetch", "measure.tasks.harness", "quantize.environment")
GROUPS = (trajectory_jobs, measurement_jobs, figure_jobs, claim_jobs, paper_jobs)
RULES: dict[str, Rule] = {rule.name: rule for group in GROUPS for rule in group.RULES}
DAY = 1440  # minutes; usual partitions allow no more
# Rules by the names of targets.
BY_TARGET = {"claims": "judge", "tables": "tabulate", "paper": "typeset", "backends": "comparison"}


class Plan:
    """All jobs of a configuration, and those that this build settled; raises `Problem` if parts of
    the configuration do not fit together."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.site = site = Site(config, root)
        self.settled, self.stale = set[str](), dict[str, Job]()
        check(site)
        self.trajectories = trajectory_jobs.TrajectoryJobs(site)
        self.measurements = measurement_jobs.MeasurementJobs(site, self.trajectories)
        self.figures = figure_jobs.FigureJobs(site, self.measurements)
        self.claims = claim_jobs.ClaimJobs(site, self.figures)
        self.paper = paper_jobs.PaperJobs(site, self.claims)

    def job(self, rule: str, **wildcards: str) -> Job:
        """Return the job of a rule with these wildcards; `Problem` if there is none."""
        path = RULES[rule].results(self.site.config.choice.scale).format(**wildcards)
        made = self.site.made
        if path not in made:
            # These read the jobs of all figures, claims and tables.
            alone = {"typeset": self.paper.typeset, "report": self.paper.page}
            alone.get(rule, self._all)()
        if path not in made and rule in ("measure", "curvature"):
            self.measurements.named(rule, **wildcards)
        if path not in made:
            raise Problem(f"no figure, claim or table of this scale needs {path}")
        return made[path]

    def settle(self, job: Job) -> None:
        """Settle the files of a job and of all that it needs (`engine.job.settle`)."""
        for needed in self.site.needed([job], self.settled):
            waits = any(path in self.stale for path in needed.needs)
            if not settle(needed, waits=waits, deep=self.site.config.choice.deep):
                self.stale[needed.manifest] = needed

    def requests(
        self, rule: str, attempt: int = 1, wildcards: Mapping[str, str] = {}
    ) -> dict[str, int]:
        """Return Snakemake's resources, which grow with the attempt and a trajectory's model."""
        table, planned = self.site.config.scale.resources, self.site.planned
        request = table.rules.get(rule, table.default)
        sizes = [planned[name].parameters for name in wildcards.values() if name in planned]
        more, billions = request.per_billion, sizes[0] / 1e9 if sizes else 0
        minutes = max(1, request.minutes + billions * more.minutes)
        resources = {
            "mem_mb": ceil(attempt * (request.memory + billions * more.memory)),
            "runtime": ceil(min(attempt * minutes, max(minutes, DAY))),
        }
        if request.gpus or more.gpus:
            resources["gpu"] = ceil(request.gpus + attempt * billions * more.gpus)
        return resources

    def _all(self) -> None:
        for name in self.site.config.figures:
            self.figures.figure(name)
        self.claims.tabulate()
        self.measurements.collect()
        self.measurements.comparison()

    def downloads(self) -> list[Job]:
        """Return the jobs of a build of the chosen figures that need a network."""
        return [
            job
            for job in self.site.needed(self.targets())
            if job.stage in FROM_NETWORK or getattr(job.settings, "from_network", False)
        ]

    def prefetched(self) -> list[str]:
        """Return the manifests of all downloads; `Problem` if the lock lacks a revision."""
        jobs = self.downloads()
        fetched = [job.settings for job in jobs if job.stage == "trajectories.fetch"]
        revisions = [(part.repository, revision) for part in fetched for revision in part.revisions]
        unlocked = [f"{place}@{r.checkpoint.id}" for place, r in revisions if r.commit is None]
        if unlocked:
            some = f"{len(unlocked)} revisions, such as {unlocked[0]}"
            raise Problem(f"{LOCK} lacks {some}; run ptq-dynamics lock")
        return [job.manifest for job in jobs]

    def targets(self) -> list[Job]:
        """Return the jobs of the chosen figures; all figures include the table of measurements."""
        jobs = [self.figures.figure(name) for name in self.site.config.chosen]
        return [*jobs, self.measurements.collect()] if self.site.config.is_whole else jobs
