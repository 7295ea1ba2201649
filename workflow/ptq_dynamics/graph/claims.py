"""The jobs that judge claims and write tables over what the chosen figures measure."""

from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims import settings as said
from ptq_dynamics.claims.settings import DISTANCE, Claim, Inequality, Row, TableQuery, Term
from ptq_dynamics.config import Figure, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import Shown
from ptq_dynamics.graph.figures import measures
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, QUANTIZED, TASK_METRICS

FILE = "config/claims.yaml"


class Claims(Planner):
    """Claims, each over the trajectories, quantizers and metrics of the figure it is about, at the
    seeds and calibration sets of that; what a scale or a choice of figures leaves out is not
    measured."""

    @cache
    def judge(self) -> Job:
        """The verdicts on all claims, from all that the figures they are about are drawn from;
        raises `Problem` where a claim names what its figure has not."""
        claims = [(name, self._single(name, claim)) for name, claim in self.config.claims.items()]
        every = chain.from_iterable(claim.inequalities for _, claim in claims)
        figures = [name for one in every if one.unmeasured is None for name in one.figures]
        drawn = [self.plan.figures.figure(name) for name in dict.fromkeys(figures)]
        settings = said.ClaimsSettings(
            claims=tuple(claims),
            series=tuple(dict.fromkeys(each for job in drawn for each in job.settings.series)),
            runs=tuple(dict.fromkeys(each for job in drawn for each in job.settings.runs)),
            scale=self.config.scale.description,
        )
        inputs = {label: paths for job in drawn for label, paths in job.inputs.items()}
        return self.make("judge", "claims.judge", "claims", inputs, settings, (said.CLAIMS,))

    def _single(self, name: str, claim: Claim) -> Claim:
        """A claim with its single inequalities as the job reads them."""
        require(f"{FILE}: {name}.figure", "figure", [claim.figure], self.plan.written)
        found = list[Inequality]()
        for number, written in enumerate(claim.inequalities):
            place = f"{FILE}: {name}.inequalities.{number}"
            require(f"{place}.figures", "figure", written.figures, self.plan.written)
            shown = {"figures": written.figures or (claim.figure,)}
            for one in written.model_copy(update=shown).single():
                _check(place, one, [self.plan.written[each] for each in one.figures])
                found.append(one.model_copy(update=self._planned(one)))
        return claim.model_copy(update={"inequalities": tuple(found)})

    def _planned(self, one: Inequality) -> dict[str, Any]:
        """What the job has to know of an inequality, or why it is not measured."""
        config, scale, planner = self.config, self.scale.description, self.plan.figures
        for name in one.figures:
            if name not in config.figures:
                return {"unmeasured": f"figure {name} is left out at {scale}"}
            if name not in planner.chosen:
                return {"unmeasured": f"figure {name} was not chosen"}
        figures = [config.figures[name] for name in one.figures]
        curves = ChainMap(*(figure.curves for figure in figures))
        update = {key: _read(getattr(one, key), curves) for key in ("left", "right")}
        names = [name for term in one.model_copy(update=update).terms for name in term.names]
        if gone := [n for n in names if all(n not in each.trajectories for each in figures)]:
            return {"unmeasured": f"{gone[0]} is left out at {scale}"}
        runs = map(self.timeline.run, self.plan.trajectories.runs(names))
        small = [run.stands_for(self.timeline) for run in runs if run is not None]
        update["miniatures"] = tuple(dict.fromkeys(filter(None, small)))
        if update["miniatures"] and one.unmeasured_in_small is not None:
            return {"unmeasured": one.unmeasured_in_small}
        seeds = [
            self.timeline.seeds_shown(name, figure.headline)
            for name in names
            for figure in figures
            if name in figure.trajectories
        ]
        common = tuple(seed for seed in seeds[0] if all(seed in each for each in seeds))
        # Of several, a landscape shows the first seed and the first calibration set, under the name
        # that its figure gives; of two figures, the draws that both have.
        of_weights = one.metric == DISTANCE
        update["seeds"] = seeds[0][:1] if of_weights or not common else common
        if one.quantizer is not None:
            draws = (self.plan.measuring.draws(each, one.quantizer) for each in figures)
            update["draws"] = (one.quantizer,) if of_weights else min(draws, key=len)
            update["calibrated"] = planner.shown(figures[0], one.quantizer).calibrated
        return update


class Tables(Planner):
    """Tables, each over the trajectories and quantizers of its figures, as far as these were
    chosen."""

    @cache
    def write(self) -> Job:
        """All tables; raises `Problem` where one names an unknown figure."""
        # Claims say how far calibration sets differ, too.
        inputs = {"claims": [self.plan.claims.judge().manifest]}
        every, found = list[Figure](), list[said.Filled]()
        for name, table in self.config.tables.items():
            rows, columns = dict[str, Row](), dict[str, Shown]()
            for query in self._queries(name, table):
                every.append(query)
                for label, each in self._rows(table, query):
                    rows[each] = self._row(query, label, each, rows.get(each))
                for each in query.quantizers:
                    columns.setdefault(each, self.plan.figures.shown(query, each))
            filled: dict[str, Any] = {"rows": tuple(rows.values()), "columns": (*columns.values(),)}
            found.append(said.Filled(name=name, table=table, **filled))
        series, measured = self.plan.figures.measured(every)
        runs = tuple(dict.fromkeys(chain(*map(self.plan.figures.runs, every))))
        settings = said.TablesSettings(tables=tuple(found), series=series, runs=runs)
        files = tuple(f"{name}.{form}" for name in self.config.tables for form in said.FORMATS)
        inputs |= measured
        return self.make("tabulate", "claims.tables", "tables", inputs, settings, files)

    def _queries(self, name: str, table: TableQuery) -> Iterator[Figure]:
        """What a table reads of its figures that were chosen, and what it measures for itself."""
        require(f"config/tables.yaml: {name}.figures", "figure", table.figures, self.plan.written)
        wanted = (LOSS, QUANTIZATION_ERROR) if table.kind == "runs" else TASK_METRICS
        for each in table.figures:
            if each in self.plan.figures.chosen:
                figure = self.config.figures[each]
                if metrics := tuple(metric for metric in wanted if measures(figure, metric)):
                    yield figure.model_copy(update={"metrics": metrics})
        yield from self.lacking(table)

    def _row(self, query: Figure, label: str, name: str, before: Row | None) -> Row:
        """A row of a query, or the one before where that has as many seeds, with the draws of
        quantizers that it has fewer of."""
        seeds = self.timeline.seeds_shown(name, query.headline)
        draws = dict(before.draws) if before else {}
        for each in query.quantizers:
            draws[each] = max(draws.get(each, ()), self.plan.measuring.draws(query, each), key=len)
        if before is not None and len(before.seeds) >= len(seeds):
            return before.model_copy(update={"draws": draws})
        return Row(curve=label, name=name, seeds=seeds, draws=draws)

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
                for label, name in self._rows(table, figure):
                    if (name, quantizer) not in there:
                        curves[label] = (*curves.get(label, ()), name)
                        there.add((name, quantizer))
                if curves:
                    asked = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
                    yield figure.model_copy(update={**asked, "metrics": (LOSS, QUANTIZATION_ERROR)})

    def _rows(self, table: TableQuery, figure: Figure) -> Iterator[tuple[str, str]]:
        """The trajectories that a table shows of a figure, each after its curve's label."""
        for label, members in figure.curves.items():
            for name in members:
                trunk = getattr(self.timeline.trajectories[name], "trunk", None)
                if trunk is not None or not table.branches:
                    yield label, name


def _read(term: Any, curves: Mapping[str, tuple[str, ...]]) -> Any:
    """A term with trajectories in place of the labels of curves; all else as it is."""
    if not isinstance(term, Term):
        return term
    update = {
        key: tuple(chain.from_iterable(curves.get(name, (name,)) for name in getattr(term, key)))
        for key in ("of", "tokens_of", "loss_of")
    }
    update |= {key: _read(getattr(term, key), curves) for key in ("less", "per")}
    return term.model_copy(update=update)


def _check(place: str, one: Inequality, figures: list[Figure]) -> None:
    """Raise `Problem` when an inequality reads what its figures do not show."""
    called = f"figure {' and '.join(one.figures)}"
    shown = [name for each in figures for name in (*each.trajectories, *each.curves)]
    known = [name for each in figures for name in each.quantizers]
    require(f"{place}.quantizers", f"quantizer of {called}", one.quantizers, known)
    for term in one.terms:
        require(place, f"trajectory of {called}", term.names, shown)
    for metric in filter(None, (one.metric, *(term.against for term in one.terms))):
        if not any(measures(each, metric) for each in figures):
            raise Problem(
                f"{place} reads {metric}, which {called} does not measure; name another metric or "
                "figure"
            )
        if metric in {*QUANTIZED, DISTANCE} and one.quantizer is None:
            raise Problem(
                f"{place} reads {metric}, which needs a quantizer; name one of {called} "
                f"({', '.join(known) or 'which has none'}) in quantizers"
            )
