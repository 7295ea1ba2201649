"""Planned branches: cooldowns from the state of a run from fresh weights."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.runs import Branch
from ptq_dynamics.plan.planned import TrainedShape
from ptq_dynamics.plan.planned_runs import PlannedRun
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.wsd import Wsd


@dataclass(frozen=True, eq=False)
class PlannedBranch(PlannedRun):
    """A run from the state of its trunk."""

    restarts_from: ClassVar[str | None] = "weights"

    entry: Branch

    @cached_property
    def shape(self) -> TrainedShape:
        """The trunk's shape with the branch's corpus and batch."""
        shape, entry = self.trunk.shape, self.entry
        return replace(shape, corpus=entry.corpus or shape.corpus, batch=entry.batch or shape.batch)

    @property
    def objective(self) -> Objective:
        """The branch's objective, or that of its trunk."""
        return self.entry.objective or self.trunk.objective

    @property
    def branched(self) -> tuple[str, int] | None:
        """Trunk and branch point, unless the branch has other weights than its trunk's."""
        return None if self.entry.weights else (self.entry.trunk, self.first)

    @property
    def data_first(self) -> int:
        """The first step with a corpus; else the step at which the trunk's data continue."""
        if self.entry.corpus is not None:
            return self.first
        return self.first - -(-self.first * self.trunk.shape.batch // self.shape.batch)

    @cached_property
    def first(self) -> int:
        """The branch point."""
        return self.basis.steps(self.entry.at)

    @cached_property
    def cooldown_start(self) -> int:
        """The step at which the cooldown begins."""
        return self.first + (self.basis.steps(self.entry.steady) if self.entry.steady else 0)

    @cached_property
    def last(self) -> int:
        """The end of the cooldown."""
        return self.cooldown_start + self.basis.steps(self.entry.cooldown)

    @cached_property
    def schedule(self) -> Wsd:
        """A cooldown from the trunk's rate at the branch point, in steps."""
        trunk, entry = self.trunk.schedule, self.entry
        is_constant = isinstance(trunk, Constant)
        start = self.cooldown_start if is_constant else self.first
        return Wsd(
            kind="wsd",
            peak=trunk.peak,
            warmup=trunk.warmup,
            floor=entry.floor * trunk.peak,
            start=start,
            length=self.last - start,
            shape=entry.shape,
            rate=None if is_constant else trunk.learning_rate(self.first),
        )

    @property
    def measured_every(self) -> int:
        """The scale's interval for cooldowns."""
        return self.basis.steps(self.basis.scale.measure.cooldown_every)

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
            average = self.sources["weights"]
            ends = [point.step for point in average.checkpoints[-1:]]
            if ends != [step] or average.shape.model.weights != trunk.shape.model.weights:
                what = f"an average that ends at step {step} and has the shape of {trunk.name}"
                raise Problem(f"{place}.weights is {entry.weights}; name {what}")
        super().check(place)
