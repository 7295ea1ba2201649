"""The regime of a scale's runs: numbers without dimension, to be compared with the paper's.

Models of other sizes are alike not where their settings are, but where these numbers are: how often
weight decay renews the weights, how long it takes to, how much of a run is warmup and cooldown, how
much text there is for a parameter, and how much of it a step sees.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from ptq_dynamics.config import Run
from ptq_dynamics.plan.site import Site
from ptq_dynamics.plan.trajectories import Trajectories
from ptq_dynamics.trajectories.schedules import Constant, Wsd, learning_rate

Rates = list[tuple[float, float, str]]
# Numbers whose ratio is within these are alike.
ALIKE = (0.8, 1.25)


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

    def unlike(self, other: "Dimensionless") -> set[str]:
        """Names of the numbers that are not as those of another run; text that is seen again is
        unlike, less of an epoch is not; more text for a parameter is no fault."""
        found = set()
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            match field.name:
                case "epochs":
                    alike = mine <= max(1.0, theirs)
                case "tokens_per_parameter":
                    alike = mine >= ALIKE[0] * theirs
                case _:
                    alike = _alike(mine, theirs)
            if not alike:
                found.add(field.name)
        return found


def _alike(mine: float | None, theirs: float | None) -> bool:
    if not mine or not theirs:
        return mine == theirs
    return ALIKE[0] <= mine / theirs <= ALIKE[1]


def regimes(site: Site, trajectories: Trajectories) -> Iterator[tuple[str, Dimensionless]]:
    """The regime of every run, by its name."""
    for name, run in site.config.runs.runs.items():
        yield name, _regime(site, trajectories, run)


def _regime(site: Site, trajectories: Trajectories, run: Run) -> Dimensionless:
    timeline, whole = site.timeline, run.whole(site.timeline)
    schedule, (_, steps) = trajectories.schedule(run), run.ends(timeline)
    optimizer, peak = timeline.optimizer(whole), schedule.peak
    taken = optimizer.per_step(peak, peak)
    shape, phase = whole.model_shape(timeline), run.model_shape(timeline)
    corpus = site.config.scale.corpora[phase.corpus]
    first, _ = run.ends(timeline)
    tokens = first * shape.batch * shape.context + (steps - first) * phase.batch * phase.context
    match schedule:
        case Constant():
            decaying = 0
        case Wsd():
            decaying = schedule.length
        case _:
            decaying = steps - schedule.warmup
    return Dimensionless(
        e_folds=sum(optimizer.per_step(learning_rate(schedule, n), peak) for n in range(steps)),
        timescale=1 / (taken * steps) if taken else None,
        warmup=schedule.warmup / steps,
        cooldown=decaying / steps,
        tokens_per_parameter=tokens / shape.model.parameters(corpus.vocabulary),
        epochs=tokens / corpus.train,
        batch=phase.batch * phase.context / tokens,
    )


def best_rates(site: Site, trajectories: Trajectories, losses: Mapping[str, float]) -> list[Rates]:
    """Runs that differ in the peak rate alone, by final loss in full precision: a list for every
    two or more of them, (loss, peak rate, name), the best first."""
    groups: dict[object, Rates] = {}
    for name, run in site.config.runs.runs.items():
        if name in losses:
            whole = run.whole(site.timeline)
            own = repr(run.model_dump(exclude={"peak_lr", "trunk"}))
            alike = own, whole.model, repr(whole.optimizer), whole.warmup_steps(site.timeline)
            peak = trajectories.schedule(run).peak
            groups.setdefault(alike, []).append((losses[name], peak, name))
    return [sorted(group) for group in groups.values() if len(group) > 1]
