"""The jobs that draw figures, and what a build is for."""

import math
import re
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import chain, product
from typing import TypedDict, get_args

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Branch, Calibrated, Figure, PublicRun, Query, figures
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import (
    ALIKE,
    PICTURES,
    TABLE,
    UNITS,
    Ages,
    DynamicsSettings,
    FigureSettings,
    LossesSettings,
    OverTokensSettings,
    ParametricSettings,
    Shown,
    ShownRun,
    StagesSettings,
    WindowsSettings,
    in_group,
    rounded,
    short,
)
from ptq_dynamics.graph.completing import lacking
from ptq_dynamics.graph.geometry import Geometry
from ptq_dynamics.graph.losses import Losses
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.tasks import Tasks
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.names import (
    FULL_PRECISION,
    LAYER_METRICS,
    MEASUREMENTS,
    PROBES,
    TASK_METRICS,
    Evaluated,
)
from ptq_dynamics.measure.settings import CollectSettings, Series
from ptq_dynamics.train.averages import Tails

EVALUATED = frozenset(get_args(Evaluated))
# Of a group of curves that is named by the size of its model, in parameters.
SIZE = re.compile(r"([0-9.]+)([kMBT])")


class Figures:
    """Figures of all that was measured, and the table of it."""

    def __init__(
        self,
        site: Site,
        trajectories: Trajectories,
        losses: Losses,
        tasks: Tasks,
        geometry: Geometry,
    ) -> None:
        self._site, self._timeline = site, site.timeline
        self._trajectories, self._losses = trajectories, losses
        self._tasks, self._geometry = tasks, geometry

    @cached_property
    def chosen(self) -> list[str]:
        """Names of the chosen figures."""
        chosen = self._site.config.choice.figures
        return list(self._site.config.figures) if chosen == "all" else list(chosen)

    @cache
    def figure(self, name: str) -> Job:
        """One figure."""
        figure = self._site.config.figures[name]
        series, inputs = self.measured(
            figure, layers=not {*LAYER_METRICS}.isdisjoint(figure.metrics)
        )
        runs = list(self.runs(figure))
        if isinstance(figure, figures.Landscapes):
            # Of several seeds it shows the first.
            runs = [run for run in runs if run.seed == self._timeline.seeds_of(run.name)[0]]
        asks = isinstance(figure, figures.OverTokens) and figure.options.phases
        if asks and not self._site.left_out[name] and all(run.trunk is None for run in runs):
            raise Problem(
                f"config/figures.yaml: {name}.options.phases: no trajectory of its curves branches "
                "off a run; leave it out"
            )
        inputs |= {run.label: self._trajectories.manifests(run.name, run.seed) for run in runs}
        match figure:
            case figures.Landscapes():
                previous = self._timeline.steps(figure.landscape.previous)
                for each, quantizer in product(figure.trajectories, figure.quantizers):
                    job = self._geometry.landscape(each, self.used(quantizer), previous)
                    inputs[f"landscape {each} {quantizer}"] = [job.manifest]
            case figures.Pca():
                inputs["components"] = [self.components(name).manifest]
        shown = Shared(
            curves=tuple((self._label(*each), each[1]) for each in figure.curves.items()),
            quantizers=tuple(self.shown(figure, each) for each in figure.quantizers),
            metrics=figure.metrics,
            series=tuple(series),
            runs=tuple(runs),
            scale=self._site.config.scale.description,
            left_out=self._site.left_out[name],
            uncertain=tuple(dict.fromkeys(self._uncertain(figure))),
            uncertain_rates=tuple(dict.fromkeys(self._uncertain_rates(figure))),
        )
        files = tuple(f"{name}.{kind}" for kind in (*PICTURES, TABLE))
        stage = f"figures.layouts.{figure.layout}"
        settings = _settings(figure, shown, self._ages(figure))
        return self._site.add(Job(stage, name, self._site.pictures, inputs, settings, name, files))

    @cache
    def components(self, name: str) -> Job:
        """Principal components of the weights along a figure's trajectories."""
        figure = self._site.config.figures[name]
        count = figure.components if isinstance(figure, figures.Pca) else 2
        seeds = {each: self.seeds(figure, each) for each in figure.trajectories}
        return self._geometry.components(name, tuple(seeds.items()), count)

    def _label(self, label: str, members: tuple[str, ...]) -> str:
        """A curve's label; before the rate and the weight decay of the paper's run, those used at
        this scale, and before the size that its group is named by, that of the model."""
        own = self._timeline.run(members[0])
        if own is None:
            return label
        run = own.whole(self._timeline)
        if size := SIZE.fullmatch(in_group(label)[0]):
            shape = run.model_shape(self._timeline)
            corpus = self._site.config.scale.whole(shape.corpus)
            count = shape.model.parameters(corpus.vocabulary)
            if not math.isclose(count, float(size[1]) * UNITS[size[2]], rel_tol=0.05):
                label = f"{rounded(count)} {ALIKE} {label}"
        used = {short(run.peak_lr): short(run.peak(self._timeline))}
        theirs = run.papers_optimizer(self._timeline).named_by
        mine = run.optimizer_in(self._timeline).named_by
        if theirs is not None and mine is not None:
            used = {short(theirs): short(mine)} | used
        texts = "|".join(re.escape(paper) for paper, here in used.items() if here != paper)
        numbers = rf"(?<![0-9.])(?:{texts})(?![0-9])"
        if not texts:
            return label
        return re.sub(numbers, lambda at: f"{used[at[0]]} {ALIKE} {at[0]}", label)

    def used(self, quantizer: str) -> str:
        """The quantizer that this scale takes where a figure names one."""
        return self._site.config.scale.quantizers.get(quantizer, quantizer)

    def _ages(self, figure: Figure) -> Ages:
        """Trajectory, checkpoint id and mean age in tokens of all means at the end of a run."""
        found = []
        for name in figure.trajectories:
            average = self._timeline.trajectory(name)
            if isinstance(average, Tails):
                model = average.model_shape(self._timeline)
                ages = average.ages(self._timeline)
                found += [(name, n, age * model.batch * model.context) for n, age in ages.items()]
        return tuple(found)

    def draws(self, query: Query, quantizer: str) -> tuple[str, ...]:
        """The quantizers that this scale takes where a figure names one: with each draw of the
        calibration set that both have."""
        further = query.draws.get(quantizer, ())[: self._site.config.scale.calibration.draws - 1]
        return tuple(map(self.used, (quantizer, *further)))

    def seeds(self, figure: Figure, trajectory: str) -> tuple[int, ...]:
        """The seeds that a figure shows of a trajectory."""
        return self._timeline.seeds_shown(trajectory, figure.headline)

    def shown(self, figure: Figure, quantizer: str) -> Shown:
        """A quantizer of a figure, with the draws that this scale takes."""
        draws = self.draws(figure, quantizer)
        settings = self._site.config.quantizers[draws[0]]
        calibrated = isinstance(settings, Calibrated)
        return Shown(quantizer, draws, settings.method, settings.bits, calibrated)

    def runs(self, figure: Figure) -> Iterator[ShownRun]:
        """The runs that a figure's trajectories are made from, at its seeds."""
        for name in self._trajectories.runs(figure.trajectories):
            run, public = self._timeline.run(name), self._site.config.runs.public.get(name)
            trunk, at = None, None
            if isinstance(run, Branch):
                trunk, at = run.trunk, self._timeline.steps(run.at)
            elif isinstance(public, PublicRun) and public.trunk is not None:
                trunk, at = public.trunk, public.first
            small = run.stands_for(self._timeline) if run else None
            for seed in self.seeds(figure, name):
                yield ShownRun(f"run {name} seed {seed}", name, seed, trunk, at, small)

    def _uncertain(self, figure: Figure) -> Iterator[str]:
        """What is uncertain of the public models of a figure, with their names."""
        for name in self._trajectories.runs(figure.trajectories):
            trajectory = self._timeline.trajectory(name)
            if unknown := trajectory.uncertain(self._timeline):
                yield f"{trajectory.trained_by(self._timeline)}: {unknown}"

    def _uncertain_rates(self, figure: Figure) -> Iterator[str]:
        """Public models of a figure whose learning rate is uncertain."""
        for name in self._trajectories.runs(figure.trajectories):
            trajectory = self._timeline.trajectory(name)
            if trajectory.has_uncertain_rate(self._timeline):
                yield trajectory.trained_by(self._timeline)

    def measured(self, query: Figure, *, layers: bool) -> tuple[list[Series], dict[str, list[str]]]:
        """The series of a figure, and the raw results they are joined from, by label."""
        names, metrics = query.trajectories, {*query.metrics}
        evaluated, asked = bool(metrics & EVALUATED), not metrics.isdisjoint(TASK_METRICS)
        probes = [probe for probe, measured in PROBES.items() if not metrics.isdisjoint(measured)]
        drawn = chain.from_iterable(self.draws(query, each) for each in query.quantizers)
        quantizers = (FULL_PRECISION, *(drawn if evaluated or asked else ()))
        if not evaluated and not asked and not probes:
            return [], {}
        found: list[Series] = []
        inputs: dict[str, list[str]] = {}
        for name, quantizer in product(names, quantizers):
            for seed in self.seeds(query, name):
                series = self._losses.series(name, quantizer, seed)
                found.append(series)
                if evaluated:
                    inputs |= self._losses.losses(series)
                    inputs |= self._losses.layers(series) if layers else {}
                if asked:
                    inputs |= self._tasks.accuracies(series)
                if quantizer == FULL_PRECISION:
                    for probe in probes:
                        inputs |= self._geometry.probed(series, probe)
        return found, inputs

    @cache
    def collect(self) -> Job:
        """All measurements of the chosen figures, and of tables beside them, in one table."""
        series: dict[Series, None] = {}
        inputs: dict[str, list[str]] = {}
        config = self._site.config
        queries = [config.figures[name] for name in self.chosen]
        for table in config.tables.values():
            queries += lacking(self._site, table)
        for query in queries:
            found, needed = self.measured(query, layers=True)
            series |= dict.fromkeys(found)
            inputs |= needed
        settings = CollectSettings(tuple(series))
        folder, stem = self._site.results, MEASUREMENTS.removesuffix(".csv")
        return self._site.add(
            Job("measure.collect", stem, folder, inputs, settings, stem=stem, files=(MEASUREMENTS,))
        )

    def targets(self) -> list[Job]:
        """The chosen figures; all figures bring the table of all measurements."""
        jobs = [self.figure(name) for name in self.chosen]
        return [*jobs, self.collect()] if self._site.config.choice.figures == "all" else jobs


class Shared(TypedDict):
    """What all layouts are told (see `FigureSettings`)."""

    curves: tuple[tuple[str, tuple[str, ...]], ...]
    quantizers: tuple[Shown, ...]
    metrics: tuple[str, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    scale: str
    left_out: tuple[str, ...]
    uncertain: tuple[str, ...]
    uncertain_rates: tuple[str, ...]


def _settings(figure: Figure, shown: Shared, ages: Ages) -> FigureSettings:
    match figure:
        case figures.OverTokens():
            asked = figure.options
            return OverTokensSettings(
                **shown, quantized_losses=asked.quantized_losses, phases=asked.phases
            )
        case figures.Dynamics():
            options = figure.options
            return DynamicsSettings(**shown, lineage=options.lineage, log=options.log)
        case figures.Losses():
            return LossesSettings(**shown, against=figure.options.against)
        case figures.Stages():
            return StagesSettings(**shown, ends=figure.options.ends, tasks=figure.options.tasks)
        case figures.Windows():
            return WindowsSettings(**shown, ages=ages)
        case figures.Parametric():
            losses_of = figure.options.losses_of or figure.quantizers
            return ParametricSettings(**shown, losses_of=losses_of)
    return FigureSettings(**shown)
