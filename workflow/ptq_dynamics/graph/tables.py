"""The job that writes tables over what the chosen figures measure."""

from collections.abc import Iterator
from functools import cache

from ptq_dynamics.claims.settings import (
    FORMATS,
    ClaimsTable,
    Filled,
    Row,
    RunsTable,
    TableKind,
    TablesSettings,
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
        self._site, self._figures, self._claims, self._written = site, drawn, claims, written
        self.paths = Paths.at(site.place("tables"))

    @cache
    def write(self) -> Job:
        """All tables; raises `Problem` where one names an unknown figure."""
        # Claims say how far calibration sets differ, too.
        inputs = {"claims": [self._claims.judge().manifest]}
        series, runs, found = dict[Series, None](), dict[ShownRun, None](), list[Filled]()
        for name, table in self._site.config.tables.items():
            rows, columns = dict[str, Row](), dict[str, Shown]()
            for query in self._queries(name, table):
                read, labelled = self._figures.measured(query)
                series, inputs = series | dict.fromkeys(read), inputs | labelled
                runs |= dict.fromkeys(self._figures.runs(query))
                starts = {run.name for run in runs if run.trunk is not None}
                for label, members in query.curves.items():
                    for each in members:
                        rows[each] = self._row(query, label, each, starts, rows.get(each))
                for each in query.quantizers:
                    columns.setdefault(each, self._figures.shown(query, each))
            only = isinstance(table, RunsTable) and table.branches
            kept = tuple(row for row in rows.values() if row.starts or not only)
            found.append(Filled(name=name, table=table, rows=kept, columns=tuple(columns.values())))
        settings = TablesSettings(tables=tuple(found), series=tuple(series), runs=tuple(runs))
        files = tuple(f"{name}.{form}" for name in self._site.config.tables for form in FORMATS)
        folder = self._site.place("tables")
        return self._site.add(Job("claims.tables", "tables", folder, inputs, settings, files=files))

    def _queries(self, name: str, table: TableKind) -> Iterator[Figure]:
        """What a table reads of its figures that were chosen, and what it measures for itself."""
        if isinstance(table, ClaimsTable):
            return
        require(f"config/tables.yaml: {name}.figures", "figure", table.figures, self._written)
        wanted = (LOSS, QUANTIZATION_ERROR) if table.kind == "runs" else TASK_METRICS
        for each in table.figures:
            figure = self._site.config.figures.get(each)
            if figure is None or each not in self._figures.chosen:
                continue
            if metrics := tuple(metric for metric in wanted if measures(figure, metric)):
                yield figure.model_copy(update={"metrics": metrics})
        yield from lacking(self._site, table)

    def _row(
        self, query: Figure, label: str, name: str, starts: set[str], before: Row | None
    ) -> Row:
        """A row of a query, or the one before where that has as many seeds, with the draws of
        quantizers that it has fewer of."""
        seeds, draws = self._figures.seeds(query, name), dict(before.draws) if before else {}
        for each in query.quantizers:
            draws[each] = max(draws.get(each, ()), self._figures.draws(query, each), key=len)
        if before is not None and len(before.seeds) >= len(seeds):
            return before.model_copy(update={"draws": draws})
        return Row(curve=label, name=name, seeds=seeds, starts=name in starts, draws=draws)
