"""Planned branches: cooldowns from the state of a run from fresh weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from ptq_dynamics.base import needs
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.runs import Branch
from ptq_dynamics.plan.planned import PlannedTrajectory, common_seeds
from ptq_dynamics.plan.planned_runs import PlannedRun
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.wsd import Wsd

B = TypeVar("B", bound="PlannedBranch")


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedBranch(PlannedRun):
    """A run from the state of its trunk, with the step at which its cooldown begins."""

    restarts_from: ClassVar[str | None] = needs.WEIGHTS

    entry: Branch
    cooldown_start: int

    def check(self, place: str) -> None:
        """Require a trunk that keeps a state at the branch point."""
        trunk, entry, step = self.trunk, self.entry, self.first
        if entry.steady and not isinstance(trunk.schedule, Constant):
            why = f"needs a trunk with a constant rate, unlike {entry.trunk}"
            raise Problem(f"{place}.steady {why}")
        kept = trunk.state_steps
        if step not in kept or entry.at > trunk.entry.length:
            near = sorted(kept, key=lambda other: abs(other - step))[:3]
            why = f"where its trunk {trunk.name} keeps no state (the nearest: {near or 'none'})"
            mend = "change at, or state_every, state_at or length of the trunk"
            raise Problem(f"{place}.at is step {step}, {why}; {mend}")
        if entry.weights:
            average = self.sources[needs.WEIGHTS]
            ends = [point.step for point in average.checkpoints[-1:]]
            if ends != [step] or average.shape.model.weights != trunk.shape.model.weights:
                what = f"an average that ends at step {step} and has the shape of {trunk.name}"
                raise Problem(f"{place}.weights is {entry.weights}; name {what}")
        super().check(place)


def branch(
    kind: type[B],
    name: str,
    entry: Branch,
    sources: Mapping[str, PlannedTrajectory],
    run: PlannedRun,
) -> B:
    """Return a branch of a run, of some class of branches."""
    basis, trunk = run.basis, run.trunk
    first, before = basis.steps(entry.at), trunk.schedule
    cooldown_start = first + (basis.steps(entry.steady) if entry.steady else 0)
    last = cooldown_start + basis.steps(entry.cooldown)
    shape, family = trunk.shape, entry.family or trunk.origin.family
    shape = replace(shape, corpus=entry.corpus or shape.corpus, batch=entry.batch or shape.batch)
    is_constant = isinstance(before, Constant)
    start = cooldown_start if is_constant else first
    # Its own corpus starts at its beginning; other data continue.
    read = 0 if entry.corpus is not None else -(-first * trunk.shape.batch // shape.batch)
    return kind(
        name=name,
        basis=basis,
        sources=sources,
        entry=entry,
        before=run,
        shape=shape,
        trained=shape,
        origin=replace(trunk.origin, family=family),
        seeds=entry.seeds or common_seeds(sources),
        # With the weights of an average, its curve does not continue that of the trunk.
        branched=None if entry.weights else (entry.trunk, first),
        objective=entry.objective or trunk.objective,
        optimizer=trunk.optimizer,
        schedule=Wsd(
            kind="wsd",
            peak=before.peak,
            warmup=before.warmup,
            floor=entry.floor * before.peak,
            start=start,
            length=last - start,
            shape=entry.shape,
            rate=None if is_constant else before.learning_rate(first),
        ),
        first=first,
        cooldown_start=cooldown_start,
        last=last,
        data_first=first - read,
        spacing=basis.spacing(entry),
        measured_every=basis.steps(basis.scale.measure.cooldown_every),
    )
