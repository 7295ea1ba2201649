"""Public models as a scale with the hub takes them: runs of which checkpoints were released, and
models that were."""

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

from ptq_dynamics.hub.lock import Entry
from ptq_dynamics.train import schedules
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import Schedule
from ptq_dynamics.train.timeline import PlannedTrajectory, Point, Timeline, TrainedShape

# How accelerate spreads a model over devices, in its own words.
DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]


class ReleasedRevision(NamedTuple):
    """Step and tokens of a revision, where it has them, and what it is locked to, if it is."""

    step: int | None
    tokens: int | None
    entry: Entry | None


class Public(PlannedTrajectory):
    """What was released of a public model: `revisions` of a repository, by name; of one phase,
    `called` so in tables, with the `schedule` of its learning rate where that is known."""

    stage: ClassVar[str] = "train.fetch"

    repository: str
    revisions: dict[str, ReleasedRevision]
    model: str
    convert: bool
    format: str | None
    device_map: DeviceMap
    unknown: str | None
    uncertain_rate: bool
    called: str = "released"
    schedule: Schedule | None = None

    def rate(self, step: int | None) -> float | None:
        """The learning rate of the update after `step` updates, where both are known."""
        if self.schedule is None or step is None:
            return None
        return schedules.learning_rate(self.schedule, step)

    def phase(self, step: int | None) -> str:
        """The phase of a run that a revision belongs to."""
        return self.called

    def run(self, name: str, timeline: Timeline) -> str:
        """Itself."""
        return name

    def sources(self) -> Mapping[str, str]:
        """None."""
        return {}

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a revision."""
        return [Point(name, each.step) for name, each in self.revisions.items()]

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """That of its model; nothing is trained."""
        shape = timeline.scale.models[self.model]
        return TrainedShape(shape, shape.corpus, shape.context, None, 1)

    def trained_by(self, timeline: Timeline) -> str:
        """Its family."""
        return self.family or self.model

    def uncertain(self, timeline: Timeline) -> str | None:
        """What is uncertain of its family."""
        return self.unknown

    def has_uncertain_rate(self, timeline: Timeline) -> bool:
        """Whether its family's is."""
        return self.uncertain_rate

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """One that means nothing: it is as it was released."""
        return (0,)


class PublicRun(Public):
    """A run: its `schedule` holds from the step `first` on, before that the `earlier` one of its
    `trunk`, if it branches off one; `batch` in tokens. Averages of the last ones take those that
    were `averaged`, if any are named."""

    trunk: str | None
    schedule: Schedule
    earlier: Schedule
    first: int
    batch: float
    optimizer: AnyOptimizer
    averaged: tuple[str, ...] = ()

    def averaged_of(self, measured: list[Point]) -> list[Point]:
        """Those of them that are named, if any are."""
        return [point for point in measured if not self.averaged or point.id in self.averaged]

    def rate(self, step: int | None) -> float | None:
        """The learning rate of the update after `step` updates."""
        return None if step is None else self.learning_rate(step)

    def learning_rate(self, step: int) -> float:
        """That of the update after `step` updates."""
        return schedules.learning_rate(self.earlier if step < self.first else self.schedule, step)

    def phase(self, step: int | None) -> str:
        """The phase that a revision belongs to."""
        return self.called if step is None else schedules.phase(self.schedule, step)
