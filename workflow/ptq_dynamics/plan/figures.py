"""The jobs that draw figures, and what a build is for."""

from collections.abc import Iterator
from functools import cache, cached_property
from itertools import chain
from typing import Any

from ptq_dynamics.config import Branch, Figure
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.geometry import Geometry
from ptq_dynamics.plan.measurements import FULL_PRECISION


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
            "title": settings.title,
            "caption": settings.caption,
            # Pairs, not mappings: their order is that of the figure's legend and panels.
            "curves": list(settings.curves.items()),
            "quantizers": [[q, self._quantizer(q, names[0])] for q in settings.quantizers],
            "branches": {
                name: [run.trunk, self.timeline.steps(run.at)]
                for name in runs
                if isinstance(run := self.timeline.run(name), Branch)
            },
            "scale": self.config.scale.description,
        }
        if settings.landscape:
            previous = self.timeline.steps(settings.landscape.previous)
            for q in settings.quantizers:
                jobs = [self.landscape(name, q, previous) for name in names]
                inputs[f"landscapes {q}"] = [job.manifest for job in jobs]
        if settings.components:
            inputs["components"] = [self.components(figure).manifest]
        files = tuple(f"{figure}.{kind}" for kind in ("pdf", "png", "csv"))
        return Job(f"figures.{figure}", figure, self.pictures, inputs, config, figure, files)

    def _measurements(self, figure: Figure) -> Iterator[Job]:
        """The jobs whose tables of measurements a figure reads."""
        names = figure.trajectories
        for name in names:
            for probe in figure.curvature:
                for shard in self.timeline.shards(name):
                    yield self.curvature(name, probe, shard)
        other = figure.curvature or figure.landscape or figure.components
        if not other or (figure.quantizers and not figure.landscape):
            for name in names:
                for method in (FULL_PRECISION, *figure.quantizers):
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
