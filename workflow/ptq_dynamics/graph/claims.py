"""The jobs that judge claims and write tables of the chosen figures' measurements."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, product
from typing import Any, get_args

from ptq_dynamics.claims import definitions as said
from ptq_dynamics.claims.beyond import EVERY
from ptq_dynamics.claims.definitions import Claim, TableQuery, TableRow
from ptq_dynamics.config import Branch, Figure, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.labels import Shown
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, TASK_METRICS, Paired
from ptq_dynamics.measure.settings import in_order


class Claims(Planner):
    """Claims on the data of their figures, at the seeds of the first one."""

    @cache
    def judge(self) -> Job:
        """Return the job that judges all claims; `Problem` if a claim names an unknown figure."""
        every, figures = dict[str, said.Told](), dict[str, Job]()
        for claim in EVERY:
            place = f"workflow/ptq_dynamics/claims: {claim.name}"
            require(f"{place}.figures", "figure", claim.figures, self.plan.written)
            groups = {self.plan.written[name].group for name in claim.figures}
            if groups != {None} and not {*claim.figures} <= {*self.config.chosen}:
                continue
            every[claim.name] = self._told(claim)
            if every[claim.name].unmeasured is None:
                figures |= {name: self.plan.figures.figure(name) for name in claim.figures}
        drawn = dict[str, said.Drawn]()
        for name, job in figures.items():
            figure, draws = job.settings, {e.name: e.draws for e in job.settings.quantizers}
            runs = tuple(sorted(figure.runs, key=lambda run: run.label))
            drawn[name] = said.Drawn(series=in_order(figure.series), runs=runs, draws=draws)
        shown = {run.name for each in drawn.values() for run in each.runs}
        about: dict[str, Any] = {"scale": self.scale.description, "numbers": self._numbers(shown)}
        settings = said.ClaimsSettings(claims=every, figures=drawn, **about)
        inputs = {label: paths for job in figures.values() for label, paths in job.inputs.items()}
        return self.make("judge", "claims.judge", "claims", inputs, settings)

    def _numbers(self, names: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the paper's peak rates and weight decays of runs."""
        rates, decays = dict[str, float](), dict[str, float]()
        for name in sorted(names):
            if (run := self.timeline.run(name)) is not None:
                whole = run.whole(self.timeline)
                rates[name] = whole.peak_lr
                decays[name] = (whole.optimizer or self.timeline.defaults.optimizer).weight_decay
            elif (schedule := getattr(self.timeline.source(name), "schedule", None)) is not None:
                rates[name] = schedule.peak
        return {"peak_lr": rates, "weight_decay": decays}

    def _told(self, claim: Claim) -> said.Told:
        left_out = f"is left out at {self.scale.description}"
        for known, why in ((self.config.figures, left_out), (self.config.chosen, "was not chosen")):
            if gone := [name for name in claim.figures if name not in known]:
                return said.Told(says=claim.says, unmeasured=f"figure {gone[0]} {why}")
        figure = self.config.figures[claim.figures[0]]
        shown = [name for name in self.timeline.trajectories if name in figure.trajectories]
        runs = map(self.timeline.run, self.plan.trajectories.runs(shown))
        small = [run.stands_for(self.timeline) for run in runs if run is not None]
        seeds = [self.timeline.seeds_shown(n, figure.headline) for n in shown]
        common = tuple(seed for seed in seeds[0] if all(seed in each for each in seeds))
        miniatures = tuple(dict.fromkeys(filter(None, small)))
        return said.Told(says=claim.says, seeds=common or seeds[0][:1], miniatures=miniatures)


class Tables(Planner):
    """Tables of the trajectories and quantizers of their chosen figures."""

    @cache
    def write(self) -> Job:
        """Return the job that writes all tables; `Problem` if one names an unknown figure."""
        inputs = {"claims": [self.plan.claims.judge().manifest]}
        every, found = list[Figure](), list[said.Filled]()
        for name, table in self.config.tables.items():
            rows, columns = dict[str, TableRow](), dict[str, Shown]()
            for query in self._queries(name, table):
                every.append(query)
                for label, each in self._rows(table, query):
                    rows[each] = self._row(query, label, each, rows.get(each))
                for each in query.quantizers:
                    columns.setdefault(each, self.plan.figures.shown(query, each))
            filled: dict[str, Any] = {"rows": tuple(rows.values()), "columns": (*columns.values(),)}
            found.append(said.Filled(name=name, table=table, **filled))
        series, measured = self.plan.figures.measured(each.query for each in every)
        runs = {run.label: run for run in chain(*map(self.plan.figures.runs, every))}
        known = {"series": in_order(series), "runs": tuple(runs[label] for label in sorted(runs))}
        settings = said.TablesSettings(tables=tuple(found), **known)
        return self.make("tabulate", "claims.tables", "tables", inputs | measured, settings)

    def _queries(self, name: str, table: TableQuery) -> Iterator[Figure]:
        """Yield what a table reads of its chosen figures, and what it measures in addition."""
        require(f"config/tables.yaml: {name}.figures", "figure", table.figures, self.plan.written)
        of_runs = table.kind == "runs"
        metrics = (LOSS, QUANTIZATION_ERROR) if of_runs else TASK_METRICS
        held = {*get_args(Paired)} if of_runs else {*TASK_METRICS}
        for each in table.figures:
            if each in self.config.chosen:
                figure = self.config.figures[each]
                if not held.isdisjoint(figure.metrics):
                    yield figure.model_copy(update={"metrics": metrics})
        yield from self.lacking(table)

    def _row(self, query: Figure, label: str, name: str, before: TableRow | None) -> TableRow:
        """Return a row of a query, merged with an earlier row of the same trajectory."""
        seeds = self.timeline.seeds_shown(name, query.headline)
        draws = dict(before.draws) if before else {}
        for each in query.quantizers:
            further = self.plan.measuring.draws(query.query, each)
            draws[each] = max(draws.get(each, ()), further, key=len)
        if before is not None and len(before.seeds) >= len(seeds):
            return before.model_copy(update={"draws": draws})
        run = self.timeline.trajectories[name]
        if isinstance(run, Branch):
            label = f"{label}, from {float(run.at):.0%} of the budget"
        return TableRow(curve=label, name=name, seeds=seeds, draws=draws)

    def lacking(self, table: TableQuery) -> Iterator[Figure]:
        """Yield queries for a table's quantizers that figures lack, in a build of all figures."""
        known = [self.config.figures[n] for n in table.figures if n in self.config.figures]
        for quantizer, figure in product(table.quantizers, known):
            if self.config.is_whole and quantizer not in figure.quantizers:
                curves = dict[str, tuple[str, ...]]()
                for label, name in self._rows(table, figure):
                    curves[label] = (*curves.get(label, ()), name)
                asked = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
                yield figure.model_copy(update={**asked, "metrics": (LOSS, QUANTIZATION_ERROR)})

    def _rows(self, table: TableQuery, figure: Figure) -> Iterator[tuple[str, str]]:
        """Yield the trajectories that a table shows of a figure, each after its curve's label."""
        for label, members in figure.curves.items():
            for name in members:
                trunk = getattr(self.timeline.trajectories[name], "trunk", None)
                if trunk is not None or not table.branches:
                    yield label, name
