"""The job that writes tables over what the chosen figures measure."""

from collections.abc import Iterator
from functools import cache

from ptq_dynamics.claims.settings import (
    FORMATS,
    ClaimsTable,
    Filled,
    Row,
    RunsTable,
    TablesSettings,
    TasksTable,
)
from ptq_dynamics.config import Figure, require
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import Shown, ShownRun
from ptq_dynamics.graph.claims import Claims, measures
from ptq_dynamics.graph.completing import lacking
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.site import Site
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, TASK_METRICS
from ptq_dynamics.measure.settings import Series


class Tables:
    """Tables, each over the trajectories and quantizers of its figures, as far as these were
    chosen."""

    def __init__(
        self, site: Site, drawn: Figures, claims: Claims, written: dict[str, Figure]
    ) -> None:
        self._site, self._figures, self._claims = site, drawn, claims
        self._written, self._folder = written, site.place("tables")
        self.paths = Paths.at(self._folder)
        self._names = tuple(f"{name}.{s}" for name in site.config.tables for s in FORMATS)
        self.files = [f"{self._folder}/{name}" for name in self._names]

    @cache
    def write(self) -> Job:
        """All tables; raises `Problem` where one names an unknown figure."""
        # Claims say how far calibration sets differ, too.
        inputs = {"claims": [self._claims.judge().manifest]}
        series, runs, found = dict[Series, None](), dict[ShownRun, None](), list[Filled]()
        for name, table in self._site.config.tables.items():
            rows, columns = dict[str, Row](), dict[str, Shown]()
            for query in () if isinstance(table, ClaimsTable) else self._queries(name, table):
                read, labelled = self._figures.measured(query)
                series, inputs = series | dict.fromkeys(read), inputs | labelled
                runs |= dict.fromkeys(self._figures.runs(query))
                self._add(query, {run.name for run in runs if run.trunk is not None}, rows, columns)
            only = isinstance(table, RunsTable) and table.branches
            shown = tuple(row for row in rows.values() if row.starts or not only)
            columns_of = tuple(columns.values())
            found.append(Filled(name=name, table=table, rows=shown, columns=columns_of))
        settings = TablesSettings(
            tables=tuple(found),
            series=tuple(series),
            runs=tuple(runs),
            scale=self._site.config.scale.description,
        )
        return self._site.add(
            Job("claims.tables", "tables", self._folder, inputs, settings, files=self._names)
        )

    def _queries(self, name: str, table: RunsTable | TasksTable) -> Iterator[Figure]:
        """What a table reads of its figures that were chosen, and what it measures for itself."""
        require(f"config/tables.yaml: {name}.figures", "figure", table.figures, self._written)
        wanted = (LOSS, QUANTIZATION_ERROR) if table.kind == "runs" else TASK_METRICS
        for each in table.figures:
            figure = self._site.config.figures.get(each)
            if figure is None or each not in self._figures.chosen:
                continue
            if metrics := tuple(metric for metric in wanted if measures(figure, metric)):
                yield figure.model_copy(update={"metrics": metrics})
        yield from lacking(self._site, table)

    def _add(
        self, query: Figure, starts: set[str], rows: dict[str, Row], columns: dict[str, Shown]
    ) -> None:
        """Add the rows and columns of a query, where it has more seeds or draws of one than those
        before."""
        for label, members in query.curves.items():
            for name in members:
                seeds = self._figures.seeds(query, name)
                row = rows.get(name)
                if row is None or len(row.seeds) < len(seeds):
                    draws = row.draws if row else {}
                    row = Row(
                        curve=label, name=name, seeds=seeds, starts=name in starts, draws=draws
                    )
                more = {each: self._figures.draws(query, each) for each in query.quantizers}
                more = {q: d for q, d in more.items() if len(d) > len(row.draws.get(q, ()))}
                rows[name] = row.model_copy(update={"draws": {**row.draws, **more}})
        for quantizer in query.quantizers:
            columns.setdefault(quantizer, self._figures.shown(query, quantizer))
