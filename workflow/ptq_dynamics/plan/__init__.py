"""From configuration to jobs: which results exist, and what each depends on.

A plan has a planner for each group of rules. Rules request a job by the wildcards of its output."""

from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.hub.lock import LOCK
from ptq_dynamics.plan.checks import checked
from ptq_dynamics.plan.claim_jobs import ClaimJobs
from ptq_dynamics.plan.figure_jobs import FigureJobs
from ptq_dynamics.plan.measurement_jobs import MeasurementJobs
from ptq_dynamics.plan.page_job import PageJob
from ptq_dynamics.plan.paper_job import PaperJob
from ptq_dynamics.plan.site import Resources
from ptq_dynamics.plan.table_jobs import TableJobs
from ptq_dynamics.plan.trajectory_jobs import TrajectoryJobs

FROM_NETWORK = ("trajectories.fetch", "measure.tasks.harness", "quantize.environment")


class Plan:
    """All jobs of a configuration; raises `Problem` if its parts do not fit together."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.site = site = checked(config, root)
        self.resources = Resources(site)
        self.trajectories = TrajectoryJobs(site)
        self.measuring = MeasurementJobs(site, self.trajectories)
        self.figures = FigureJobs(site, self.trajectories, self.measuring)
        # Figures of the configuration, including those that the scale leaves out.
        self.claims = ClaimJobs(site, self.figures, config.figures)
        self.tables = TableJobs(site, self.figures, self.claims, config.figures)
        self.paper, self.page = PaperJob(site, self.tables), PageJob(site, self.tables)

    def job(self, rule: str, **wildcards: str) -> Job:
        """Return the job of a rule with these wildcards; `Problem` if there is none."""
        path = self.site.pattern(rule).format(**wildcards)
        if path not in self.site.made:
            # These jobs read the jobs of all figures, claims and tables.
            {"typeset": self.paper.typeset, "report": self.page.write}.get(rule, self._all)()
        if path not in self.site.made and rule in ("measure", "curvature"):
            self.measuring.named(rule, **wildcards)
        if path not in self.site.made:
            raise Problem(f"no figure, claim or table of this scale needs {path}")
        return self.site.made[path]

    def _all(self) -> None:
        for name in self.site.config.figures:
            self.figures.figure(name)
        self.tables.write()
        self.tables.collect()
        self.measuring.comparison()

    def downloads(self) -> list[Job]:
        """Return the jobs of a build of the chosen figures that need a network."""
        return [
            job
            for job in self.site.needed(self.last())
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

    def last(self) -> list[Job]:
        """Return the jobs of the chosen figures; all figures include the table of measurements."""
        jobs = [self.figures.figure(name) for name in self.site.config.chosen]
        return [*jobs, self.tables.collect()] if self.site.config.is_whole else jobs
