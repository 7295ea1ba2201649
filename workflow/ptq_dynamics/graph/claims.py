"""The job that judges claims over what the chosen figures measure."""

from collections import ChainMap
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import (
    CLAIMS,
    DISTANCE,
    Claim,
    ClaimsSettings,
    Inequality,
    Term,
)
from ptq_dynamics.config import Figure, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.layouts.landscapes import Landscapes
from ptq_dynamics.graph.figures import EVALUATED
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure import names
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.train.settings import TRAINING

STEM = CLAIMS.removesuffix(".json")
OF_PROBES = [set(metrics) for metrics in names.PROBES.values()]
# Metrics of runs, which no quantizer changes.
OF_RUNS = {*TRAINING}.union(*OF_PROBES)
# Metrics that the same raw results hold.
ALIKE = (EVALUATED - {*names.LAYER_METRICS}, {*names.TASK_METRICS}, *OF_PROBES)


class Claims(Planner):
    """Claims, each over the trajectories, quantizers and metrics of the figure it is about, at the
    seeds and calibration sets of that; what a scale or a choice of figures leaves out is not
    measured."""

    @cache
    def judge(self) -> Job:
        """The verdicts on all claims, from all that the figures they are about are drawn from;
        raises `Problem` where a claim names what its figure has not."""
        drawn = self.plan.figures
        claims = {name: self._claim(name, each) for name, each in self.config.claims.items()}
        every = chain.from_iterable(each.inequalities for each in claims.values())
        measured = [one for one in every if one.unmeasured is None]
        about = dict.fromkeys(name for one in measured for name in _shown(one))
        figures = [self.config.figures[name] for name in about]
        series = (drawn.measured(each)[0] for each in figures)
        settings = ClaimsSettings(
            claims=claims,
            series=tuple(dict.fromkeys(chain.from_iterable(series))),
            runs=tuple(dict.fromkeys(chain.from_iterable(map(drawn.runs, figures)))),
            scale=self.scale.description,
        )
        inputs = dict(chain.from_iterable(drawn.figure(name).inputs.items() for name in about))
        folder = self.site.results
        return self.site.add(
            Job("claims.judge", STEM, folder, inputs, settings, STEM, files=(CLAIMS,))
        )

    def _claim(self, name: str, claim: Claim) -> Claim:
        found, small, written = list[Inequality](), dict[str, None](), self.plan.written
        place = f"config/claims.yaml: {name}"
        require(f"{place}.figure", "figure", [claim.figure], written)
        for number, inequality in enumerate(claim.inequalities):
            where = f"{place}.inequalities.{number}"
            shown = inequality.model_copy(update={"figure": inequality.figure or claim.figure})
            require(f"{where}: figure or also", "figure", _shown(shown), written)
            for one in shown.single():
                _check(where, one, [written[each] for each in _shown(one)])
                asked, miniatures = self._asked(one)
                found.append(asked)
                small |= dict.fromkeys(miniatures)
        update = {"inequalities": tuple(found), "miniatures": tuple(small)}
        return claim.model_copy(update=update)

    def _asked(self, one: Inequality) -> tuple[Inequality, list[str]]:
        """An inequality as the job reads it, and the public models whose miniatures it reads."""
        scale, why, figures = self.scale.description, one.unmeasured, list[Figure]()
        for name in _shown(one):
            if name not in self.config.figures:
                why = why or f"figure {name} is left out at {scale}"
            elif name not in self.plan.figures.chosen:
                why = why or f"figure {name} was not chosen"
            else:
                figures.append(self.config.figures[name])
        if why is not None:
            return one.model_copy(update={"unmeasured": why}), []
        update: dict[str, Any] = {
            key: self._read(side, one, figures) if isinstance(side, Term) else side
            for key, side in (("left", one.left), ("right", one.right))
        }
        one = one.model_copy(update=update)
        read = [name for term in one.terms for name in _names(term)]
        there = {name for figure in figures for name in figure.trajectories}
        gone = [name for name in read if name not in there]
        small = [*self._miniatures(figures, read)]
        if gone or (small and one.unmeasured_in_small is not None):
            why = f"{gone[0]} is left out at {scale}" if gone else one.unmeasured_in_small
            return one.model_copy(update={"unmeasured": why}), []
        own = {name for name in (one.quantizer, *(term.quantizer for term in one.terms)) if name}
        shown = [self.plan.figures.shown(figures[0], each) for each in own - {FULL_PRECISION}]
        calibrated = any(each.calibrated for each in shown)
        update = {"seeds": self._seeds(one, figures), "calibrated": calibrated}
        return one.model_copy(update=update), small

    def _read(self, term: Term, one: Inequality, figures: Sequence[Figure]) -> Term:
        curves = ChainMap(*(figure.curves for figure in figures))
        metric, quantizer = term.metric or one.metric, term.quantizer or one.quantizer
        draws = tuple[str, ...]()
        if metric == DISTANCE and quantizer is not None:
            # Landscapes are of the first calibration set, under the name that their figure gives.
            draws = (quantizer,)
        elif quantizer not in (None, FULL_PRECISION) and metric not in OF_RUNS:
            # Of two figures, the draws that both have.
            draws = min((self.plan.figures.draws(each, quantizer) for each in figures), key=len)
        members = tuple(chain.from_iterable(curves.get(name, (name,)) for name in term.of))
        update: dict[str, Any] = {"of": members, "metric": metric, "draws": draws}
        for key in ("less", "per"):
            if (part := getattr(term, key)) is not None:
                update[key] = self._read(part, one, figures)
        return term.model_copy(update=update)

    def _miniatures(self, figures: Sequence[Figure], read: Sequence[str]) -> Iterator[str]:
        """The public models whose miniatures some trajectories of figures are, in their order."""
        for figure in reversed(figures):
            narrow = {"": tuple(name for name in figure.trajectories if name in read)}
            for run in self.plan.figures.runs(figure.model_copy(update={"curves": narrow})):
                if run.stands_for:
                    yield run.stands_for

    def _seeds(self, one: Inequality, figures: Sequence[Figure]) -> tuple[int, ...]:
        """Those that all it reads has; of several, a landscape shows the first."""
        first, *others = (
            self.plan.figures.seeds(figure, name)
            for term in one.terms
            for name in _names(term)
            for figure in figures
            if name in figure.trajectories
        )
        common = tuple(seed for seed in first if all(seed in each for each in others))
        of_weights = any(term.metric == DISTANCE for term in one.terms)
        return first[:1] if of_weights or not common else common


def measures(figure: Figure, metric: str) -> bool:
    """Whether the results that a figure is drawn from hold a metric."""
    if metric == DISTANCE:
        return isinstance(figure, Landscapes)
    alike = next((group for group in ALIKE if metric in group), {metric})
    return not alike.isdisjoint(figure.metrics)


def _shown(one: Inequality) -> list[str]:
    """The figures that it reads."""
    return [name for name in (one.figure, one.also) if name is not None]


def _names(term: Term) -> tuple[str, ...]:
    """The trajectories that a term reads, or reads where."""
    return (*term.of, *term.at.loss_of, *term.at.tokens_of)


def _check(place: str, one: Inequality, figures: Sequence[Figure]) -> None:
    """Raise `Problem` when an inequality reads what its figures do not show."""
    called = f"figure {' and '.join(_shown(one))}"
    trajectories = [name for figure in figures for name in figure.trajectories]
    labels = [label for figure in figures for label in figure.curves]
    quantizers = [name for figure in figures for name in figure.quantizers] + [FULL_PRECISION]
    require(f"{place}.quantizers", f"quantizer of {called}", one.quantizers, quantizers)
    sides = [("left", one.left), ("right", one.right)]
    terms = [(key, term) for key, side in sides if isinstance(side, Term) for term in side.parts]
    for key, term in terms:
        where, kind, own = (
            f"{place}.{key}",
            f"trajectory of {called}",
            filter(None, [term.quantizer]),
        )
        require(f"{where}.of", kind, term.of, [*trajectories, *labels])
        require(f"{where}.at", kind, _names(term)[len(term.of) :], trajectories)
        require(f"{where}.quantizer", f"quantizer of {called}", own, quantizers)
        for metric in filter(None, (term.metric or one.metric, term.against)):
            if not any(measures(figure, metric) for figure in figures):
                raise Problem(f"{where} reads {metric}, which {called} does not measure")
            quantized = metric in names.QUANTIZED or metric == DISTANCE
            if quantized and not (term.quantizer or one.quantizer):
                known = ", ".join(quantizers)
                raise Problem(
                    f"{where} reads {metric}, which needs a quantizer ({known}); name one"
                )
