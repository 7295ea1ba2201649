"""The job that writes tables over what the chosen figures measure."""

from collections.abc import Iterator
from functools import cache

from ptq_dynamics.claims.formats import FORMATS
from ptq_dynamics.claims.settings import Branched, Column, Row, TableSettings, TablesSettings
from ptq_dynamics.config import Figure, require, tables
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import Shown
from ptq_dynamics.graph.claims import Claims, Needed
from ptq_dynamics.graph.completing import lacking
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.queries import measures
from ptq_dynamics.graph.site import Site
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, TASK_METRICS

FILE = "config/tables.yaml"
# What each kind of table reads, where a figure measures it.
READ = {"runs": (LOSS, QUANTIZATION_ERROR), "tasks": TASK_METRICS}


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
        needed, found = Needed(), list[TableSettings]()
        # They say how far calibration sets differ, too.
        needed.inputs["claims"] = [self._claims.judge().manifest]
        for name, table in self._site.config.tables.items():
            if isinstance(table, tables.ClaimsTable):
                found.append(TableSettings(name, table.title, "claims"))
            else:
                found.append(self._table(name, table, needed))
        settings = TablesSettings(
            tuple(found),
            tuple(needed.series),
            tuple(needed.branches.values()),
            self._site.config.scale.description,
        )
        return self._site.add(
            Job("claims.tables", "tables", self._folder, needed.inputs, settings, files=self._names)
        )

    def _table(
        self, name: str, table: tables.RunsTable | tables.TasksTable, needed: Needed
    ) -> TableSettings:
        require(f"{FILE}: {name}.figures", "figure", table.figures, self._written)
        rows = dict[str, Row]()
        columns = dict[str, tuple[Shown, dict[str, tuple[str, ...]]]]()
        chosen = [self._query(figure, table) for figure in self._chosen(table)]
        for query in (*chosen, *lacking(self._site, table)):
            needed.add(*self._figures.measured(query))
            for run in self._figures.runs(query):
                if run.trunk is not None and run.at is not None:
                    needed.branches[run.name] = Branched(run.name, run.trunk, run.at)
            for label, members in query.curves.items():
                for each in members:
                    starts = each in needed.branches
                    seeds = self._figures.seeds(query, each)
                    if each not in rows or len(rows[each].seeds) < len(seeds):
                        rows[each] = Row(label, each, seeds, starts)
                    for quantizer in query.quantizers:
                        draws = self._figures.draws(query, quantizer)
                        shown = self._figures.shown(query, quantizer)
                        _, known = columns.setdefault(quantizer, (shown, {}))
                        if len(draws) > len(known.get(each, ())):
                            known[each] = draws
        listed = [row for row in rows.values() if row.starts or not _branches(table)]
        level = tuple(row.name for row in listed) if _equal(table) else ()
        return TableSettings(
            name,
            table.title,
            table.kind,
            tuple(listed),
            tuple(Column(shown, tuple(draws.items())) for shown, draws in columns.values()),
            level,
        )

    def _chosen(self, table: tables.RunsTable | tables.TasksTable) -> Iterator[Figure]:
        """Its figures that were chosen and measure what it reads."""
        for name in table.figures:
            figure = self._site.config.figures.get(name)
            there = figure is not None and name in self._figures.chosen
            if there and figure is not None and self._read(figure, table):
                yield figure

    def _read(self, figure: Figure, table: tables.RunsTable | tables.TasksTable) -> tuple[str, ...]:
        return tuple(metric for metric in READ[table.kind] if measures(figure, metric))

    def _query(self, figure: Figure, table: tables.RunsTable | tables.TasksTable) -> Figure:
        return figure.model_copy(update={"metrics": self._read(figure, table)})


def _branches(table: tables.RunsTable | tables.TasksTable) -> bool:
    return isinstance(table, tables.RunsTable) and table.branches


def _equal(table: tables.RunsTable | tables.TasksTable) -> bool:
    return isinstance(table, tables.RunsTable) and table.equal_loss
