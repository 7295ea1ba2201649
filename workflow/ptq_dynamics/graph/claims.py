"""The job that judges claims over what the chosen figures measure."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import CLAIMS, DISTANCE, Claim, ClaimsSettings, Inequality, Term
from ptq_dynamics.config import Figure, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.layouts.landscapes import Landscapes
from ptq_dynamics.graph.figures import EVALUATED
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.names import LAYER_METRICS, PROBES, QUANTIZED, TASK_METRICS

FILE = "config/claims.yaml"
# Metrics that the same raw results hold.
ALIKE = (EVALUATED - {*LAYER_METRICS}, {*TASK_METRICS}, *map(set, PROBES.values()))


class Claims(Planner):
    """Claims, each over the trajectories, quantizers and metrics of the figure it is about, at the
    seeds and calibration sets of that; what a scale or a choice of figures leaves out is not
    measured."""

    @cache
    def judge(self) -> Job:
        """The verdicts on all claims, from all that the figures they are about are drawn from;
        raises `Problem` where a claim names what its figure has not."""
        config = self.config
        claims = {name: self._claim(name, each) for name, each in config.claims.items()}
        every = chain.from_iterable(each.inequalities for each in claims.values())
        measured = [one for one in every if one.unmeasured is None]
        about = dict.fromkeys(name for one in measured for name in _shown(one))
        figures = [config.figures[name] for name in about]
        series = (self.plan.figures.measured(each)[0] for each in figures)
        settings = ClaimsSettings(
            claims=tuple(claims.items()),
            series=tuple(dict.fromkeys(chain.from_iterable(series))),
            runs=tuple(dict.fromkeys(chain.from_iterable(map(self.plan.figures.runs, figures)))),
            scale=config.scale.description,
        )
        inputs = dict(ChainMap(*(self.plan.figures.figure(name).inputs for name in about)))
        return self.make("judge", "claims.judge", "claims", inputs, settings, (CLAIMS,))

    def _claim(self, name: str, claim: Claim) -> Claim:
        found, small = list[Inequality](), dict[str, None]()
        require(f"{FILE}: {name}.figure", "figure", [claim.figure], self.plan.written)
        for number, inequality in enumerate(claim.inequalities):
            place = f"{FILE}: {name}.inequalities.{number}"
            shown = inequality.model_copy(update={"figure": inequality.figure or claim.figure})
            require(f"{place}.figure", "figure", _shown(shown)[:1], self.plan.written)
            require(f"{place}.also", "figure", _shown(shown)[1:], self.plan.written)
            for one in shown.single():
                _check(place, one, [self.plan.written[each] for each in _shown(one)])
                asked, miniatures = self._asked(one)
                found.append(asked)
                small |= dict.fromkeys(miniatures)
        update = {"inequalities": tuple(found), "miniatures": tuple(small)}
        return claim.model_copy(update=update)

    def _asked(self, one: Inequality) -> tuple[Inequality, list[str]]:
        """An inequality as the job reads it, and the public models whose miniatures it reads."""
        config, scale, why = self.config, self.scale.description, None
        for name in reversed(_shown(one)):
            if name not in config.figures:
                why = f"figure {name} is left out at {scale}"
            elif name not in self.plan.figures.chosen:
                why = f"figure {name} was not chosen"
        if why is not None:
            return one.model_copy(update={"unmeasured": why}), []
        figures = [config.figures[name] for name in _shown(one)]
        curves = ChainMap(*(figure.curves for figure in figures))
        sides = {"left": _read(one.left, curves)}
        if isinstance(one.right, Term):
            sides["right"] = _read(one.right, curves)
        one = one.model_copy(update=sides)
        names = [name for term in one.terms for name in _names(term)]
        there = {name for figure in figures for name in figure.trajectories}
        gone = [name for name in names if name not in there]
        small = [*self._miniatures(figures, names)]
        if gone or (small and one.unmeasured_in_small is not None):
            why = f"{gone[0]} is left out at {scale}" if gone else one.unmeasured_in_small
            return one.model_copy(update={"unmeasured": why}), []
        update: dict[str, object] = {"seeds": self._seeds(one, figures)}
        if one.quantizer is not None:
            update["calibrated"] = self.plan.figures.shown(figures[0], one.quantizer).calibrated
            # Landscapes are of the first calibration set, under the name that their figure gives;
            # of two figures, the draws that both have.
            draws = (self.plan.measuring.draws(each, one.quantizer) for each in figures)
            of_weights = one.metric == DISTANCE
            update["draws"] = (one.quantizer,) if of_weights else min(draws, key=len)
        return one.model_copy(update=update), small

    def _miniatures(self, figures: Sequence[Figure], names: Iterable[str]) -> Iterator[str]:
        """The public models whose miniatures some trajectories of figures are, in their order."""
        for figure in reversed(figures):
            narrow = {"": tuple(name for name in figure.trajectories if name in names)}
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
        return first[:1] if one.metric == DISTANCE or not common else common


def measures(figure: Figure, metric: str) -> bool:
    """Whether the results that a figure is drawn from hold a metric."""
    if metric == DISTANCE:
        return isinstance(figure, Landscapes)
    alike = next((group for group in ALIKE if metric in group), {metric})
    return not alike.isdisjoint(figure.metrics)


def _read(term: Term, curves: Mapping[str, tuple[str, ...]]) -> Term:
    """A term with trajectories in place of the labels of curves."""
    names = chain.from_iterable(curves.get(name, (name,)) for name in term.of)
    parts = {"less": term.less, "per": term.per}
    read = {key: part and _read(part, curves) for key, part in parts.items()}
    return term.model_copy(update={"of": tuple(names), **read})


def _shown(one: Inequality) -> list[str]:
    """The figures that it reads."""
    return [name for name in (one.figure, one.also) if name is not None]


def _names(term: Term) -> tuple[str, ...]:
    """The trajectories that a term reads, or reads where."""
    return (*term.of, *term.at.loss_of, *term.at.tokens_of)


def _check(place: str, one: Inequality, figures: Sequence[Figure]) -> None:
    """Raise `Problem` when an inequality reads what its figures do not show."""
    called = " and ".join(_shown(one))
    names = [name for figure in figures for name in figure.trajectories]
    labels = [label for figure in figures for label in figure.curves]
    known = [name for figure in figures for name in figure.quantizers]
    require(f"{place}.quantizers", f"quantizer of figure {called}", one.quantizers, known)
    kind = f"trajectory of figure {called}"
    for key, side in (("left", one.left), ("right", one.right)):
        for term in side.parts if isinstance(side, Term) else ():
            require(f"{place}.{key}.of", kind, term.of, [*names, *labels])
            require(f"{place}.{key}.at", kind, _names(term)[len(term.of) :], names)
    for metric in filter(None, (one.metric, *(term.against for term in one.terms))):
        if not any(measures(figure, metric) for figure in figures):
            raise Problem(
                f"{place} reads {metric}, which figure {called} does not measure; name another "
                "metric or figure"
            )
        if (metric in QUANTIZED or metric == DISTANCE) and one.quantizer is None:
            raise Problem(
                f"{place} reads {metric}, which needs a quantizer; name one of figure {called} "
                f"({', '.join(known) or 'which has none'}) in quantizers"
            )
