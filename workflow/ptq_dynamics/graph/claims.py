"""The job that judges claims over what the chosen figures measure."""

from collections import ChainMap
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

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
        claims = [(name, self._single(name, claim)) for name, claim in self.config.claims.items()]
        every = chain.from_iterable(claim.inequalities for _, claim in claims)
        figures = [name for one in every if one.unmeasured is None for name in one.figures]
        drawn = [self.plan.figures.figure(name) for name in dict.fromkeys(figures)]
        settings = ClaimsSettings(
            claims=tuple(claims),
            series=tuple(dict.fromkeys(each for job in drawn for each in job.settings.series)),
            runs=tuple(dict.fromkeys(each for job in drawn for each in job.settings.runs)),
            scale=self.config.scale.description,
        )
        inputs = {label: paths for job in drawn for label, paths in job.inputs.items()}
        return self.make("judge", "claims.judge", "claims", inputs, settings, (CLAIMS,))

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
        sides = {"left": one.left, "right": one.right}
        update: dict[str, Any] = {
            key: _read(side, curves) for key, side in sides.items() if isinstance(side, Term)
        }
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


def measures(figure: Figure, metric: str) -> bool:
    """Whether the results that a figure is drawn from hold a metric."""
    if metric == DISTANCE:
        return isinstance(figure, Landscapes)
    alike = next((group for group in ALIKE if metric in group), {metric})
    return not alike.isdisjoint(figure.metrics)


def _read(term: Term, curves: Mapping[str, tuple[str, ...]]) -> Term:
    """A term with trajectories in place of the labels of curves."""
    update: dict[str, Any] = {
        key: tuple(chain.from_iterable(curves.get(name, (name,)) for name in getattr(term, key)))
        for key in ("of", "tokens_of", "loss_of")
    }
    update |= {"less": term.less and _read(term.less, curves)}
    update |= {"per": term.per and _read(term.per, curves)}
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
