"""The jobs that draw figures, and what a build is for."""

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import chain, product
from typing import get_args

from ptq_dynamics.config import Branch, Calibrated, Figure, PublicRun
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.layouts.landscapes import Landscapes
from ptq_dynamics.figures.settings import (
    ALIKE,
    PICTURES,
    TABLE,
    UNITS,
    Shown,
    ShownRun,
    in_group,
    rounded,
    short,
)
from ptq_dynamics.graph.completing import lacking
from ptq_dynamics.graph.geometry import Geometry
from ptq_dynamics.graph.measuring import Measuring
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.names import (
    FULL_PRECISION,
    MEASUREMENTS,
    PROBES,
    TASK_METRICS,
    Evaluated,
)
from ptq_dynamics.measure.settings import CollectSettings, Series

EVALUATED = frozenset(get_args(Evaluated))
# Of a group of curves that is named by the size of its model, in parameters.
SIZE = re.compile(r"([0-9.]+)([kMBT])")


class Figures:
    """Figures of all that was measured, and the table of it."""

    def __init__(
        self,
        site: Site,
        trajectories: Trajectories,
        measuring: Measuring,
        geometry: Geometry,
    ) -> None:
        self._site, self._timeline = site, site.timeline
        self._trajectories, self._measuring, self._geometry = trajectories, measuring, geometry
        self.used, self.draws = measuring.used, measuring.draws

    @cached_property
    def chosen(self) -> list[str]:
        """Names of the chosen figures."""
        chosen = self._site.config.choice.figures
        return list(self._site.config.figures) if chosen == "all" else list(chosen)

    @cache
    def figure(self, name: str) -> Job:
        """One figure."""
        figure = self._site.config.figures[name]
        series, inputs = self.measured(figure)
        runs = list(self.runs(figure))
        if figure.of_one_seed:
            runs = [run for run in runs if run.seed == self._timeline.seeds_of(run.name)[0]]
        inputs |= {run.label: self._trajectories.manifests(run.name, run.seed) for run in runs}
        inputs |= figure.inputs(name, self)
        models = self._trajectories.runs(figure.trajectories)
        # Of these, what is drawn depends on nothing that the settings do not say themselves.
        wordless = {"title": name, "caption": name, "headline": False, "draws": {}}
        settings = FigureSettings(
            figure=figure.model_copy(update=wordless),
            curves=tuple((self._label(*each), each[1]) for each in figure.curves.items()),
            quantizers=tuple(self.shown(figure, each) for each in figure.quantizers),
            series=tuple(series),
            runs=tuple(runs),
            ages=figure.ages(self._timeline),
            scale=self._site.config.scale.description,
            left_out=self._site.left_out[name],
            uncertain=tuple(dict.fromkeys(self._uncertain(models))),
            uncertain_rates=tuple(dict.fromkeys(self._uncertain_rates(models))),
        )
        files = tuple(f"{name}.{kind}" for kind in (*PICTURES, TABLE))
        job = Job("figures.draw", name, self._site.pictures, inputs, settings, name, files)
        return self._site.add(job)

    @cache
    def components(self, name: str) -> Job:
        """Principal components of the weights along a figure's trajectories."""
        figure = self._site.config.figures[name]
        seeds = {each: self.seeds(figure, each) for each in figure.trajectories}
        count = getattr(figure, "components", 2)
        return self._geometry.components(name, tuple(seeds.items()), count)

    def landscape(self, figure: Landscapes, trajectory: str, quantizer: str) -> Job:
        """The loss around the end of a trajectory that a figure shows."""
        previous = self._timeline.steps(figure.landscape.previous)
        return self._geometry.landscape(trajectory, self.used(quantizer), previous)

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

    def _uncertain(self, runs: Iterable[str]) -> Iterator[str]:
        """What is uncertain of public models, with their names."""
        for trajectory in map(self._timeline.trajectory, runs):
            if unknown := trajectory.uncertain(self._timeline):
                yield f"{trajectory.trained_by(self._timeline)}: {unknown}"

    def _uncertain_rates(self, runs: Iterable[str]) -> Iterator[str]:
        """Names of those whose learning rate is uncertain."""
        for trajectory in map(self._timeline.trajectory, runs):
            if trajectory.has_uncertain_rate(self._timeline):
                yield trajectory.trained_by(self._timeline)

    def measured(self, query: Figure) -> tuple[list[Series], dict[str, list[str]]]:
        """The series of a figure, and the raw results they are joined from, by label."""
        metrics = {*query.metrics}
        evaluated = not metrics.isdisjoint((*EVALUATED, *TASK_METRICS))
        probes = [probe for probe, given in PROBES.items() if not metrics.isdisjoint(given)]
        quantizers = [FULL_PRECISION] if evaluated or probes else []
        if evaluated:
            drawn = (self.draws(query, each) for each in query.quantizers)
            quantizers += chain.from_iterable(drawn)
        found: list[Series] = []
        inputs: dict[str, list[str]] = {}
        for name, quantizer in product(query.trajectories, quantizers):
            for seed in self.seeds(query, name):
                series = self._measuring.series(name, quantizer, seed)
                found.append(series)
                if evaluated:
                    inputs |= self._measuring.inputs(series)
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
            found, needed = self.measured(query)
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
