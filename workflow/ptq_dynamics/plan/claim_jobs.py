"""The jobs that judge claims, and write tables, of the measurements of the chosen figures."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import get_args

from ptq_dynamics.base import needs
from ptq_dynamics.claims.beyond import EVERY
from ptq_dynamics.claims.definitions import (
    Claim,
    ClaimAtScale,
    ClaimsSettings,
    Drawn,
    Filled,
    TableQuery,
    TableRow,
    TablesSettings,
)
from ptq_dynamics.config.errors import require
from ptq_dynamics.engine.job import Job
from ptq_dynamics.figures.figure import Figure, FigureSettings
from ptq_dynamics.figures.labels import Shown
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, TASK_METRICS, Paired
from ptq_dynamics.measure.series import in_order
from ptq_dynamics.plan.figure_jobs import FigureJobs
from ptq_dynamics.plan.planned_runs import PlannedBranch, PlannedRun
from ptq_dynamics.plan.releases import PlannedRelease
from ptq_dynamics.plan.site import Planner, Rule, Site

JUDGE = Rule[ClaimsSettings]("judge", "<results>/claims.", "claims.judge")
TABULATE = Rule[TablesSettings]("tabulate", "<results>/tables/", "claims.tables")
RULES = (JUDGE, TABULATE)


class ClaimJobs(Planner):
    """Claims and tables on their chosen figures; a claim has the seeds of its first one."""

    def __init__(self, site: Site, figures: FigureJobs) -> None:
        super().__init__(site)
        self.figures, self.measurements = figures, figures.measurements

    @cache
    def judge(self) -> Job:
        """Return the job that judges all claims; `Problem` if a claim names an unknown figure."""
        claims, jobs = dict[str, ClaimAtScale](), dict[str, Job]()
        for claim in EVERY:
            place = f"workflow/ptq_dynamics/claims: {claim.name}"
            require(f"{place}.figures", "figure", claim.figures, self.site.configured)
            groups = {self.site.configured[name].group for name in claim.figures}
            if groups != {None} and not {*claim.figures} <= {*self.config.chosen}:
                continue
            claims[claim.name] = self._at_scale(claim)
            if claims[claim.name].unmeasured is None:
                jobs |= {name: self.figures.figure(name) for name in claim.figures}
        drawn = dict[str, Drawn]()
        for name, job in jobs.items():
            figure: FigureSettings = job.settings
            draws = {quantizer.name: quantizer.draws for quantizer in figure.quantizers}
            runs = tuple(sorted(figure.runs, key=lambda run: run.label))
            drawn[name] = Drawn(series=in_order(figure.series), runs=runs, draws=draws)
        settings = ClaimsSettings(
            claims=claims,
            figures=drawn,
            scale=self.scale.description,
            numbers=self._numbers({run.name for data in drawn.values() for run in data.runs}),
        )
        inputs = {label: paths for job in jobs.values() for label, paths in job.inputs.items()}
        return self.make(JUDGE, "claims", inputs, settings)

    def _numbers(self, names: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the paper's peak rates and weight decays of runs, and their tokens here."""
        rates, decays = dict[str, float](), dict[str, float]()
        tokens, per_parameter = dict[str, float](), dict[str, float]()
        for name in sorted(names):
            match self.planned[name].followed:
                case PlannedRun(trunk=trunk) as run:
                    tokens[name] = run.tokens_at(run.last)
                    per_parameter[name] = tokens[name] / run.parameters
                    rates[name] = trunk.entry.peak_lr
                    decays[name] = trunk.published_optimizer.weight_decay
                case PlannedRelease(entry=entry) if entry.schedule is not None:
                    rates[name] = entry.schedule.peak
        return {
            "peak_lr": rates,
            "weight_decay": decays,
            "tokens": tokens,
            "tokens_per_parameter": per_parameter,
        }

    def _at_scale(self, claim: Claim) -> ClaimAtScale:
        """Return a claim with its seeds and miniatures, or why it is not measured."""
        left_out = f"is left out at {self.scale.description}"
        for known, why in ((self.config.figures, left_out), (self.config.chosen, "was not chosen")):
            if gone := [name for name in claim.figures if name not in known]:
                return ClaimAtScale(says=claim.says, unmeasured=f"figure {gone[0]} {why}")
        figure = self.config.figures[claim.figures[0]]
        shown = [run for name, run in self.planned.items() if name in figure.trajectories]
        small = dict.fromkeys(trajectory.followed.origin.stands_for for trajectory in shown)
        seeds = [trajectory.seeds_shown(figure.headline) for trajectory in shown]
        common = tuple(seed for seed in seeds[0] if all(seed in others for others in seeds))
        miniatures = tuple(filter(None, small))
        return ClaimAtScale(says=claim.says, seeds=common or seeds[0][:1], miniatures=miniatures)

    @cache
    def tabulate(self) -> Job:
        """Return the job that writes all tables; `Problem` if one names an unknown figure."""
        inputs = {needs.CLAIMS: [self.judge().manifest]}
        queries, tables = list[Figure](), list[Filled]()
        for name, table in self.config.tables.items():
            lines, columns = dict[str, TableRow](), dict[str, Shown]()
            for query in self._queries(name, table):
                queries.append(query)
                for label, member in self.measurements.members(table, query):
                    lines[member] = self._row(query, label, member, lines.get(member))
                for quantizer in query.quantizers:
                    columns.setdefault(quantizer, self.figures.shown(query, quantizer))
            shown = tuple(columns.values())
            tables.append(Filled(name=name, table=table, rows=(*lines.values(),), columns=shown))
        series, measured = self.measurements.series_of(query.query for query in queries)
        runs = {run.label: run for run in chain(*map(self.figures.runs, queries))}
        settings = TablesSettings(
            tables=tuple(tables),
            series=in_order(series),
            runs=tuple(runs[label] for label in sorted(runs)),
        )
        return self.make(TABULATE, "tables", inputs | measured, settings)

    def _queries(self, name: str, table: TableQuery) -> Iterator[Figure]:
        """Yield what a table reads of its chosen figures, and what it measures in addition."""
        require(
            f"config/tables.yaml: {name}.figures", "figure", table.figures, self.site.configured
        )
        of_runs = table.kind == "runs"
        metrics = (LOSS, QUANTIZATION_ERROR) if of_runs else TASK_METRICS
        held = {*get_args(Paired)} if of_runs else {*TASK_METRICS}
        for chosen in table.figures:
            if chosen in self.config.chosen:
                figure = self.config.figures[chosen]
                if not held.isdisjoint(figure.metrics):
                    yield figure.model_copy(update={"metrics": metrics})
        yield from self.measurements.added(table)

    def _row(self, query: Figure, label: str, name: str, before: TableRow | None) -> TableRow:
        """Return a row of a query, merged with an earlier row of the same trajectory."""
        trajectory = self.planned[name]
        seeds = trajectory.seeds_shown(query.headline)
        draws = dict(before.draws) if before else {}
        for quantizer in query.quantizers:
            further = self.draws(query.query, quantizer)
            draws[quantizer] = max(draws.get(quantizer, ()), further, key=len)
        if before is not None and len(before.seeds) >= len(seeds):
            return before.model_copy(update={"draws": draws})
        if isinstance(trajectory, PlannedBranch):
            label = f"{label}, from {float(trajectory.entry.at):.0%} of the budget"
        return TableRow(curve=label, name=name, seeds=seeds, draws=draws)
