"""Averages of checkpoints in config/runs.yaml, one class a kind (see `kinds`)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import exp
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag

from ptq_dynamics.base.fields import Once, Rate, Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.kinds import Point, Timeline, Trajectory, tokenized
from ptq_dynamics.train.average_settings import (
    MERGED,
    AverageSettings,
    Ingredient,
    LastSettings,
    LawaSettings,
    LineSettings,
    MergeSettings,
    Tail,
    TailsSettings,
)
from ptq_dynamics.train.trajectory import step_id


class Averaged(Trajectory):
    """Averages of checkpoints."""

    stage: ClassVar[str] = "train.average"

    @abstractmethod
    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """What its stage needs to make these points."""

    def _check_sources(self, place: str, does: str, timeline: Timeline) -> None:
        """They have one shape of model, one tokenizer, and a seed alike; `does` says what it does
        with them."""
        shapes = [timeline.trajectory(n).model_shape(timeline) for n in self.sources().values()]
        if len({(shape.model.weights, tokenized(shape, timeline)) for shape in shapes}) > 1:
            raise Problem(
                f"{place} {does}, whose models have other shapes or tokenizers; take those of one "
                "model"
            )
        if not self.seeds_in(timeline):
            raise Problem(f"{place} {does}, which have no seed alike")


class OfOne(Averaged):
    """Means of checkpoints of one trajectory."""

    trajectory: str

    def sources(self) -> Mapping[str, str]:
        """The trajectory whose checkpoints it averages."""
        return {"trajectory": self.trajectory}


class Lawa(OfOne):
    """Uniform mean of the last `window` checkpoints, one `every` so often, of one trajectory; one
    wherever that is measured and has so many checkpoints behind it."""

    every: Share
    window: Annotated[int, Field(ge=2)]

    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """Their ids, and what is in each."""
        ids = tuple(point.id for point in points)
        return LawaSettings("lawa", ids, timeline.steps(self.every), self.window)

    def members(self, step: int, timeline: Timeline) -> list[int]:
        """Steps of the checkpoints in the average at `step`, the last one last."""
        every = timeline.steps(self.every)
        return [step - every * back for back in reversed(range(self.window))]

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Those measured points of the source that have a whole window behind them."""
        known = {point.step for point in timeline.checkpoints(self.trajectory)}
        return [
            point
            for point in timeline.measured(self.trajectory)
            if point.step is not None and known.issuperset(self.members(point.step, timeline))
        ]

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one average."""
        steps = [point.step for point in timeline.checkpoints(self.trajectory)]
        # A source without any is answered itself.
        if steps and not self.checkpoints(timeline):
            every = timeline.steps(self.every)
            raise Problem(
                f"{place} has no checkpoint of {self.trajectory} with {self.window - 1} others "
                f"before it, each {every} steps apart: its {len(steps)} checkpoints begin with "
                f"{steps[:3]} and end at {steps[-1]}; change every or window, or checkpoint_every "
                "of the run"
            )


# Memories after which a checkpoint weighs 2e-9 of the last one: less than float32 tells apart.
FORGOTTEN = 20


class Tails(OfOne):
    """Several means of the last checkpoints of one trajectory, all at its end."""

    @abstractmethod
    def tails(self, timeline: Timeline) -> list[Tail]:
        """What is in each of them."""

    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """What is in each."""
        chosen = {point.id for point in points}
        tails = (tail for tail in self.tails(timeline) if tail.id in chosen)
        return TailsSettings("tails", tuple(tails))

    def end(self, timeline: Timeline) -> int:
        """Step of the trajectory's last checkpoint."""
        return timeline.measured(self.trajectory)[-1].step or 0

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a mean, all at the last step."""
        return [Point(tail.id, self.end(timeline)) for tail in self.tails(timeline)]

    def ages(self, timeline: Timeline) -> dict[str, float]:
        """Mean age of what is in each, in steps before the end, by the checkpoint's id."""
        return {tail.id: tail.mean_age for tail in self.tails(timeline)}

    def _known(self, timeline: Timeline) -> set[int | None]:
        return {point.step for point in timeline.checkpoints(self.trajectory)}

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one."""
        if timeline.checkpoints(self.trajectory) and not self.tails(timeline):
            raise Problem(
                f"{place} has no average for which {self.trajectory} has the checkpoints; change "
                "its intervals, or checkpoint_every of the run"
            )


class Windows(Tails):
    """Uniform means of the last `window` checkpoints, one for each of the `intervals` between them
    that the run has room and checkpoints for."""

    intervals: Annotated[tuple[Share, ...], Field(min_length=1), Once]
    window: Annotated[int, Field(ge=2)]

    def tails(self, timeline: Timeline) -> list[Tail]:
        """One an interval."""
        end, known = self.end(timeline), self._known(timeline)
        found = []
        for every in dict.fromkeys(map(timeline.steps, self.intervals)):
            weights = dict.fromkeys((end - every * back for back in range(self.window)), 1.0)
            if known.issuperset(weights):
                found.append(Tail.of(f"every-{every}", weights))
        return found


class Exponential(Tails):
    """Means of all checkpoints, one `every` so often, with the weight exp(−age / memory), one mean
    for each of the `memories`."""

    every: Share
    memories: Annotated[tuple[Share, ...], Field(min_length=1), Once]

    def tails(self, timeline: Timeline) -> list[Tail]:
        """One a memory."""
        end, every, known = self.end(timeline), timeline.steps(self.every), self._known(timeline)
        steps = range(end, min(step or 0 for step in known) - 1, -every)
        if len(steps) < 2 or not known.issuperset(steps):
            return []
        found = []
        for memory in dict.fromkeys(map(timeline.steps, self.memories)):
            near = [step for step in steps if end - step <= FORGOTTEN * memory]
            # Rounded: the last digit of exp may differ between machines.
            weights = {step: float(f"{exp((step - end) / memory):.12g}") for step in near}
            found.append(Tail.of(f"memory-{memory}", weights))
        return found


class Line(Averaged):
    """The line from the last checkpoint of one trajectory to that of another, in `points` equal
    steps, both ends counted."""

    start: str
    end: str
    points: Annotated[int, Field(ge=2)]

    def sources(self) -> Mapping[str, str]:
        """Its two ends."""
        return {"start": self.start, "end": self.end}

    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """Their numbers."""
        numbers = tuple(point.step for point in points if point.step is not None)
        return LineSettings("line", numbers, self.points)

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a point, numbered from the start."""
        return [Point(step_id(number), number) for number in range(self.points)]

    def check(self, place: str, timeline: Timeline) -> None:
        """Both ends have one shape of model, one tokenizer, and a seed alike."""
        self._check_sources(place, f"goes from {self.start} to {self.end}", timeline)


class Merge(Averaged):
    """One mean of the last measured checkpoints of several trajectories, with weights by their
    names, of which the shares count, or with equal ones; the last one named decides how it is
    saved. Of one alone, it is the end of that: what is released may be one ingredient."""

    merge: (
        Annotated[dict[str, Rate], Field(min_length=1)]
        | Annotated[tuple[str, ...], Field(min_length=1), Once]
    )

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of every trajectory by name."""
        return self.merge if isinstance(self.merge, dict) else dict.fromkeys(self.merge, 1.0)

    def sources(self) -> Mapping[str, str]:
        """The trajectories at whose ends its ingredients lie."""
        return {f"merge.{name}": name for name in self.weights}

    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """Its ingredients."""
        ingredients = (
            Ingredient(label, timeline.measured(name)[-1].id, self.weights[name])
            for label, name in self.sources().items()
        )
        return MergeSettings("merge", tuple(ingredients))

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """The one that it is."""
        return [Point(MERGED, None)]

    def check(self, place: str, timeline: Timeline) -> None:
        """Its ingredients have one shape of model, one tokenizer, and a seed alike."""
        self._check_sources(place, f"merges {', '.join(self.weights)}", timeline)


class Last(OfOne):
    """Uniform mean of the last `last` measured checkpoints of one trajectory, whatever lies between
    them, or of those that its authors averaged, where they are known; one wherever that has so
    many."""

    last: Annotated[int, Field(ge=2)]

    def _points(self, timeline: Timeline) -> list[Point]:
        measured = timeline.measured(self.trajectory)
        return timeline.trajectory(self.trajectory).averaged_of(measured)

    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """What is in each."""
        chosen = {point.id for point in points}
        ids = [point.id for point in self._points(timeline)]
        windows = (tuple(ids[end - self.last : end]) for end in range(self.last, len(ids) + 1))
        return LastSettings("last", tuple(found for found in windows if found[-1] in chosen))

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Those points of the source that have enough before them."""
        return self._points(timeline)[self.last - 1 :]

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one average."""
        count, measured = len(self._points(timeline)), len(timeline.measured(self.trajectory))
        # A source without any is answered itself.
        if 0 < count < self.last:
            named = ", of which it names some as averaged" if count < measured else ""
            raise Problem(
                f"{place}.last is {self.last}, but {self.trajectory} has {count} measured "
                f"checkpoints{named}; lower it, or measure more of them"
            )


# What stands in an entry of each kind and in no other.
KINDS = {
    "start": "line",
    "intervals": "windows",
    "memories": "exponential",
    "merge": "merge",
    "last": "last",
}
TAGS: dict[type, str] = {
    Lawa: "lawa",
    Line: "line",
    Windows: "windows",
    Exponential: "exponential",
    Merge: "merge",
    Last: "last",
}


def _kind_of_average(data: Any) -> str:
    if isinstance(data, dict):
        return next((kind for key, kind in KINDS.items() if key in data), "lawa")
    return TAGS.get(type(data), "lawa")


Average = Annotated[
    Annotated[Lawa, Tag("lawa")]
    | Annotated[Line, Tag("line")]
    | Annotated[Windows, Tag("windows")]
    | Annotated[Exponential, Tag("exponential")]
    | Annotated[Merge, Tag("merge")]
    | Annotated[Last, Tag("last")],
    Discriminator(_kind_of_average),
]
