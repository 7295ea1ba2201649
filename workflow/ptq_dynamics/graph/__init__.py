"""From configuration to jobs: which result needs which, and where it lies.

Pure functions of the configuration. A plan has one planner a room, each with those whose jobs it
builds on; the rules ask them for a job by the wildcards of its output.
"""

from itertools import chain
from pathlib import Path

from ptq_dynamics.config import Config, load
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.backends import Backends
from ptq_dynamics.graph.checks import check
from ptq_dynamics.graph.claims import Claims
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.geometry import Geometry
from ptq_dynamics.graph.keeping import Keeping
from ptq_dynamics.graph.leaving_out import leave_out
from ptq_dynamics.graph.losses import Losses
from ptq_dynamics.graph.paper import Paper, Side
from ptq_dynamics.graph.quantization import Quantization
from ptq_dynamics.graph.resources import Resources
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.tables import Tables
from ptq_dynamics.graph.tasks import Tasks
from ptq_dynamics.graph.timeline import Timeline
from ptq_dynamics.graph.trajectories import Trajectories

__all__ = ["Plan"]

# Stages that download.
FROM_NETWORK = (
    "train.fetch",
    "corpus.datasets",
    "measure.tasks.fetch",
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
        self.quantization = Quantization(site, self.corpora, self.trajectories)
        self.losses = Losses(site, self.corpora, self.trajectories, self.quantization)
        self.tasks = Tasks(site, self.corpora, self.trajectories, self.quantization)
        self.geometry = Geometry(site, self.corpora, self.trajectories, self.quantization)
        self.backends = Backends(site, self.quantization, self.losses)
        self.figures = Figures(site, self.trajectories, self.losses, self.tasks, self.geometry)
        drawn, made = self.figures, self.trajectories
        self.claims = Claims(site, drawn, written)
        self.tables = Tables(site, drawn, self.claims, written)
        self.paper = Paper(site, made, drawn, self.claims, self.tables, written)
        self.keeping = Keeping(site, self.figures.targets)

    def typeset(self, folder: Path) -> Job:
        """The paper, beside the published runs as scale paper of this configuration has them."""

        def published() -> Side:
            choice = {**self.site.config.choice.model_dump(), "scale": "paper", "figures": "all"}
            theirs = Plan(load(choice, folder), self.site.root)
            return Side(theirs.site, theirs.trajectories)

        return self.paper.typeset(published)

    def targets(self) -> list[str]:
        """The files that a build of the chosen figures is for."""
        return list(chain.from_iterable(job.outputs for job in self.last()))

    def downloads(self) -> list[Job]:
        """The jobs of a build of the chosen figures that need a network."""
        jobs = self.site.needed(self.last())
        return [job for job in jobs if job.stage in FROM_NETWORK]

    def last(self) -> list[Job]:
        """The jobs that a build of the chosen figures is for."""
        return [*self.figures.targets(), *self.keeping.drops()]
