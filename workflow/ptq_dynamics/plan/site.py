"""What the planners share: configuration, trajectories, rules and their results, resources."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

from ptq_dynamics.config import Config
from ptq_dynamics.engine.job import Job
from ptq_dynamics.engine.paths import MANIFEST
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.measure.series import Query
from ptq_dynamics.plan.catalogue import Catalogue, leave_out, resolve
from ptq_dynamics.quantize.methods import CalibrationSettings, Quantizer

S = TypeVar("S")


@dataclass(frozen=True)
class Rule(Generic[S]):
    """A rule of Snakemake for jobs with settings S. The `folder` of its results is written as in
    workflow/rules/, and ends with a stem of the files if rules share a folder. The `stage` is a
    module below the package, whose function `run` takes the settings."""

    name: str
    folder: str
    stage: str

    def results(self, scale: str) -> str:
        """Return the manifests of the rule's results, with wildcards."""
        return self.folder.replace("<", "").replace(">", f"/{scale}") + MANIFEST


class Site:
    """What all planners share: a configuration as its scale has it, its planned trajectories, the
    root of its project, and all jobs that were planned, by manifest."""

    def __init__(self, config: Config, root: Path) -> None:
        scale = config.choice.scale
        self.config, entries, self.reasons = leave_out(resolve(config))
        self.root, self.planned = root, Catalogue(self.config, entries)
        self.configured = config.figures  # also those that the scale leaves out
        self.results, self.pictures = f"results/{scale}", f"figures/{scale}"
        self.made = dict[str, Job]()

    def make(
        self,
        rule: Rule[S],
        name: str,
        inputs: Mapping[str, list[str]],
        settings: S,
        distributions: tuple[str, ...] = (),
        /,
        **wildcards: object,
    ) -> Job:
        """Return the job of a rule with these wildcards."""
        path = rule.results(self.config.choice.scale).format(**wildcards)
        folder, _, last = path.rpartition("/")
        stem = last.removesuffix(MANIFEST).removesuffix(".") or None
        at = {key: str(value) for key, value in wildcards.items()}
        job = Job(rule.stage, name, folder, inputs, settings, stem, distributions, rule.name, at)
        self.made[path] = job
        return job

    def left_out(self, figure: str) -> list[str]:
        """Return the trajectories of a figure that the scale leaves out."""
        return [n for n in self.configured[figure].trajectories if n not in self.planned]

    def needed(self, targets: Iterable[Job], seen: set[str] | None = None) -> Iterator[Job]:
        """Yield some jobs and all that they need, inputs first, each once; none that was `seen`."""
        seen = set() if seen is None else seen
        for job in targets:
            if job.manifest not in seen:
                seen.add(job.manifest)
                yield from self.needed([self.made[path] for path in job.needs], seen)
                yield job


class Planner:
    """Base of the classes that plan jobs."""

    def __init__(self, site: Site) -> None:
        self.site, self.make, self.planned = site, site.make, site.planned
        self.config, self.scale = site.config, site.config.scale

    def seed(self, trajectory: str, seed: int | None = None) -> int:
        """Return the given seed, or the first of a trajectory."""
        return self.planned[trajectory].seeds[0] if seed is None else seed

    @cache
    def kind(self, quantizer: str, trajectory: str) -> Quantizer:
        """Return a quantizer, resolved for a trajectory's model."""
        widths = self.planned[trajectory].shape.model.widths
        return self.config.quantizers[quantizer].resolved(widths)

    def draws(self, query: Query, quantizer: str) -> tuple[str, ...]:
        """Return the scale's quantizers for one of a query, one for each calibration set."""
        further = query.draws.get(quantizer, ())[: self.scale.calibration.draws - 1]
        return tuple(map(self.scale.used, (quantizer, *further)))

    def quantizers(self, query: Query) -> list[str]:
        """Return full precision and all quantizers of a query."""
        return [FULL_PRECISION, *chain(*(self.draws(query, name) for name in query.quantizers))]

    def calibration(self, trajectory: str, kind: Quantizer) -> CalibrationSettings:
        """Return the calibration set of a trajectory for a quantizer."""
        calibration, context = self.scale.calibration, self.planned[trajectory].shape.context
        return CalibrationSettings(
            context=context,
            sequences=calibration.documents or calibration.count(context),
            documents=calibration.documents is not None,
            batch=calibration.batch,
            draw=kind.calibration_draw,
        )
