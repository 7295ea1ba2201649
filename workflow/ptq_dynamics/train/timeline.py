"""When things happen: the steps, checkpoints and measurements of all trajectories, from the
configuration; and what every kind of trajectory answers."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.train.architectures import Architecture


class Point(NamedTuple):
    """A checkpoint before it exists: its id, unique in its trajectory, and its step, if any."""

    id: str
    step: int | None


@dataclass(frozen=True)
class TrainedShape:
    """A model with the text of a phase: `batch` and `micro_batch` in sequences of `context`
    tokens."""

    model: Architecture
    corpus: str
    context: int
    micro_batch: int | None
    batch: int


class Timeline:
    """The trajectories of a configuration (`config.Config`) in whole steps."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.scale = config.scale
        self.defaults = config.runs.defaults
        chosen = (config.choice.seed, *config.choice.more_seeds)
        self.seeds: tuple[int, ...] = tuple(dict.fromkeys(chosen))
        self.trajectories: dict[str, PlannedTrajectory] = config.runs.trajectories

    def run(self, name: str) -> Any:
        """The run (`config.Run`) that a trajectory is, or whose learning rate it follows; None of
        public models, which nothing trains here."""
        return self.config.runs.runs.get(self.trajectories[name].run(name, self))

    def source(self, name: str) -> "PlannedTrajectory":
        """The run, or the public model, whose checkpoints a trajectory has, or averages."""
        return self.trajectories[self.trajectories[name].run(name, self)]

    def tokenized(self, shape: TrainedShape) -> tuple[object, ...]:
        """What two models have alike whose tokens mean the same."""
        return self.scale.whole(shape.corpus).tokenized

    @cache
    def steps(self, share: Any) -> int:
        """A share of the budget in whole steps, at least one."""
        return max(1, round(share * self.scale.budget))

    @cache
    def checkpoints(self, name: str) -> list[Point]:
        """The checkpoints of a trajectory, in their order."""
        return self.trajectories[name].checkpoints(self)

    @cache
    def measured(self, name: str) -> list[Point]:
        """Those of its checkpoints that are quantized, evaluated and probed."""
        return self.trajectories[name].measured(self)

    @cache
    def seeds_of(self, name: str) -> tuple[int, ...]:
        """The seeds that a trajectory is made for."""
        return self.trajectories[name].seeds_in(self)

    @cache
    def seeds_shown(self, name: str, headline: bool) -> tuple[int, ...]:
        """The seeds that a figure shows of a trajectory: all of a headline figure's, and of a run
        that has seeds of its own; else the first."""
        found, run = self.seeds_of(name), self.run(name)
        own = run is not None and (run.seeds or run.whole(self).seeds)
        return found if headline or own else found[:1]

    @cache
    def shards(self, name: str) -> dict[str, list[Point]]:
        """The measured checkpoints of a trajectory by shard: one job each."""
        points, size = self.measured(name), self.scale.shard
        if size is None:
            return {"all": points}
        parts = [points[start : start + size] for start in range(0, len(points), size)]
        return {part[0].id: part for part in parts}


class PlannedTrajectory(Strict):
    """A kind of trajectory; `family` is who trained it, if other than what it is made from, `stage`
    the code that makes it."""

    stage: ClassVar[str]
    family: Annotated[str, Field(min_length=1)] | None = None

    def sources(self) -> Mapping[str, str]:
        """Names of the trajectories that it is made from, by what they are to it."""
        return {}

    @abstractmethod
    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """All its checkpoints, in their order."""

    def measured(self, timeline: Timeline) -> list[Point]:
        """Those of its checkpoints that are measured."""
        return self.checkpoints(timeline)

    def run(self, name: str, timeline: Timeline) -> str:
        """The run whose learning rate it follows: itself, of this name."""
        return name

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Shape of its model, with the batch, the context and the corpus it is trained with."""
        return timeline.trajectories[self._last_source()].model_shape(timeline)

    def trained_by(self, timeline: Timeline) -> str:
        """Its family."""
        return self.family or timeline.trajectories[self._last_source()].trained_by(timeline)

    def uncertain(self, timeline: Timeline) -> tuple[str | None, bool]:
        """What is uncertain of the public model that it is or stands for, and whether publications
        give the learning rate of that differently."""
        return None, False

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """The seeds that it is made for: those that all its sources have."""
        sources = [timeline.trajectories[name] for name in self.sources().values()]
        first, *others = [source.seeds_in(timeline) for source in sources]
        return tuple(seed for seed in first if all(seed in seeds for seeds in others))

    def _last_source(self) -> str:
        return list(self.sources().values())[-1]

    def check(self, place: str, timeline: Timeline) -> None:
        """Raise `Problem` when it cannot be made; `place` is its key in the configuration."""
