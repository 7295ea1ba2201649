"""From configuration to jobs: which result needs which, and where it lies.

Pure functions of the configuration. A plan has one planner a room, each with those whose jobs it
builds on; the rules ask them for a job by the wildcards of its output.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, load
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.checks import check
from ptq_dynamics.graph.claims import Claims
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.geometry import Geometry
from ptq_dynamics.graph.leaving_out import leave_out
from ptq_dynamics.graph.measuring import Measuring
from ptq_dynamics.graph.paper import Paper, Side
from ptq_dynamics.graph.resources import Resources
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.tables import Tables
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.train.timeline import Timeline

__all__ = ["Plan"]

# Stages that download.
FROM_NETWORK = (
    "train.fetch",
    "measure.tasks.harness",
    "quantize.environment",
)


class Plan:
    """All jobs of a configuration; raises `Problem` when that does not fit together."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        written = config.figures
        unknown = "config/families.yaml, which has no checkpoints of some public models,"
        config, gone = leave_out(config, config.runs.unknown, unknown)
        check(Timeline(config))
        place = f"config/scales/{config.choice.scale}.yaml: regime.left_out"
        config, left_out = leave_out(config, config.scale.regime.left_out, place)
        left_out = {name: (*gone[name], *names) for name, names in left_out.items()}
        self.site = site = Site(config, root, left_out)
        self.resources = Resources(config)
        self.corpora = Corpora(site)
        self.trajectories = Trajectories(site, self.corpora)
        self.measuring = Measuring(site, self.corpora, self.trajectories)
        self.geometry = Geometry(site, self.corpora, self.trajectories, self.measuring)
        self.figures = Figures(site, self.trajectories, self.measuring, self.geometry)
        drawn, made = self.figures, self.trajectories
        self.claims = Claims(site, drawn, written)
        self.tables = Tables(site, drawn, self.claims, written)
        self.paper = Paper(site, made, drawn, self.claims, self.tables, written)

        self.makers: dict[str, Callable[[], Any]] = {
            "judge": self.claims.judge,
            "tabulate": self.tables.write,
            "comparison": self.measuring.comparison,
            "environment": self.measuring.comparison,
        }

    def typeset(self, folder: Path) -> Job:
        """The paper, beside the published runs as scale paper of this configuration has them."""

        def published() -> Side:
            choice = {**self.site.config.choice.model_dump(), "scale": "paper", "figures": "all"}
            theirs = Plan(load(choice, folder), self.site.root)
            return Side(theirs.site, theirs.trajectories)

        return self.paper.typeset(published)

    def pattern(self, kind: str) -> str:
        """Path of the manifests of a kind of job, with wildcards."""
        found = {
            "figure": Paths.at(self.site.pictures, "{figure}"),
            "collect": self.figures.collect().paths,
            "judge": self.claims.paths,
            "tabulate": self.tables.paths,
            "typeset": self.paper.paths,
            "report": Paths.at(self.site.results, "index"),
            "environment": Paths.at("envs/{tool}"),
        }
        return str((found.get(kind) or Paths.at(self.site.places(kind))).manifest)

    def job(self, kind: str, **wildcards: str) -> Job:
        """The job of a kind with these wildcards; `Problem` where there is none."""
        path = self.pattern(kind).format(**wildcards)
        if path not in self.site.made:
            for make in (self.makers.get(kind), self._plan_all):
                if make is not None and path not in self.site.made:
                    make()
        if path not in self.site.made:
            raise Problem(f"{path} is no result that a figure, claim or table of this scale needs")
        return self.site.made[path]

    def _plan_all(self) -> None:
        for name in self.site.config.figures:
            self.figures.figure(name)
        self.claims.judge()
        self.tables.write()

    def settle(self, job: Job) -> None:
        """Have the times of files say which results are up to date, for a job and all it needs."""
        self.site.settle(job, deep=self.site.config.choice.deep)

    def targets(self) -> list[str]:
        """The manifests that a build of the chosen figures is for."""
        return [job.manifest for job in self.last()]

    def downloads(self) -> list[Job]:
        """The jobs of a build of the chosen figures that need a network."""
        jobs = self.site.needed(self.last())
        return [
            job
            for job in jobs
            if job.stage in FROM_NETWORK or getattr(job.settings, "from_network", False)
        ]

    def last(self) -> list[Job]:
        """The jobs that a build of the chosen figures is for."""
        return list(self.figures.targets())
