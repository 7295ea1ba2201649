"""The jobs that draw figures, and the job of the table of all measurements."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, product
from typing import Any, get_args

from ptq_dynamics.config import Branch, Figure, Run, Whole
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.labels import RATE, Shown, ShownRun, short
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.names import FULL_PRECISION, PROBES, TASK_METRICS, Evaluated
from ptq_dynamics.measure.settings import CollectSettings, Query, Series, in_order
from ptq_dynamics.quantize.methods import Calibrated
from ptq_dynamics.train.averages.windows import Tails


class Figures(Planner):
    """Jobs of figures, and of the table of all measurements."""

    @cache
    def figure(self, name: str) -> Job:
        """Return the job of one figure."""
        figure, timeline = self.config.figures[name], self.timeline
        series, inputs = self.measured([figure.query])
        runs = list(self.runs(figure))
        if figure.of_one_seed:
            runs = [run for run in runs if run.seed == timeline.seeds_of(run.name)[0]]
        trajectories = self.plan.trajectories
        inputs |= {run.label: trajectories.manifests(run.name, run.seed) for run in runs}
        inputs |= self._others(name, figure)
        followed = [timeline.trajectories[n] for n in trajectories.runs(figure.trajectories)]
        told = [(each.trained_by(timeline), *each.uncertain(timeline)) for each in followed]
        uncertain = dict.fromkeys(f"{family}: {unknown}" for family, unknown, _ in told if unknown)
        unsure = [family for family, _, is_unsure in told if is_unsure]
        said = {
            "Here the paper's": ", ".join(self._here(figure)),
            "Left out at this scale:": ", ".join(self.site.left_out[name]),
            "Uncertain of": "; ".join(uncertain),
        }
        # Words of a figure change nothing that is drawn.
        wordless = {"title": name, "caption": name, "headline": False, "group": None, "draws": {}}
        settings = FigureSettings(
            figure=figure.model_copy(update=wordless),
            curves=tuple(figure.curves.items()),
            quantizers=tuple(self.shown(figure, each) for each in figure.quantizers),
            series=series,
            runs=tuple(runs),
            ages=tuple(self._ages(figure)) if figure.reads.ages else (),
            scale=self.scale.description,
            notes=tuple(f"{how} {what}." for how, what in said.items() if what),
            uncertain_rates=tuple(dict.fromkeys(unsure)),
            rates=self.rates() if any(map(RATE.match, figure.curves)) else None,
        )
        return self.make("figure", "figures.draw", name, inputs, settings, figure=name)

    def _others(self, name: str, figure: Figure) -> dict[str, list[str]]:
        """Return manifests, by label, of what a figure reads besides runs and measurements."""
        measuring, inputs = self.plan.measuring, dict[str, list[str]]()
        if figure.reads.plane is not None:
            back = self.timeline.steps(figure.reads.plane)
            for each, quantizer in product(figure.trajectories, figure.quantizers):
                job = measuring.landscape(each, self.scale.used(quantizer), back)
                inputs[f"landscape {each} {quantizer}"] = [job.manifest]
        if figure.reads.components is not None:
            job = measuring.components(name, figure, figure.reads.components)
            inputs["components"] = [job.manifest]
        return inputs

    def _ages(self, figure: Figure) -> Iterator[tuple[str, str, float]]:
        """Yield the averages at the end of a run, with their mean age in tokens."""
        for name in figure.trajectories:
            average = self.timeline.trajectories[name]
            if isinstance(average, Tails):
                shape = average.model_shape(self.timeline)
                for mean, steps in average.ages(self.timeline).items():
                    yield name, mean, steps * shape.batch * shape.context

    @cache
    def rates(self) -> tuple[float, float] | None:
        """Return the lowest and the highest of the paper's peak rates of controlled runs."""
        runs = (run for run in self.config.runs.runs.values() if isinstance(run, Whole))
        found = [run.peak_lr for run in runs if run.stands_for(self.timeline) is None]
        return (min(found), max(found)) if found else None

    def _here(self, figure: Figure) -> list[str]:
        """Return the scale's values of the paper's rates and weight decays in a figure's words."""
        timeline, used = self.timeline, dict[str, str]()
        for run in filter(None, map(timeline.run, figure.trajectories)):
            theirs, here = run.whole(timeline), run.whole(timeline).optimizer_in(timeline)
            decay = (theirs.optimizer or timeline.defaults.optimizer).weight_decay
            used[short(decay)] = short(here.weight_decay)
            used[short(theirs.peak_lr)] = short(theirs.peak(timeline))
        words = " ".join([*figure.curves, figure.caption])
        return [
            f"{paper} is {used[paper]}"
            for paper in sorted(used, key=float)
            if used[paper] != paper and re.search(rf"(?<![0-9.]){paper}(?![0-9])", words)
        ]

    def shown(self, figure: Figure, quantizer: str) -> Shown:
        """Return a quantizer of a figure, with the scale's draws."""
        draws = self.plan.measuring.draws(figure.query, quantizer)
        settings = self.config.quantizers[draws[0]]
        calibrated = isinstance(settings, Calibrated)
        return Shown(quantizer, draws, settings.method, settings.bits, calibrated)

    def runs(self, figure: Figure) -> Iterator[ShownRun]:
        """Yield the runs of a figure's trajectories, at its seeds."""
        for name in self.plan.trajectories.runs(figure.trajectories):
            own: Any = self.timeline.trajectories[name]
            # A branch with other weights than its trunk's does not continue the trunk's curve.
            trunk = None if getattr(own, "weights", None) else getattr(own, "trunk", None)
            at = None
            if trunk is not None:
                at = self.timeline.steps(own.at) if isinstance(own, Branch) else own.first
            small = own.stands_for(self.timeline) if isinstance(own, Run) else None
            for seed in self.timeline.seeds_shown(name, figure.headline):
                yield ShownRun(f"run {name} seed {seed}", name, seed, trunk, at, small)

    def measured(self, queries: Iterable[Query]) -> tuple[tuple[Series, ...], dict[str, list[str]]]:
        """Return the series of some queries, and their raw results by label."""
        found, inputs = dict[Series, None](), dict[str, list[str]]()
        measuring = self.plan.measuring
        for query in queries:
            metrics = {*query.metrics}
            evaluated = not metrics.isdisjoint((*get_args(Evaluated), *TASK_METRICS))
            probes = [probe for probe, given in PROBES.items() if not metrics.isdisjoint(given)]
            quantizers = [FULL_PRECISION] if probes else []
            quantizers = measuring.quantizers(query) if evaluated else quantizers
            for name, quantizer in product(query.trajectories, quantizers):
                for seed in self.timeline.seeds_shown(name, query.seeds):
                    series = measuring.series(name, quantizer, seed)
                    found[series] = None
                    inputs |= measuring.inputs(series) if evaluated else {}
                    for probe in probes if quantizer == FULL_PRECISION else ():
                        inputs |= measuring.probed(series, probe)
        return tuple(found), inputs

    @cache
    def collect(self) -> Job:
        """Return the job of all measurements of the chosen figures and their tables."""
        lacking = map(self.plan.tables.lacking, self.config.tables.values())
        queries = chain(map(self.config.figures.__getitem__, self.config.chosen), *lacking)
        series, inputs = self.measured(figure.query for figure in queries)
        settings = CollectSettings(in_order(series))
        return self.make("collect", "measure.collect", "measurements", inputs, settings)
