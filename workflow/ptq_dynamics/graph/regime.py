"""The regime of a scale's runs: numbers without dimension, to be compared with the paper's.

Models of other sizes are alike not where their settings are, but where these numbers are: how often
weight decay renews the weights, how long it takes to, how much of a run is warmup and cooldown, how
much text there is for a parameter, and how much of it a step sees.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any

from ptq_dynamics.config import PublicRun, Run
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Constant, Schedule, learning_rate

# From a step on: its schedule, and its optimizer.
Phase = tuple[int, Schedule, Optimizer]
# Numbers whose ratio is within these are alike.
ALIKE = (0.8, 1.25)
# Of runs with more steps, some of them millions, so many are looked at.
LOOKS = 10_000


@dataclass(frozen=True)
class Dimensionless:
    """Numbers without dimension of one run, from fresh weights to its end.

    `e_folds`: Σ of the shares that weight decay takes of a weight, step by step. `timescale`: steps
    in which it takes 1/e at the peak rate, as a share of the run; none without decay. `warmup`,
    `cooldown`: shares of the run. `tokens_per_parameter`. `epochs`: how often the text is seen.
    `batch`: share of the run's tokens in one step.
    """

    e_folds: float
    timescale: float | None
    warmup: float
    cooldown: float
    tokens_per_parameter: float
    epochs: float
    batch: float

    def unlike(self, other: "Dimensionless | None") -> set[str]:
        """Names of the numbers that are not as those of another run, if there is one; text that is
        seen again is unlike, less of an epoch is not; more text for a parameter is no fault."""
        # What public models have read is not known.
        epochs = 1.0 if other is None or math.isnan(other.epochs) else max(1.0, other.epochs)
        found = {"epochs"} if self.epochs > epochs else set[str]()
        for name in NUMBERS if other else ():
            mine, theirs = getattr(self, name), getattr(other, name)
            ratio = mine / theirs if mine and theirs else 1.0 if mine == theirs else math.inf
            most = math.inf if name == "tokens_per_parameter" else ALIKE[1]
            if name != "epochs" and not ALIKE[0] <= ratio <= most:
                found.add(name)
        return found


NUMBERS = [field.name for field in fields(Dimensionless)]


def regimes(plan: Any) -> Iterator[tuple[str, Dimensionless]]:
    """The regime of every run of a plan, and of every public model as far as its checkpoints go, by
    name."""
    for name, run in plan.site.config.runs.runs.items():
        yield name, _regime(plan, name, run)
    for name, public in plan.site.config.runs.public.items():
        if isinstance(public, PublicRun):
            steps = max(each.step or 0 for each in public.revisions.values())
            phases = [(0, public.earlier, public.optimizer)]
            phases.append((public.first, public.schedule, public.optimizer))
            # What they read, and how often, is not known here.
            yield name, _dimensionless(plan, name, phases, steps, public.batch, math.nan)


def tokens_of(plan: Any, name: str) -> int:
    """Tokens of a run, with those of its trunk, or of a public model as far as its checkpoints
    go."""
    if public := plan.site.config.runs.public.get(name):
        return max(each.tokens or 0 for each in public.revisions.values())
    return plan.site.config.runs.runs[name].tokens(plan.site.timeline)


def peak_rate(plan: Any, name: str) -> float:
    """Peak learning rate of a run or public model."""
    public = plan.site.config.runs.public.get(name)
    if isinstance(public, PublicRun):
        return public.earlier.peak
    return plan.trajectories.schedule(plan.site.config.runs.runs[name]).peak


def _regime(plan: Any, name: str, run: Run) -> Dimensionless:
    timeline, scale, way = plan.site.timeline, plan.site.config.scale, [run]
    while sources := list(way[0].sources().values()):
        way.insert(0, plan.site.config.runs.runs[sources[0]])
    phases = [
        (each.ends(timeline)[0], plan.trajectories.schedule(each), each.optimizer_in(timeline))
        for each in way
    ]
    (first, steps), trained = run.ends(timeline), run.trained(timeline)
    read, batch = tokens_of(plan, name), trained.batch * trained.context
    if trained.corpus != way[0].trained(timeline).corpus:
        # Another text begins anew.
        read = (steps - first) * batch
    epochs = read / scale.corpora[trained.corpus].train
    return _dimensionless(plan, name, phases, steps, batch, epochs)


def _dimensionless(
    plan: Any, name: str, phases: list[Phase], steps: int, batch: float, epochs: float
) -> Dimensionless:
    def taken(step: int) -> float:
        _, schedule, optimizer = phases[bisect_right(phases, step, key=itemgetter(0)) - 1]
        return optimizer.per_step(learning_rate(schedule, step), schedule.peak)

    _, schedule, optimizer = phases[-1]
    at_peak, tokens = optimizer.per_step(schedule.peak, schedule.peak), tokens_of(plan, name)
    looks = min(steps, LOOKS)
    every = steps / looks
    # Of what decays to its end, a cosine or a stage, all but the warmup.
    length = getattr(schedule, "length", steps)
    decays = schedule.warmup if schedule.kind in ("cosine", "stage") else 0
    return Dimensionless(
        e_folds=every * sum(taken(int((number + 0.5) * every)) for number in range(looks)),
        timescale=1 / (at_peak * steps) if at_peak else None,
        warmup=schedule.warmup / steps,
        cooldown=0.0 if isinstance(schedule, Constant) else (length - decays) / steps,
        tokens_per_parameter=tokens / plan.trajectories.parameters(name),
        epochs=epochs,
        batch=batch / tokens,
    )
