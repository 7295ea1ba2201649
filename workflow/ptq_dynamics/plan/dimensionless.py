"""Dimensionless numbers of runs, to compare with the paper's.

Runs of models of different sizes are alike if these numbers are, not if their settings are."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from operator import itemgetter
from typing import TypedDict

from ptq_dynamics.figures.labels import UNITS, rounded
from ptq_dynamics.plan.catalogue import Catalogue
from ptq_dynamics.plan.planned import PlannedTrajectory
from ptq_dynamics.plan.releases import PlannedRelease, PublicRun
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Schedule

Part = tuple[int, Schedule, Optimizer]  # of a lineage, with its first step
ALIKE = (0.8, 1.25)  # limits of the ratio of two numbers
LOOKS = 10_000  # most steps at which the decay of a run is evaluated
Cell = tuple[str | None, str | None, bool]  # a number, the published one, whether both differ


@dataclass(frozen=True)
class Dimensionless:
    """Dimensionless numbers of a run from fresh weights to its end, besides peak rate and tokens.

    `e_folds`: sum over steps of the share of a weight that weight decay removes. `timescale`: steps
    in which it removes 1 - 1/e at the peak rate, as a share of the run; None without decay.
    `warmup`, `cooldown`, `batch` (one step): shares of the run. `epochs`: passes over the text."""

    peak: float
    tokens: float
    e_folds: float
    timescale: float | None
    warmup: float
    cooldown: float
    tokens_per_parameter: float
    epochs: float
    batch: float

    def unlike(self, other: "Dimensionless | None") -> set[str]:
        """Return names of the numbers that differ from another run's. Less than one epoch, and more
        tokens per parameter, count as alike."""
        # The epochs of public models are unknown.
        epochs = 1.0 if other is None or math.isnan(other.epochs) else max(1.0, other.epochs)
        unlike = {"epochs"} if self.epochs > epochs else set[str]()
        for name in NUMBERS if other else ():
            mine, theirs = getattr(self, name), getattr(other, name)
            ratio = mine / theirs if mine and theirs else 1.0 if mine == theirs else math.inf
            most = math.inf if name == "tokens_per_parameter" else ALIKE[1]
            if name != "epochs" and not ALIKE[0] <= ratio <= most:
                unlike.add(name)
        return unlike


NUMBERS = [field.name for field in fields(Dimensionless)][2:]
COLUMNS = ["peak rate", "tokens", *NUMBERS]


class ComparedRun(TypedDict):
    """A run with a cell for each of the `COLUMNS`."""

    run: str
    cells: list[Cell]


def beside_paper(here: Catalogue, paper: Catalogue) -> Iterator[ComparedRun]:
    """Yield the numbers of every run, with the published ones and whether both differ."""
    published = dict(regimes(paper))
    for name, regime in regimes(here):
        other = published.get(name)
        unlike, others = regime.unlike(other), astuple(other) if other else [None] * len(COLUMNS)
        numbers = map(_text, astuple(regime)), map(_text, others)
        cells = zip(*numbers, [column in unlike for column in COLUMNS], strict=True)
        yield {"run": name, "cells": [*cells]}


def regimes(planned: Catalogue) -> Iterator[tuple[str, Dimensionless]]:
    """Yield the numbers of all runs and of public models with known runs, by name."""
    for run in planned.runs:
        parts = [(one.first, one.schedule, one.optimizer) for one in run.lineage]
        tokens = run.tokens_at(run.last)
        batch = run.trained.batch_tokens
        yield run.name, _regime(run, parts, run.last, batch, tokens, run.passes)
    for model in planned.values():
        if isinstance(model, PlannedRelease) and isinstance(public := model.entry, PublicRun):
            steps = max(point.step or 0 for point in public.checkpoints.values())
            tokens = max(point.tokens or 0 for point in public.checkpoints.values())
            parts = [(0, public.earlier, public.optimizer)]
            parts.append((public.first, public.schedule, public.optimizer))
            yield model.name, _regime(model, parts, steps, public.batch, tokens, math.nan)


def _regime(
    trajectory: PlannedTrajectory,
    parts: list[Part],
    steps: int,
    batch: float,
    tokens: int,
    epochs: float,
) -> Dimensionless:
    def decay(step: int) -> float:
        _, schedule, optimizer = parts[bisect_right(parts, step, key=itemgetter(0)) - 1]
        return optimizer.per_step(schedule.learning_rate(step), schedule.peak)

    _, schedule, optimizer = parts[-1]
    at_peak, looks = optimizer.per_step(schedule.peak, schedule.peak), min(steps, LOOKS)
    every = steps / looks
    return Dimensionless(
        peak=schedule.peak,
        tokens=float(tokens),
        e_folds=every * sum(decay(int((number + 0.5) * every)) for number in range(looks)),
        timescale=1 / (at_peak * steps) if at_peak else None,
        warmup=schedule.warmup / steps,
        cooldown=len(schedule.decay(steps)) / steps,
        tokens_per_parameter=tokens / trajectory.parameters,
        epochs=epochs,
        batch=batch / tokens,
    )


def _text(value: float | None) -> str | None:
    if value is None or math.isnan(value):
        return None
    return f"{value:.3g}" if value < UNITS["k"] else rounded(value)
