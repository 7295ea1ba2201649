"""The job that writes tables over what the chosen figures measure."""

from collections.abc import Iterator
from functools import cache

from ptq_dynamics.claims.settings import FORMATS, Filled, Row, TableQuery, TablesSettings
from ptq_dynamics.config import Branch, Figure, PublicRun, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import Shown, ShownRun
from ptq_dynamics.graph.claims import measures
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, TASK_METRICS
from ptq_dynamics.measure.settings import Series


class Tables(Planner):
    """Tables, each over the trajectories and quantizers of its figures, as far as these were
    chosen."""

    @cache
    def write(self) -> Job:
        """All tables; raises `Problem` where one names an unknown figure."""
        # Claims say how far calibration sets differ, too.
        inputs = {"claims": [self.plan.claims.judge().manifest]}
        series, runs, found = dict[Series, None](), dict[ShownRun, None](), list[Filled]()
        for name, table in self.config.tables.items():
            rows, columns = dict[str, Row](), dict[str, Shown]()
            for query in self._queries(name, table):
                read, labelled = self.plan.figures.measured(query)
                series, inputs = series | dict.fromkeys(read), inputs | labelled
                runs |= dict.fromkeys(self.plan.figures.runs(query))
                starts = {run.name for run in runs if run.trunk is not None}
                for label, members in query.curves.items():
                    for each in members:
                        rows[each] = self._row(query, label, each, starts, rows.get(each))
                for each in query.quantizers:
                    columns.setdefault(each, self.plan.figures.shown(query, each))
            kept = tuple(row for row in rows.values() if row.starts or not table.branches)
            found.append(Filled(name=name, table=table, rows=kept, columns=tuple(columns.values())))
        settings = TablesSettings(tables=tuple(found), series=tuple(series), runs=tuple(runs))
        files = tuple(f"{name}.{form}" for name in self.config.tables for form in FORMATS)
        return self.make("tabulate", "claims.tables", "tables", inputs, settings, files)

    def _queries(self, name: str, table: TableQuery) -> Iterator[Figure]:
        """What a table reads of its figures that were chosen, and what it measures for itself."""
        require(f"config/tables.yaml: {name}.figures", "figure", table.figures, self.plan.written)
        wanted = (LOSS, QUANTIZATION_ERROR) if table.kind == "runs" else TASK_METRICS
        for each in table.figures:
            figure = self.config.figures.get(each)
            if figure is None or each not in self.plan.figures.chosen:
                continue
            if metrics := tuple(metric for metric in wanted if measures(figure, metric)):
                yield figure.model_copy(update={"metrics": metrics})
        yield from self.lacking(table)

    def _row(
        self, query: Figure, label: str, name: str, starts: set[str], before: Row | None
    ) -> Row:
        """A row of a query, or the one before where that has as many seeds, with the draws of
        quantizers that it has fewer of."""
        seeds, draws = (
            self.timeline.seeds_shown(name, query.headline),
            dict(before.draws) if before else {},
        )
        for each in query.quantizers:
            draws[each] = max(draws.get(each, ()), self.plan.measuring.draws(query, each), key=len)
        if before is not None and len(before.seeds) >= len(seeds):
            return before.model_copy(update={"draws": draws})
        return Row(curve=label, name=name, seeds=seeds, starts=name in starts, draws=draws)

    def lacking(self, table: TableQuery) -> Iterator[Figure]:
        """Queries of what a table asks of its rows under quantizers that no figure of its has, with
        the seeds of these and one calibration set; none where not all figures were chosen."""
        if self.config.choice.figures != "all":
            return
        known = [self.config.figures[n] for n in table.figures if n in self.config.figures]
        there = {
            (name, quantizer)
            for figure in known
            if QUANTIZATION_ERROR in figure.metrics
            for name in figure.trajectories
            for quantizer in figure.quantizers
        }
        for quantizer in table.quantizers:
            for figure in known:
                curves = dict[str, tuple[str, ...]]()
                for label, members in figure.curves.items():
                    rows = (name for name in members if not table.branches or self._branches(name))
                    if gone := tuple(name for name in rows if (name, quantizer) not in there):
                        curves[label] = gone
                        there |= {(name, quantizer) for name in gone}
                if curves:
                    asked = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
                    metrics = (LOSS, QUANTIZATION_ERROR)
                    yield figure.model_copy(update={**asked, "metrics": metrics})

    def _branches(self, name: str) -> bool:
        run, public = self.timeline.run(name), self.config.runs.public.get(name)
        of_public = isinstance(public, PublicRun) and public.trunk is not None
        return isinstance(run, Branch) or of_public
