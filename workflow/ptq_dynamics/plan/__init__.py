"""From configuration to jobs: which results exist, and what each depends on.

A plan has a planner for each group of rules. Rules request a job by the wildcards of its output."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, load
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.hub.lock import LOCK
from ptq_dynamics.plan import paper_job
from ptq_dynamics.plan.checks import check, leave_out
from ptq_dynamics.plan.claim_jobs import Claims, Tables
from ptq_dynamics.plan.figure_jobs import Figures
from ptq_dynamics.plan.measurement_jobs import Measuring
from ptq_dynamics.plan.site import Resources, Site
from ptq_dynamics.plan.trajectory_jobs import Trajectories

FROM_NETWORK = ("train.fetch", "measure.tasks.harness", "quantize.environment")


class Plan:
    """All jobs of a configuration; raises `Problem` if its parts do not fit together."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        # All configured figures, including those that the scale leaves out.
        self.written = config.figures
        config, left_out = leave_out(config)
        self.site = Site(config, root, left_out)
        check(config, self.site.timeline)
        self.resources = Resources(self)
        self.trajectories, self.measuring = Trajectories(self), Measuring(self)
        self.figures, self.claims, self.tables = Figures(self), Claims(self), Tables(self)
        # Rules whose jobs are not planned with figures, claims and tables.
        self.makers: dict[str, Callable[[], Any]] = {}

    def typeset(self, folder: Path) -> Job:
        """Return the paper's job, with the numbers of scale paper for comparison."""
        choice = {**self.site.config.choice.model_dump(), "scale": "paper", "figures": "all"}
        return paper_job.typeset(self, Plan(load(choice, folder), self.site.root))

    def job(self, rule: str, **wildcards: str) -> Job:
        """Return the job of a rule with these wildcards; `Problem` if there is none."""
        path = self.site.pattern(rule).format(**wildcards)
        if path not in self.site.made:
            self.makers.get(rule, self._plan_all)()
        if path not in self.site.made:
            raise Problem(f"no figure, claim or table of this scale needs {path}")
        return self.site.made[path]

    def _plan_all(self) -> None:
        for name in self.site.config.figures:
            self.figures.figure(name)
        self.tables.write()
        self.figures.collect()
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
        fetched = [job.settings for job in jobs if job.stage == "train.fetch"]
        asked = [(each.repository, revision) for each in fetched for revision in each.revisions]
        lacking = [f"{place}@{one.checkpoint.id}" for place, one in asked if one.commit is None]
        if lacking:
            some = f"{len(lacking)} revisions, such as {lacking[0]}"
            raise Problem(f"{LOCK} lacks {some}; run ptq-dynamics lock")
        return [job.manifest for job in jobs]

    def last(self) -> list[Job]:
        """Return the jobs of the chosen figures; all figures include the table of measurements."""
        jobs = [self.figures.figure(name) for name in self.site.config.chosen]
        return [*jobs, self.figures.collect()] if self.site.config.is_whole else jobs
