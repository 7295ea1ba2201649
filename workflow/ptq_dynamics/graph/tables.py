"""The job that writes tables over what the chosen figures measure."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from ptq_dynamics.claims import settings as claims
from ptq_dynamics.claims.settings import ClaimsTable, Filled, Row, RunsTable, TableKind
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
        figures, config = self.plan.figures, self.config
        for name, table in config.tables.items():
            rows, columns = dict[str, Row](), dict[str, Shown]()
            for query in () if isinstance(table, ClaimsTable) else self._queries(name, table):
                read, labelled = figures.measured(query)
                series, inputs = series | dict.fromkeys(read), inputs | labelled
                runs |= dict.fromkeys(figures.runs(query))
                self._add(query, {run.name for run in runs if run.trunk is not None}, rows, columns)
            only = isinstance(table, RunsTable) and table.branches
            shown = tuple(row for row in rows.values() if row.starts or not only)
            columns_of = tuple(columns.values())
            found.append(Filled(name=name, table=table, rows=shown, columns=columns_of))
        settings = claims.TablesSettings(
            tables=tuple(found),
            series=tuple(series),
            runs=tuple(runs),
            scale=self.scale.description,
        )
        files = tuple(f"{name}.{suffix}" for name in config.tables for suffix in claims.FORMATS)
        folder = self.site.places("tabulate")
        return self.site.add(Job("claims.tables", "tables", folder, inputs, settings, files=files))

    def _queries(self, name: str, table: Any) -> Iterator[Figure]:
        """What a table reads of its figures that were chosen, and what it measures for itself."""
        place = f"config/tables.yaml: {name}.figures"
        require(place, "figure", table.figures, self.plan.written)
        wanted = (LOSS, QUANTIZATION_ERROR) if table.kind == "runs" else TASK_METRICS
        for each in table.figures:
            figure = self.config.figures.get(each)
            if figure is None or each not in self.plan.figures.chosen:
                continue
            if metrics := tuple(metric for metric in wanted if measures(figure, metric)):
                yield figure.model_copy(update={"metrics": metrics})
        yield from self.lacking(table)

    def lacking(self, table: TableKind) -> Iterator[Figure]:
        """Queries of what a table asks of its rows under quantizers that no figure of its has, with
        the seeds of these and one calibration set; none where not all figures were chosen."""
        if not isinstance(table, RunsTable) or self.config.choice.figures != "all":
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

    def _add(
        self, query: Figure, starts: set[str], rows: dict[str, Row], columns: dict[str, Shown]
    ) -> None:
        """Add the rows and columns of a query, where it has more seeds or draws of one than those
        before."""
        figures = self.plan.figures
        for label, members in query.curves.items():
            for name in members:
                seeds = figures.seeds(query, name)
                row = rows.get(name)
                if row is None or len(row.seeds) < len(seeds):
                    draws = row.draws if row else {}
                    row = Row(
                        curve=label, name=name, seeds=seeds, starts=name in starts, draws=draws
                    )
                more = {each: figures.draws(query, each) for each in query.quantizers}
                more = {q: d for q, d in more.items() if len(d) > len(row.draws.get(q, ()))}
                rows[name] = row.model_copy(update={"draws": {**row.draws, **more}})
        for quantizer in query.quantizers:
            columns.setdefault(quantizer, figures.shown(query, quantizer))
