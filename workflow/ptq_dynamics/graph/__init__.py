"""From configuration to jobs: which result needs which, and where it lies.

Pure functions of the configuration. A plan has one planner a room, which knows the plan; the rules
ask it for a job by the wildcards of its output.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, load
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import paper
from ptq_dynamics.graph.checks import check, leave_out
from ptq_dynamics.graph.claims import Claims, Tables
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.measuring import Measuring
from ptq_dynamics.graph.site import Resources, Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.hub.lock import LOCK
from ptq_dynamics.train.timeline import Timeline

# Stages that download.
FROM_NETWORK = ("train.fetch", "measure.tasks.harness", "quantize.environment")


class Plan:
    """All jobs of a configuration; raises `Problem` when that does not fit together."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        # Figures as they are written; the scale may leave out some, and trajectories of others.
        self.written = config.figures
        config, left_out = leave_out(config)
        check(Timeline(config))
        self.site = Site(config, root, left_out)
        self.resources = Resources(self)
        self.trajectories, self.measuring = Trajectories(self), Measuring(self)
        self.figures, self.claims, self.tables = Figures(self), Claims(self), Tables(self)
        # What makes the jobs of some rules; all others come with figures, claims and tables.
        self.makers: dict[str, Callable[[], Any]] = {}

    def typeset(self, folder: Path) -> Job:
        """The paper, beside the published runs as scale paper of this configuration has them."""
        choice = {**self.site.config.choice.model_dump(), "scale": "paper", "figures": "all"}
        return paper.typeset(self, Plan(load(choice, folder), self.site.root))

    def job(self, rule: str, **wildcards: str) -> Job:
        """The job of a rule with these wildcards; `Problem` where there is none."""
        path = self.site.pattern(rule).format(**wildcards)
        if path not in self.site.made:
            self.makers.get(rule, self._plan_all)()
        if path not in self.site.made:
            raise Problem(f"{path} is no result that a figure, claim or table of this scale needs")
        return self.site.made[path]

    def _plan_all(self) -> None:
        for name in self.site.config.figures:
            self.figures.figure(name)
        self.tables.write()
        self.figures.collect()
        self.measuring.comparison()

    def downloads(self) -> list[Job]:
        """The jobs of a build of the chosen figures that need a network."""
        return [
            job
            for job in self.site.needed(self.last())
            if job.stage in FROM_NETWORK or getattr(job.settings, "from_network", False)
        ]

    def prefetched(self) -> list[str]:
        """Manifests of what they make; `Problem` where the lock lacks a revision."""
        fetches = [job for job in self.downloads() if job.stage == "train.fetch"]
        lacking = [
            f"{job.settings.repository}@{each.checkpoint.id}"
            for job in fetches
            for each in job.settings.revisions
            if each.commit is None
        ]
        if lacking:
            raise Problem(
                f"{LOCK} lacks {len(lacking)} revisions, such as {lacking[0]}; "
                "run ptq-dynamics lock"
            )
        return [job.manifest for job in self.downloads()]

    def last(self) -> list[Job]:
        """What a build is for: the chosen figures; all bring the table of all measurements."""
        jobs = [self.figures.figure(name) for name in self.figures.chosen]
        return [*jobs, self.figures.collect()] if self.site.config.choice.figures == "all" else jobs
