"""The jobs that draw figures."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import get_args

from ptq_dynamics.base import needs
from ptq_dynamics.config import Figure
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.columns import columns, owners
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.labels import LABELLED, RATE, Shown, ShownRun, short
from ptq_dynamics.measure.metrics import ModelMetric
from ptq_dynamics.measure.names import FULL_PRECISION, TASK_METRICS, Evaluated
from ptq_dynamics.measure.series import Query, Series
from ptq_dynamics.plan.measurement_jobs import MeasurementJobs
from ptq_dynamics.plan.planned import PlannedTrajectory
from ptq_dynamics.plan.planned_averages import PlannedAverage
from ptq_dynamics.plan.planned_runs import PlannedRun, PlannedTrunk
from ptq_dynamics.plan.site import Planner, Site
from ptq_dynamics.plan.trajectory_jobs import TrajectoryJobs
from ptq_dynamics.quantize.methods import Calibrated
from ptq_dynamics.trajectories.averages.windows import Tails


class FigureJobs(Planner):
    """Jobs of figures."""

    def __init__(
        self, site: Site, trajectories: TrajectoryJobs, measurements: MeasurementJobs
    ) -> None:
        super().__init__(site)
        self.trajectories, self.measurements = trajectories, measurements

    @cache
    def figure(self, name: str) -> Job:
        """Return the job of one figure."""
        figure = self.config.figures[name]
        series, inputs = self.measured([figure.query])
        runs = list(self.runs(figure))
        if figure.of_one_seed:
            runs = [run for run in runs if run.seed == self.seed(run.name)]
        inputs |= {run.label: self.trajectories.manifests(run.name, run.seed) for run in runs}
        inputs |= self._others(name, figure)
        origins = [followed.origin for followed in self._followed(figure)]
        uncertain = [f"{one.family}: {one.uncertain}" for one in origins if one.uncertain]
        unsure = [one.family for one in origins if one.is_rate_uncertain]
        notes = {
            "Here the paper's": ", ".join(self._here(figure)),
            "Left out at this scale:": ", ".join(self.site.left_out[name]),
            "Uncertain of": "; ".join(dict.fromkeys(uncertain)),
        }
        # Words of a figure change nothing that is drawn.
        wordless = {"title": name, "caption": name, "headline": False, "group": None, "draws": {}}
        settings = FigureSettings(
            figure=figure.model_copy(update=wordless),
            curves=tuple(figure.curves.items()),
            quantizers=tuple(self.shown(figure, name) for name in figure.quantizers),
            series=series,
            runs=tuple(runs),
            ages=tuple(self._ages(figure)) if figure.reads.ages else (),
            scale=self.scale.description,
            notes=tuple(f"{how} {what}." for how, what in notes.items() if what),
            absent=self.site.absent[name],
            uncertain_rates=tuple(dict.fromkeys(unsure)),
            rates=self.peak_rates() if any(map(RATE.match, figure.curves)) else None,
            columns=tuple(
                column
                for name, column in columns().items()
                if name in figure.metrics and name not in LABELLED
            ),
        )
        return self.make("figure", "figures.draw", name, inputs, settings, figure=name)

    def _others(self, name: str, figure: Figure) -> dict[str, list[str]]:
        """Return manifests, by label, of what a figure reads besides runs and measurements."""
        inputs = dict[str, list[str]]()
        if figure.reads.plane is not None:
            back = self.planned.basis.steps(figure.reads.plane)
            for trajectory, quantizer in product(figure.trajectories, figure.quantizers):
                used = self.scale.used(quantizer)
                job = self.measurements.landscape(trajectory, used, back)
                inputs[needs.landscape(trajectory, quantizer)] = [job.manifest]
        if figure.reads.components is not None:
            job = self.measurements.components(name, figure, figure.reads.components)
            inputs[needs.COMPONENTS] = [job.manifest]
        return inputs

    def _followed(self, figure: Figure) -> list[PlannedTrajectory]:
        """Return the runs and public models whose learning rates its trajectories follow."""
        followed = (self.planned[name].followed for name in figure.trajectories)
        return list(dict.fromkeys(followed))

    def _ages(self, figure: Figure) -> Iterator[tuple[str, str, float]]:
        """Yield the averages at the end of a run, with their mean age in tokens."""
        for name in figure.trajectories:
            average = self.planned[name]
            if isinstance(average, PlannedAverage) and isinstance(average.entry, Tails):
                for mean, steps in average.ages.items():
                    yield name, mean, steps * average.shape.batch * average.shape.context

    @cache
    def peak_rates(self) -> tuple[float, float] | None:
        """Return the lowest and the highest of the paper's peak rates of controlled runs."""
        trunks = (run for run in self.planned.runs if isinstance(run, PlannedTrunk))
        rates = [run.entry.peak_lr for run in trunks if run.origin.stands_for is None]
        return (min(rates), max(rates)) if rates else None

    def _here(self, figure: Figure) -> list[str]:
        """Return the scale's values of the paper's rates and weight decays in a figure's words."""
        used = dict[str, str]()
        for name in figure.trajectories:
            run = self.planned[name].followed
            if isinstance(run, PlannedRun):
                trunk = run.trunk
                decay = trunk.published_optimizer.weight_decay
                used[short(decay)] = short(trunk.optimizer.weight_decay)
                used[short(trunk.entry.peak_lr)] = short(trunk.schedule.peak)
        words = " ".join([*figure.curves, figure.caption])
        return [
            f"{paper} is {used[paper]}"
            for paper in sorted(used, key=float)
            if used[paper] != paper and re.search(rf"(?<![0-9.]){paper}(?![0-9])", words)
        ]

    def shown(self, figure: Figure, quantizer: str) -> Shown:
        """Return a quantizer of a figure, with the scale's draws."""
        draws = self.measurements.draws(figure.query, quantizer)
        settings = self.config.quantizers[draws[0]]
        calibrated = isinstance(settings, Calibrated)
        return Shown(quantizer, draws, settings.method, settings.bits, calibrated)

    def runs(self, figure: Figure) -> Iterator[ShownRun]:
        """Yield the runs of a figure's trajectories, at its seeds."""
        for run in self._followed(figure):
            trunk, at = run.branched or (None, None)
            for seed in run.seeds_shown(figure.headline):
                label = needs.run(run.name, seed)
                stands_for = run.origin.stands_for
                yield ShownRun(label, run.name, seed, trunk, at, stands_for)

    def measured(self, queries: Iterable[Query]) -> tuple[tuple[Series, ...], dict[str, list[str]]]:
        """Return the series of some queries, and their raw results by label."""
        every, inputs, jobs = dict[Series, None](), dict[str, list[str]](), self.measurements
        for query in queries:
            metrics = {*query.metrics}
            chosen = self.scale.curvature.probes
            probes = [p.kind for p in chosen if not metrics.isdisjoint(p.measured())]
            of_models = [name for name, kind in owners().items() if issubclass(kind, ModelMetric)]
            evaluated = not metrics.isdisjoint((*get_args(Evaluated), *TASK_METRICS, *of_models))
            quantizers = [FULL_PRECISION] if probes else []
            quantizers = jobs.quantizers(query) if evaluated else quantizers
            for name, quantizer in product(query.trajectories, quantizers):
                for seed in self.planned[name].seeds_shown(query.seeds):
                    series = jobs.series(name, quantizer, seed)
                    every[series] = None
                    inputs |= jobs.inputs(series) if evaluated else {}
                    for probe in probes if quantizer == FULL_PRECISION else ():
                        inputs |= jobs.probed(series, probe)
        return tuple(every), inputs
