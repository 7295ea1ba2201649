"""The jobs of the table of all measurements, and of tables of the chosen figures."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, product
from typing import get_args

from ptq_dynamics.base import needs
from ptq_dynamics.claims.definitions import Filled, TableQuery, TableRow, TablesSettings
from ptq_dynamics.config import Figure, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.labels import Shown
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, TASK_METRICS, Paired
from ptq_dynamics.measure.series import CollectSettings, in_order
from ptq_dynamics.plan.claim_jobs import ClaimJobs
from ptq_dynamics.plan.figure_jobs import FigureJobs
from ptq_dynamics.plan.planned_branches import PlannedBranch
from ptq_dynamics.plan.site import Planner, Site


class TableJobs(Planner):
    """Tables of the trajectories and quantizers of their chosen figures. `configured` are all
    figures, also those that the scale leaves out."""

    def __init__(
        self, site: Site, figures: FigureJobs, claims: ClaimJobs, configured: Mapping[str, Figure]
    ) -> None:
        super().__init__(site)
        self.figures, self.claims, self.configured = figures, claims, configured

    @cache
    def collect(self) -> Job:
        """Return the job of all measurements of the chosen figures and their tables."""
        queries = [self.config.figures[name] for name in self.config.chosen]
        for table in self.config.tables.values():
            queries += self._lacking(table)
        series, inputs = self.figures.measured(figure.query for figure in queries)
        settings = CollectSettings(in_order(series))
        return self.make("collect", "measure.collect", "measurements", inputs, settings)

    @cache
    def write(self) -> Job:
        """Return the job that writes all tables; `Problem` if one names an unknown figure."""
        inputs = {needs.CLAIMS: [self.claims.judge().manifest]}
        queries, tables = list[Figure](), list[Filled]()
        for name, table in self.config.tables.items():
            lines, columns = dict[str, TableRow](), dict[str, Shown]()
            for query in self._queries(name, table):
                queries.append(query)
                for label, member in self._members(table, query):
                    lines[member] = self._row(query, label, member, lines.get(member))
                for quantizer in query.quantizers:
                    columns.setdefault(quantizer, self.figures.shown(query, quantizer))
            shown = tuple(columns.values())
            tables.append(Filled(name=name, table=table, rows=(*lines.values(),), columns=shown))
        series, measured = self.figures.measured(query.query for query in queries)
        runs = {run.label: run for run in chain(*map(self.figures.runs, queries))}
        settings = TablesSettings(
            tables=tuple(tables),
            series=in_order(series),
            runs=tuple(runs[label] for label in sorted(runs)),
        )
        return self.make("tabulate", "claims.tables", "tables", inputs | measured, settings)

    def _queries(self, name: str, table: TableQuery) -> Iterator[Figure]:
        """Yield what a table reads of its chosen figures, and what it measures in addition."""
        require(f"config/tables.yaml: {name}.figures", "figure", table.figures, self.configured)
        of_runs = table.kind == "runs"
        metrics = (LOSS, QUANTIZATION_ERROR) if of_runs else TASK_METRICS
        held = {*get_args(Paired)} if of_runs else {*TASK_METRICS}
        for chosen in table.figures:
            if chosen in self.config.chosen:
                figure = self.config.figures[chosen]
                if not held.isdisjoint(figure.metrics):
                    yield figure.model_copy(update={"metrics": metrics})
        yield from self._lacking(table)

    def _row(self, query: Figure, label: str, name: str, before: TableRow | None) -> TableRow:
        """Return a row of a query, merged with an earlier row of the same trajectory."""
        trajectory = self.planned[name]
        seeds = trajectory.seeds_shown(query.headline)
        draws = dict(before.draws) if before else {}
        for quantizer in query.quantizers:
            further = self.figures.measurements.draws(query.query, quantizer)
            draws[quantizer] = max(draws.get(quantizer, ()), further, key=len)
        if before is not None and len(before.seeds) >= len(seeds):
            return before.model_copy(update={"draws": draws})
        if isinstance(trajectory, PlannedBranch):
            label = f"{label}, from {float(trajectory.entry.at):.0%} of the budget"
        return TableRow(curve=label, name=name, seeds=seeds, draws=draws)

    def _members(self, table: TableQuery, figure: Figure) -> Iterator[tuple[str, str]]:
        """Yield the trajectories that a table shows of a figure, each after its curve's label."""
        for label, members in figure.curves.items():
            for name in members:
                trajectory = self.planned[name]
                is_branch = isinstance(trajectory, PlannedBranch) or trajectory.branched is not None
                if is_branch or not table.branches:
                    yield label, name

    def _lacking(self, table: TableQuery) -> Iterator[Figure]:
        """Yield queries for a table's quantizers that figures lack, in a build of all figures."""
        figures = [self.config.figures[n] for n in table.figures if n in self.config.figures]
        for quantizer, figure in product(table.quantizers, figures):
            if self.config.is_whole and quantizer not in figure.quantizers:
                curves = dict[str, tuple[str, ...]]()
                for label, name in self._members(table, figure):
                    curves[label] = (*curves.get(label, ()), name)
                query = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
                yield figure.model_copy(update={**query, "metrics": (LOSS, QUANTIZATION_ERROR)})
