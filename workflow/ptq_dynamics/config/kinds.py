"""What every kind of trajectory answers.

A kind answers what is asked of every trajectory: what it is made from, its model and corpus, its
seeds, its checkpoints and which of them are measured, and whether it can be made at all. The
answers need the scale's numbers and the other trajectories, which a `Timeline` has.
"""

import difflib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

from pydantic import Field

from ptq_dynamics.base.fields import Rate, Share, Strict, keys_of
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.models import ModelShape
from ptq_dynamics.config.scale import Scale, TrainedShape
from ptq_dynamics.train.optimizers import kinds

Optimizer = Annotated[kinds.Optimizer, keys_of(kinds.Optimizer, "kind")]


class Point(NamedTuple):
    """A checkpoint before it exists: its id, unique in its trajectory, and its step, if any."""

    id: str
    step: int | None


class RunDefaults(Strict):
    """What runs share unless they say otherwise; `clip` is the largest gradient norm."""

    optimizer: Optimizer
    clip: Rate
    warmup: Share
    checkpoint_every: Share


class Timeline(Protocol):
    """What kinds ask about the scale and about other trajectories."""

    scale: Scale
    defaults: RunDefaults
    seeds: tuple[int, ...]

    def trajectory(self, name: str) -> "Trajectory":
        """A trajectory by name."""

    def trunks(self) -> list[str]:
        """Names of the runs that others can branch from."""

    def steps(self, share: Any) -> int:
        """A share of the budget in whole steps, at least one."""

    def checkpoints(self, name: str) -> list[Point]:
        """The checkpoints of a trajectory, in their order."""

    def measured(self, name: str) -> list[Point]:
        """Those of its checkpoints that are quantized, evaluated and probed."""


# Names of a kind that an error lists.
MOST_KNOWN = 20


def require(place: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `Problem` when a name is not one of those known."""
    for name in names:
        if name not in known:
            near = [*known]
            if len(near) > MOST_KNOWN:
                near = difflib.get_close_matches(name, near, 3, 0)
            said = "known" if len(near) == len([*known]) else "the nearest"
            raise Problem(f"{place} names no known {kind}: {name!r} ({said}: {', '.join(near)})")


def tokenized(shape: ModelShape | TrainedShape, timeline: Timeline) -> tuple[object, ...]:
    """What two models have alike whose tokens mean the same."""
    return timeline.scale.whole(shape.corpus).tokenized


def require_text(
    place: str, mine: TrainedShape, before: TrainedShape, name: str, timeline: Timeline
) -> None:
    """Raise `Problem` when what goes on from the run of this name is not trained on a known corpus
    with the tokenizer of that."""
    require(f"{place}.corpus", "corpus", [mine.corpus], timeline.scale.corpora)
    if tokenized(mine, timeline) != tokenized(before, timeline):
        raise Problem(
            f"{place}.corpus is {mine.corpus!r}, whose tokenizer is not that of {before.corpus!r}, "
            f"which {name} is trained on; take a corpus with one tokenizer"
        )


class Trajectory(Strict):
    """A kind of trajectory; `family` is who trained it, if other than what it is made from, `stage`
    the code that makes it."""

    stage: ClassVar[str]
    family: Annotated[str, Field(min_length=1)] | None = None

    @abstractmethod
    def sources(self) -> Mapping[str, str]:
        """Names of the trajectories that it is made from, by what they are to it."""

    @abstractmethod
    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """All its checkpoints, in their order."""

    def measured(self, timeline: Timeline) -> list[Point]:
        """Those of its checkpoints that are measured."""
        return self.checkpoints(timeline)

    def averaged_of(self, measured: list[Point]) -> list[Point]:
        """Those of its measured checkpoints that averages of the last ones take."""
        return measured

    def run(self, name: str, timeline: Timeline) -> str:
        """The run whose learning rate it follows; `name` is its own."""
        source = self._last_source()
        return timeline.trajectory(source).run(source, timeline)

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Shape of its model, with the batch, the context and the corpus it is trained with."""
        return timeline.trajectory(self._last_source()).model_shape(timeline)

    def trained_by(self, timeline: Timeline) -> str:
        """Its family."""
        return self.family or timeline.trajectory(self._last_source()).trained_by(timeline)

    def uncertain(self, timeline: Timeline) -> str | None:
        """What is uncertain of the public model that it is or stands for."""
        return None

    def has_uncertain_rate(self, timeline: Timeline) -> bool:
        """Whether publications give the learning rate of that differently."""
        return False

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """The seeds that it is made for: those that all its sources have."""
        sources = [timeline.trajectory(name) for name in self.sources().values()]
        first, *others = [source.seeds_in(timeline) for source in sources]
        return tuple(seed for seed in first if all(seed in seeds for seeds in others))

    def _last_source(self) -> str:
        return list(self.sources().values())[-1]

    def check(self, place: str, timeline: Timeline) -> None:
        """Raise `Problem` when it cannot be made; `place` is its key in the configuration."""
