"""The queries of claims: what an inequality reads of what its figures show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.names import DISTANCE
from ptq_dynamics.claims.settings import At
from ptq_dynamics.config import Figure, claims, require
from ptq_dynamics.figures.layouts.landscapes import Landscapes
from ptq_dynamics.graph.figures import EVALUATED
from ptq_dynamics.measure.names import FULL_PRECISION, LAYER_METRICS, LOSS, PROBES, TASK_METRICS


def named(one: claims.Single) -> list[str]:
    """Names of all trajectories that an inequality reads, or reads where."""
    every = ((*term.trajectories, *term.others) for term in one.terms)
    return list(dict.fromkeys(chain.from_iterable(every)))


def metrics(inequality: claims.Inequality, one: claims.Single) -> set[str]:
    """All metrics that an inequality reads."""
    found = {term.metric or inequality.metric for term in one.terms}
    return found | {term.against for term in one.terms if term.against}


def merged(known: Mapping[str, Figure], names: Sequence[str]) -> Figure:
    """A figure, or what two of them show together: at all seeds where both have them, and at the
    draws that both have."""
    first, *others = (known[name] for name in names)
    for other in others:
        first = first.model_copy(
            update={
                "curves": {**other.curves, **first.curves},
                "quantizers": tuple(dict.fromkeys((*first.quantizers, *other.quantizers))),
                "draws": {
                    name: draws
                    for name, draws in first.draws.items()
                    if other.draws.get(name) == draws
                },
                "metrics": tuple(dict.fromkeys((*first.metrics, *other.metrics))),
                "headline": first.headline and other.headline,
            }
        )
    return first


def resolved(one: claims.Single, figure: Figure) -> claims.Single:
    """An inequality with the trajectories that a scale has in place of labels of curves."""

    def filled(term: claims.Term) -> claims.Term:
        names = chain.from_iterable(figure.curves.get(name, (name,)) for name in term.trajectories)
        less, per = (None if each is None else filled(each) for each in (term.less, term.per))
        return term.model_copy(update={"of": tuple(names), "less": less, "per": per})

    left = None if one.left is None else filled(one.left)
    right = one.right if isinstance(one.right, float) else filled(one.right)
    return replace(one, left=left, right=right)


def narrowed(
    figure: Figure, inequality: claims.Inequality, one: claims.Single, trunks: list[str]
) -> Figure:
    """The query of a figure without what an inequality does not read."""
    wanted, asked = {*named(one), *trunks}, metrics(inequality, one)
    curves = {
        label: tuple(name for name in members if name in wanted)
        for label, members in figure.curves.items()
    }
    quantizers = {one.quantizer, *(term.quantizer for term in one.terms)}
    kept = tuple(name for name in figure.quantizers if name in quantizers)
    needs_loss = any(by_loss(term) or _of_rise(term) for term in one.terms)
    return figure.model_copy(
        update={
            "curves": {label: members for label, members in curves.items() if members},
            "quantizers": kept,
            "draws": {name: each for name, each in figure.draws.items() if name in kept},
            "metrics": tuple(sorted({*asked, *([LOSS] if needs_loss else [])})),
        }
    )


def by_loss(term: claims.Term) -> bool:
    """Whether a term is read at equal loss."""
    return isinstance(term.at, claims.Place) and term.at.loss_of is not None


def _of_rise(term: claims.Term) -> bool:
    return isinstance(term.at, claims.Place) and term.at.rise is not None


def place_of(at: object) -> At:
    """Where a term is read, as the stage has it."""
    match at:
        case "start":
            return At(share=0.0)
        case float(share):
            return At(share=share)
        case claims.Place(loss_of=names, start=first, end=last, rise=rise):
            return At(last, first, at.ends, names or (), rise)
    return At()


def check(
    place: str,
    inequality: claims.Inequality,
    one: claims.Single,
    shown: Sequence[str],
    figure: Figure,
) -> None:
    """Raise `Problem` when an inequality reads what its figures do not show."""
    names, quantizers = figure.trajectories, (*figure.quantizers, FULL_PRECISION)
    labelled, called = [*names, *figure.curves], " and ".join(shown)
    where = f"of figure {called}"
    if one.quantizer is not None:
        require(f"{place}.quantizers", f"quantizer {where}", [one.quantizer], quantizers)
    for key, side in (("left", one.left), ("right", one.right)):
        for term in side.parts if isinstance(side, claims.Term) else ():
            require(f"{place}.{key}.of", f"trajectory {where}", term.trajectories, labelled)
            require(f"{place}.{key}.at", f"trajectory {where}", term.others, names)
            if term.quantizer is not None:
                given = f"{place}.{key}.quantizer"
                require(given, f"quantizer {where}", [term.quantizer], quantizers)
            metric, against = term.metric or inequality.metric, term.against
            for each in (metric, *([against] if against else [])):
                if not measures(figure, each):
                    raise Problem(
                        f"{place}.{key} reads {each}, which figure {called} does not measure; name "
                        "another metric or figure"
                    )
                if claims.needs_quantizer(each) and not (term.quantizer or one.quantizer):
                    known = ", ".join(figure.quantizers) or "which has none"
                    raise Problem(
                        f"{place}.{key} reads {each}, which needs a quantizer; name one of figure "
                        f"{called} ({known}) in quantizers"
                    )


def measures(figure: Figure, metric: str) -> bool:
    """Whether the results that a figure is drawn from hold a metric."""
    if metric == DISTANCE:
        return isinstance(figure, Landscapes)
    losses, answers = EVALUATED - {*LAYER_METRICS}, frozenset(TASK_METRICS)
    alike = [losses, answers, *map(frozenset, PROBES.values())]
    groups = [group for group in alike if metric in group] or [frozenset({metric})]
    return any(not group.isdisjoint(figure.metrics) for group in groups)
