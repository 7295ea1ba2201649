"""Steps, checkpoints and measurements of all trajectories of a configuration."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.train.architectures import Architecture


class Point(NamedTuple):
    """A planned checkpoint: its id, unique in its trajectory, and its step, if any."""

    id: str
    step: int | None


@dataclass(frozen=True)
class TrainedShape:
    """A model, its corpus and its batches (in sequences of `context` tokens)."""

    model: Architecture
    corpus: str
    context: int
    micro_batch: int | None
    batch: int


class Timeline:
    """The trajectories of a configuration (`config.Config`), with times in whole steps."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.scale = config.scale
        self.defaults = config.runs.defaults
        chosen = (config.choice.seed, *config.choice.more_seeds)
        self.seeds: tuple[int, ...] = tuple(dict.fromkeys(chosen))
        self.trajectories: dict[str, PlannedTrajectory] = config.runs.trajectories

    def run(self, name: str) -> Any:
        """Return the run that a trajectory follows, or None for a public model."""
        return self.config.runs.runs.get(self.trajectories[name].run(name, self))

    def source(self, name: str) -> "PlannedTrajectory":
        """Return the run, or the public model, that a trajectory is or averages."""
        return self.trajectories[self.trajectories[name].run(name, self)]

    def tokenized(self, shape: TrainedShape) -> tuple[object, ...]:
        """Return a key that is equal for models with one tokenizer."""
        return self.scale.whole(shape.corpus).tokenized

    @cache
    def steps(self, share: Any) -> int:
        """Return a share of the budget in whole steps, at least one."""
        return max(1, round(share * self.scale.budget))

    @cache
    def checkpoints(self, name: str) -> list[Point]:
        """Return the checkpoints of a trajectory in order."""
        return self.trajectories[name].checkpoints(self)

    @cache
    def measured(self, name: str) -> list[Point]:
        """Return the checkpoints of a trajectory that are measured."""
        return self.trajectories[name].measured(self)

    @cache
    def seeds_of(self, name: str) -> tuple[int, ...]:
        """Return the seeds of a trajectory."""
        return self.trajectories[name].seeds_in(self)

    @lru_cache(None, typed=True)  # True is not 1
    def seeds_shown(self, name: str, headline: int) -> tuple[int, ...]:
        """Return the first seed, or so many; all if True, and for runs with own seeds."""
        found, run = self.seeds_of(name), self.run(name)
        own = run is not None and (run.seeds or run.whole(self).seeds)
        return found if headline is True or own else found[: headline or 1]

    @cache
    def shards(self, name: str) -> dict[str, list[Point]]:
        """Return the measured checkpoints by shard; a shard is one job."""
        points, size = self.measured(name), self.scale.shard
        if size is None:
            return {"all": points}
        parts = [points[start : start + size] for start in range(0, len(points), size)]
        return {part[0].id: part for part in parts}


class PlannedTrajectory(Strict):
    """A kind of trajectory; `stage` builds it, and `family` overrides that of its sources."""

    stage: ClassVar[str]
    family: Annotated[str, Field(min_length=1)] | None = None

    def sources(self) -> Mapping[str, str]:
        """Return the names of its source trajectories by label."""
        return {}

    @abstractmethod
    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Return all checkpoints in order."""

    def measured(self, timeline: Timeline) -> list[Point]:
        """Return the checkpoints that are measured."""
        return self.checkpoints(timeline)

    def run(self, name: str, timeline: Timeline) -> str:
        """Return the name of the run whose learning rate it follows."""
        return name

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Return its model, corpus and batches."""
        return timeline.trajectories[self._last_source()].model_shape(timeline)

    def trained_by(self, timeline: Timeline) -> str:
        """Return its family."""
        return self.family or timeline.trajectories[self._last_source()].trained_by(timeline)

    def uncertain(self, timeline: Timeline) -> tuple[str | None, bool]:
        """Return what is uncertain about a public model, and whether its learning rate is."""
        return None, False

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Return the seeds that all sources have."""
        sources = [timeline.trajectories[name] for name in self.sources().values()]
        first, *others = [source.seeds_in(timeline) for source in sources]
        return tuple(seed for seed in first if all(seed in seeds for seeds in others))

    def _last_source(self) -> str:
        return list(self.sources().values())[-1]

    def check(self, place: str, timeline: Timeline) -> None:
        """Raise `Problem` if it cannot be built; `place` is its key in the configuration."""
