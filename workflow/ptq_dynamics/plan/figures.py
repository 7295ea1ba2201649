"""The jobs that draw figures, and what a build is for."""

from collections.abc import Iterator
from functools import cache, cached_property
from itertools import chain, product
from typing import Any, get_args

from ptq_dynamics.config import Branch, Evaluated, Landscapes, Pca, Query
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.geometry import Geometry
from ptq_dynamics.plan.measurements import FULL_PRECISION

# Metrics of the probes; those of evaluations; the others are in the training curves.
PROBES = {"sharpness": {"sharpness", "hessian_trace"}, "spectrum": {"eigenvalues"}}
EVALUATED = frozenset(get_args(Evaluated))


class Figures(Geometry):
    """Figures of all that was measured."""

    @cached_property
    def figures(self) -> list[str]:
        """Names of the chosen figures."""
        chosen = self.config.choice.figures
        return list(self.config.figures) if chosen == "all" else list(chosen)

    @cache
    def figure(self, figure: str) -> Job:
        """One figure."""
        settings = self.config.figures[figure]
        names = settings.trajectories
        runs = list(dict.fromkeys(self.timeline.base(name) for name in names))
        inputs = {
            "measurements": [job.manifest for job in self._measurements(settings)],
            "runs": [self.train(name).manifest for name in runs],
        }
        config: dict[str, Any] = {
            # Pairs, not mappings: their order is that of the figure's legend and panels.
            "curves": [[label, list(members)] for label, members in settings.curves.items()],
            "quantizers": [[q, self._kind(q, names[0]).model_dump()] for q in settings.quantizers],
            "metrics": list(settings.metrics),
            "options": settings.options.model_dump(mode="json"),
            "branches": {
                name: [run.trunk, self.timeline.steps(run.at)]
                for name in runs
                if isinstance(run := self.timeline.run(name), Branch)
            },
            "scale": self.config.scale.description,
        }
        if isinstance(settings, Landscapes):
            previous = self.timeline.steps(settings.landscape.previous)
            for name, quantizer in product(names, settings.quantizers):
                job = self.landscape(name, quantizer, previous)
                inputs[f"landscape {name} {quantizer}"] = [job.manifest]
        if isinstance(settings, Pca):
            inputs["components"] = [self.components(figure).manifest]
        files = tuple(f"{figure}.{kind}" for kind in ("pdf", "png", "csv"))
        stage = f"figures.layouts.{settings.layout}"
        return Job(stage, figure, self.pictures, inputs, config, figure, files)

    def _measurements(self, query: Query) -> Iterator[Job]:
        """The jobs that measure what a query asks for."""
        names, metrics = query.trajectories, {*query.metrics}
        for name in names:
            for probe, measured in PROBES.items():
                if metrics & measured:
                    for shard in self.timeline.shards(name):
                        yield self.curvature(name, probe, shard)
        if metrics & EVALUATED:
            for name in names:
                for method in (FULL_PRECISION, *query.quantizers):
                    yield self.measure(name, method)

    @cache
    def collect(self) -> Job:
        """All measurements of the chosen figures in one table."""
        figures = [self.figure(name) for name in self.figures]
        needed = {path for job in figures for path in job.inputs["measurements"]}
        inputs = {"measurements": sorted(needed)}
        files = ("measurements.csv",)
        return Job(
            "measure.collect", "measurements", self.results, inputs, {}, "measurements", files
        )

    def targets(self) -> list[str]:
        """The files that a build of the chosen figures is for; all figures bring the table of all
        measurements."""
        jobs = [self.figure(name) for name in self.figures]
        if self.config.choice.figures == "all":
            jobs.append(self.collect())
        return list(chain.from_iterable(job.outputs for job in jobs))
