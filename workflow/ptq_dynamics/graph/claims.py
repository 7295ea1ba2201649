"""The job that judges claims over what the chosen figures measure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import (
    CLAIMS,
    DISTANCE,
    Asked,
    Claim,
    ClaimsSettings,
    Inequality,
    NamedClaim,
    Read,
    Term,
)
from ptq_dynamics.config import Figure, Landscapes, require
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import ShownRun
from ptq_dynamics.graph.figures import EVALUATED, Figures
from ptq_dynamics.graph.site import Site
from ptq_dynamics.measure.names import (
    FULL_PRECISION,
    LAYER_METRICS,
    PROBES,
    QUANTIZED,
    TASK_METRICS,
)
from ptq_dynamics.train.settings import TRAINING

FILE = "config/claims.yaml"
STEM = CLAIMS.removesuffix(".json")
# Metrics of runs, which no quantizer changes.
OF_RUNS = {*TRAINING, *chain.from_iterable(PROBES.values())}
# Metrics that the same raw results hold.
ALIKE = (EVALUATED - {*LAYER_METRICS}, {*TASK_METRICS}, *map(set, PROBES.values()))


class Claims:
    """Claims, each over the trajectories, quantizers and metrics of the figure it is about, at the
    seeds and calibration sets of that; what a scale or a choice of figures leaves out is not
    measured."""

    def __init__(self, site: Site, drawn: Figures, written: Mapping[str, Figure]) -> None:
        self._site, self._figures, self._written = site, drawn, written
        self.paths = Paths.at(site.results, STEM)
        self.files = [f"{site.results}/{CLAIMS}"]

    @cache
    def judge(self) -> Job:
        """The verdicts on all claims, from all that the figures they are about are drawn from;
        raises `Problem` where a claim names what its figure has not."""
        config = self._site.config
        claims = tuple(self._claim(*each) for each in config.claims.items())
        measured = [one for each in claims for one in each.inequalities if one.unmeasured is None]
        about = dict.fromkeys(name for one in measured for name in _shown(one))
        figures = [config.figures[name] for name in about]
        series = (self._figures.measured(each, layers=False)[0] for each in figures)
        settings = ClaimsSettings(
            claims=claims,
            series=tuple(dict.fromkeys(chain.from_iterable(series))),
            runs=tuple(dict.fromkeys(chain.from_iterable(map(self._figures.runs, figures)))),
            scale=config.scale.description,
        )
        inputs = dict(chain.from_iterable(self._figures.figure(n).inputs.items() for n in about))
        folder = self._site.results
        job = Job("claims.judge", STEM, folder, inputs, settings, stem=STEM, files=(CLAIMS,))
        return self._site.add(job)

    def _claim(self, name: str, claim: Claim) -> NamedClaim:
        found, small = list[Asked](), dict[str, None]()
        require(f"{FILE}: {name}.figure", "figure", [claim.figure], self._written)
        for number, inequality in enumerate(claim.inequalities):
            place = f"{FILE}: {name}.inequalities.{number}"
            shown = inequality.model_copy(update={"figure": inequality.figure or claim.figure})
            for key in ("figure", "also"):
                names = [given] if (given := getattr(shown, key)) else []
                require(f"{place}.{key}", "figure", names, self._written)
            for one in shown.single():
                _check(place, one, _merged(self._written, _shown(one)))
                asked, miniatures = self._asked(one)
                found.append(asked)
                small |= dict.fromkeys(miniatures)
        content = {**dict(claim), "inequalities": tuple(found)}
        return NamedClaim(name=name, miniatures=tuple(small), **content)

    def _asked(self, one: Inequality) -> tuple[Asked, list[str]]:
        """An inequality as the job reads it, and the public models whose miniatures it reads."""

        def unmeasured(why: str) -> tuple[Asked, list[str]]:
            return Asked(**{**dict(one), "left": None, "right": None, "unmeasured": why}), []

        config, scale = self._site.config, self._site.config.scale.description
        if one.unmeasured is not None:
            return unmeasured(one.unmeasured)
        for name in _shown(one):
            if name not in config.figures:
                return unmeasured(f"figure {name} is left out at {scale}")
            if name not in self._figures.chosen:
                return unmeasured(f"figure {name} was not chosen")
        figure = _merged(config.figures, _shown(one))
        sides = {
            key: self._read(side, one, figure) if isinstance(side, Term) else side
            for key, side in (("left", one.left), ("right", one.right))
        }
        read = Asked(**{**dict(one), **sides})
        names = list(dict.fromkeys(name for term in read.terms for name in _names(term)))
        if gone := [name for name in names if name not in figure.trajectories]:
            return unmeasured(f"{gone[0]} is left out at {scale}")
        small = [run.stands_for for run in self._runs(figure, names) if run.stands_for]
        if small and one.unmeasured_in_small is not None:
            return unmeasured(one.unmeasured_in_small)
        quantizers = {one.quantizer, *(term.quantizer for term in read.terms)}
        calibrated = (
            self._figures.shown(figure, name).calibrated
            for name in quantizers - {None, FULL_PRECISION}
            if name is not None
        )
        update = {"seeds": self._seeds(read, figure, names), "calibrated": any(calibrated)}
        return read.model_copy(update=update), small

    def _read(self, term: Term, one: Inequality, figure: Figure) -> Read:
        names = chain.from_iterable(figure.curves.get(name, (name,)) for name in term.of)
        metric, quantizer = term.metric or one.metric, term.quantizer or one.quantizer
        draws = tuple[str, ...]()
        if quantizer not in (None, FULL_PRECISION) and metric not in OF_RUNS:
            # Landscapes are of the first calibration set, under the name that their figure gives.
            of_weights = metric == DISTANCE
            draws = (quantizer,) if of_weights else self._figures.draws(figure, quantizer)
        parts: dict[str, Any] = {
            key: None if each is None else self._read(each, one, figure)
            for key, each in (("less", term.less), ("per", term.per))
        }
        read = {**dict(term), **parts, "of": tuple(names), "metric": metric, "draws": draws}
        return Read(**read)

    def _runs(self, figure: Figure, names: Iterable[str]) -> Iterable[ShownRun]:
        """The runs that some trajectories of a figure are made from, in its order."""
        narrow = {"": tuple(name for name in figure.trajectories if name in names)}
        return self._figures.runs(figure.model_copy(update={"curves": narrow}))

    def _seeds(self, one: Asked, figure: Figure, names: Sequence[str]) -> tuple[int, ...]:
        """Those that all it reads has; of several, a landscape shows the first."""
        first, *others = (self._figures.seeds(figure, name) for name in names)
        if any(term.metric == DISTANCE for term in one.terms):
            return first[:1]
        return tuple(seed for seed in first if all(seed in each for each in others)) or first[:1]


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
    return (*term.of, *term.others)


def _merged(known: Mapping[str, Figure], names: Sequence[str]) -> Figure:
    """A figure, or what two of them show together: at all seeds where both have them, and at the
    draws that both have."""
    first, *others = (known[name] for name in names)
    for other in others:
        alike = {name: each for name, each in first.draws.items() if other.draws.get(name) == each}
        first = first.model_copy(
            update={
                "curves": {**other.curves, **first.curves},
                "quantizers": tuple(dict.fromkeys((*first.quantizers, *other.quantizers))),
                "draws": alike,
                "metrics": tuple(dict.fromkeys((*first.metrics, *other.metrics))),
                "headline": first.headline and other.headline,
            }
        )
    return first


def _check(place: str, one: Inequality, figure: Figure) -> None:
    """Raise `Problem` when an inequality reads what its figures do not show."""
    called, names = " and ".join(_shown(one)), figure.trajectories
    quantizers = (*figure.quantizers, FULL_PRECISION)
    require(f"{place}.quantizers", f"quantizer of figure {called}", one.quantizers, quantizers)
    for key, side in (("left", one.left), ("right", one.right)):
        for term in side.parts if isinstance(side, Term) else ():
            own = [term.quantizer] if term.quantizer else []
            for what, kind, given, known in (
                ("of", "trajectory", term.of, [*names, *figure.curves]),
                ("at", "trajectory", term.others, names),
                ("quantizer", "quantizer", own, quantizers),
            ):
                require(f"{place}.{key}.{what}", f"{kind} of figure {called}", given, known)
            for metric in filter(None, (term.metric or one.metric, term.against)):
                if not measures(figure, metric):
                    raise Problem(
                        f"{place}.{key} reads {metric}, which figure {called} does not measure; "
                        "name another metric or figure"
                    )
                quantized = metric in QUANTIZED or metric == DISTANCE
                if quantized and not (term.quantizer or one.quantizer):
                    raise Problem(
                        f"{place}.{key} reads {metric}, which needs a quantizer; name one of "
                        f"figure {called} ({', '.join(figure.quantizers) or 'which has none'}) in "
                        "quantizers"
                    )
