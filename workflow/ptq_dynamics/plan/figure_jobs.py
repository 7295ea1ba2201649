"""The jobs that draw figures, and those of landscapes and components, which only figures read."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

from ptq_dynamics.base import needs
from ptq_dynamics.curvature.settings import ComponentsSettings, LandscapeSettings, Path
from ptq_dynamics.engine.job import Job
from ptq_dynamics.figures.columns import columns
from ptq_dynamics.figures.figure import Figure, FigureSettings
from ptq_dynamics.figures.labels import LABELLED, PEAK_RATE, Shown, ShownRun, in_group, short
from ptq_dynamics.measure.names import TASK_METRICS
from ptq_dynamics.plan.measurement_jobs import MeasurementJobs
from ptq_dynamics.plan.planned import PlannedAverage, PlannedTrajectory
from ptq_dynamics.plan.planned_runs import PlannedRun, PlannedTrunk
from ptq_dynamics.plan.site import Planner, Rule, Site
from ptq_dynamics.quantize.methods import Calibrated
from ptq_dynamics.trajectories.averages.windows import Tails

LANDSCAPE = Rule[LandscapeSettings](
    "landscape",
    "<results>/landscape/{trajectory}/seed-{seed}/{quantizer}/back-{steps}/",
    "curvature.landscape",
)
COMPONENTS = Rule[ComponentsSettings](
    "components", "<results>/components/{figure}/", "curvature.components"
)
FIGURE = Rule[FigureSettings]("figure", "<figures>/{figure}.", "figures.draw")
RULES = (LANDSCAPE, COMPONENTS, FIGURE)
ONCE = 1.05  # passes over a text


class FigureJobs(Planner):
    """Jobs of figures."""

    def __init__(self, site: Site, measurements: MeasurementJobs) -> None:
        super().__init__(site)
        self.trajectories, self.measurements = measurements.trajectories, measurements

    @cache
    def figure(self, name: str) -> Job:
        """Return the job of one figure."""
        figure = self.config.figures[name]
        series, inputs = self.measurements.series_of([figure.query])
        runs = list(self.runs(figure))
        if figure.of_one_seed:
            runs = [run for run in runs if run.seed == self.seed(run.name)]
        inputs |= {run.label: self.trajectories.manifests(run.name, run.seed) for run in runs}
        if figure.reads.plane is not None:
            back = self.planned.basis.steps(figure.reads.plane)
            for trajectory, quantizer in product(figure.trajectories, figure.quantizers):
                job = self.landscape(trajectory, self.scale.used(quantizer), back)
                inputs[needs.landscape(trajectory, quantizer)] = [job.manifest]
        if figure.reads.components is not None:
            job = self.components(name, figure, figure.reads.components)
            inputs[needs.COMPONENTS] = [job.manifest]
        origins = [followed.origin for followed in self._followed(figure)]
        uncertain = [f"{one.family}: {one.uncertain}" for one in origins if one.uncertain]
        unsure = [one.family for one in origins if one.is_rate_uncertain]
        followed = (one for one in self._followed(figure) if isinstance(one, PlannedRun))
        passes, tasks = max((run.passes for run in followed), default=0), self.scale.tasks
        unknown = tasks is not None and tasks.at_chance is None
        unknown &= not {*TASK_METRICS}.isdisjoint(figure.metrics)
        notes = {
            "Here the paper's": ", ".join(self._here(figure)),
            "Left out at this scale:": ", ".join(self.site.left_out(name)),
            "Uncertain of": "; ".join(dict.fromkeys(uncertain)),
            "Runs read their text up to": f"{passes:.2g} times" if passes > ONCE else "",
            "Unknown at this scale, so that all tasks count:": "tasks at chance" * unknown,
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
            absent=self._absent(name, figure),
            uncertain_rates=tuple(dict.fromkeys(unsure)),
            rates=self.peak_rates() if any(map(PEAK_RATE.match, figure.curves)) else None,
            rate_factor=self._rate_factor(figure),
            columns=tuple(
                column
                for name, column in columns().items()
                if name in figure.metrics and name not in LABELLED
            ),
        )
        return self.make(FIGURE, name, inputs, settings, figure=name)

    @cache
    def landscape(self, trajectory: str, quantizer: str, previous: int) -> Job:
        """Return the job of the loss in the plane of the last checkpoint, its quantization and the
        checkpoint `previous` steps before."""
        grid, seed = self.scale.landscape, self.seed(trajectory)
        context = self.planned[trajectory].shape.context
        kind, final = self.kind(quantizer, trajectory), self.planned[trajectory].measured[-1]
        ids = {point.step: point.id for point in self.planned[trajectory].checkpoints}
        settings = LandscapeSettings(
            final=final.id,
            previous=ids[(final.step or 0) - previous],
            context=context,
            blocks=grid.count(context),
            batch=self.scale.evaluation.batch,
            **grid.model_dump(include={"side", "margin"}),
            quantizer=kind,
            calibration=self.calibration(trajectory, kind),
        )
        name = f"{trajectory} seed {seed} {quantizer}"
        inputs = self.trajectories.inputs(trajectory, seed) | self.measurements.tools(kind)
        at = {"trajectory": trajectory, "seed": seed, "quantizer": quantizer, "steps": previous}
        return self.make(LANDSCAPE, name, inputs, settings, **at)

    def components(self, name: str, figure: Figure, count: int) -> Job:
        """Return the job of principal components along a figure's trajectories."""
        inputs, paths = dict[str, list[str]](), list[Path]()
        for trajectory in figure.trajectories:
            ids = tuple(point.id for point in self.planned[trajectory].measured)
            for seed in self.planned[trajectory].seeds_shown(figure.headline):
                label = needs.path(trajectory, seed)
                inputs[label] = self.trajectories.manifests(trajectory, seed)
                paths.append(Path(label=label, trajectory=trajectory, seed=seed, checkpoints=ids))
        settings = ComponentsSettings(paths=tuple(paths), components=count)
        return self.make(COMPONENTS, name, inputs, settings, figure=name)

    def _absent(self, name: str, figure: Figure) -> tuple[str, ...]:
        """Return the curves that a figure lacks at this scale, or their group if it is gone."""
        shown = {in_group(curve)[0] for curve in figure.curves}
        gone = (curve for curve in self.site.configured[name].curves if curve not in figure.curves)
        parts = ((curve, in_group(curve)[0]) for curve in gone)
        return tuple(dict.fromkeys(c if group in shown else group or c for c, group in parts))

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

    def _rate_factor(self, figure: Figure) -> float | None:
        """Return the scale's peak rates in multiples of the paper's, if labels have other rates."""
        runs = (run for run in self._followed(figure) if isinstance(run, PlannedRun))
        trunks = [run.trunk for run in runs if any(map(PEAK_RATE.search, figure.curves))]
        factors = {float(short(one.schedule.peak / one.entry.peak_lr)) for one in trunks}
        return factors.pop() if len(factors) == 1 and factors != {1} else None

    def shown(self, figure: Figure, quantizer: str) -> Shown:
        """Return a quantizer of a figure, with the scale's draws."""
        draws = self.draws(figure.query, quantizer)
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
