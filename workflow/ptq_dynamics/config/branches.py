"""Runs in config/runs.yaml that go on from another run's state."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptq_dynamics.base.fields import Context, Count, Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.kinds import Optimizer, Timeline, require_text
from ptq_dynamics.config.runs import CooldownShape, Run, Whole
from ptq_dynamics.config.scale import TrainedShape


class Branch(Run):
    """What goes on from another run's state: over `steady` steps at its constant rate, if any, then
    a cooldown, from whatever rate the run has there; `floor` as a share of the peak.

    A phase with a `corpus` or a `context` (tokens) of its own begins its data anew; without, it
    goes on with the data of its trunk. `batch` in sequences.
    """

    trunk: str
    at: Share
    cooldown: Share
    steady: Share | None = None
    shape: CooldownShape = "linear"
    corpus: str | None = None
    batch: Count | None = None
    context: Context | None = None

    def sources(self) -> Mapping[str, str]:
        """Its trunk."""
        return {"trunk": self.trunk}

    def whole(self, timeline: Timeline) -> "Whole":
        """Its trunk."""
        trunk = timeline.trajectory(self.trunk)
        assert isinstance(trunk, Whole)
        return trunk

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Its trunk's, with what the phase has of its own."""
        own = {"corpus": self.corpus, "batch": self.batch, "context": self.context}
        changes: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        return replace(self.whole(timeline).model_shape(timeline), **changes)

    def data_first(self, timeline: Timeline) -> int:
        """Where it begins, with data of its own; else, with another batch, so that it goes on after
        what its trunk has seen."""
        first, _ = self.ends(timeline)
        if self.corpus is not None or self.context is not None:
            return first
        before, now = self.whole(timeline).model_shape(timeline), self.model_shape(timeline)
        return first - -(-first * before.batch // now.batch)

    def tokens_before(self, timeline: Timeline) -> int:
        """Those of its trunk up to there."""
        (first, _), shape = self.ends(timeline), self.whole(timeline).model_shape(timeline)
        return first * shape.batch * shape.context

    def optimizer_in(self, timeline: Timeline) -> Optimizer:
        """Its trunk's, whose state it goes on with."""
        return self.whole(timeline).optimizer_in(timeline)

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Its own, or its trunk's."""
        return self.seeds or super().seeds_in(timeline)

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """From where it branches off to the end of its cooldown."""
        start = self.cooldown_start(timeline)
        return timeline.steps(self.at), start + timeline.steps(self.cooldown)

    def cooldown_start(self, timeline: Timeline) -> int:
        """Step at which its cooldown begins."""
        return timeline.steps(self.at) + (timeline.steps(self.steady) if self.steady else 0)

    def measured_every(self, timeline: Timeline) -> int:
        """As the scale says for cooldowns."""
        return timeline.steps(timeline.scale.measure.cooldown_every)

    def check(self, place: str, timeline: Timeline) -> None:
        """Its trunk has no cooldown of its own, its seeds, and a state where it branches off."""
        trunks = timeline.trunks()
        if self.trunk not in trunks:
            raise Problem(
                f"{place}.trunk is {self.trunk!r}; it must be a run from fresh weights without a "
                f"cooldown: {', '.join(trunks)}"
            )
        trunk = self.whole(timeline)
        if self.steady and trunk.schedule != "constant":
            raise Problem(
                f"{place}.steady goes on at a constant rate, but its trunk {self.trunk} has a "
                f"{trunk.schedule}; leave it out"
            )
        if self.at > trunk.length:
            raise Problem(
                f"{place}.at is {self.at}, after the end of its trunk {self.trunk} at "
                f"{trunk.length}; branch earlier, or make the trunk longer"
            )
        step, kept = timeline.steps(self.at), trunk.state_steps(timeline)
        if step not in kept:
            near = sorted(kept, key=lambda other: abs(other - step))[:3]
            raise Problem(
                f"{place}.at is step {step}, where its trunk {self.trunk} keeps no state to branch "
                f"from (the nearest: {near or 'none'}); change at, or state_every or state_at of "
                "the trunk"
            )
        missing = sorted({*self.seeds_in(timeline)} - {*trunk.seeds_in(timeline)})
        if missing:
            raise Problem(
                f"{place}.seeds has {missing[0]}, which its trunk {self.trunk} has not; add it "
                "there, or leave seeds out to have those of the trunk"
            )
        shape, model = self.model_shape(timeline), trunk.model_shape(timeline)
        require_text(place, shape, model, f"its trunk {self.trunk}", timeline)
        if shape.context > model.context:
            raise Problem(
                f"{place}.context is {shape.context}, longer than its model's {model.context}; "
                "lower it, or give the model more"
            )
