"""Stages after pre-training, which go on with the weights at the end of another run, and with
nothing else of it: long context, mid-training, supervised fine-tuning, preferences.
"""

from collections.abc import Mapping
from dataclasses import replace

from ptq_dynamics.base.fields import Context, Count, Rate, Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.runs import Run, Whole
from ptq_dynamics.corpus.sources.dialogues import DialoguesCorpus
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.timeline import Point, Timeline, TrainedShape
from ptq_dynamics.train.trajectory import step_id


class Stage(Run):
    """What comes `after` a run, called `name` in tables: over its `length`, a warmup to the rate
    `used_lr` at this scale, then half a cosine to its share `floor`, towards an `objective`, with
    an optimizer that begins anew.

    It is trained on its `corpus`, or that of the run, in a `batch` of sequences of `context`
    tokens, with a rotary embedding to the base `rotary_base`, or that of the run before; what is
    measured of it reads what is measured of the run before.
    """

    after: str
    name: str
    objective: AnyObjective
    length: Share
    warmup: Share
    used_lr: Rate
    batch: Count
    context: Context
    rotary_base: Rate | None = None
    corpus: str | None = None
    optimizer: AnyOptimizer
    points: Count
    unknown: str | None = None

    def sources(self) -> Mapping[str, str]:
        """The run it comes after."""
        return {"after": self.after}

    def before(self, timeline: Timeline) -> Run:
        """The run it comes after."""
        found = timeline.trajectory(self.after)
        assert isinstance(found, Run)
        return found

    def whole(self, timeline: Timeline) -> Whole:
        """The run from fresh weights that it all began with."""
        return self.before(timeline).whole(timeline)

    def uncertain(self, timeline: Timeline) -> str | None:
        """What is uncertain of it, and of that."""
        found = (self.unknown, super().uncertain(timeline))
        return "; ".join(filter(None, found)) or None

    def trained(self, timeline: Timeline) -> TrainedShape:
        """With what is its own."""
        shape, model = self.model_shape(timeline), self.before(timeline).trained(timeline).model
        if self.rotary_base is not None:
            model = model.model_copy(update={"rotary_base": self.rotary_base})
        corpus = self.corpus or self.whole(timeline).model_shape(timeline).corpus
        return replace(
            shape,
            model=model,
            corpus=corpus,
            batch=self.batch,
            context=self.context,
            micro_batch=None,
        )

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """From the end of the run before, over its length."""
        _, first = self.before(timeline).ends(timeline)
        return first, first + timeline.steps(self.length)

    def tokens_before(self, timeline: Timeline) -> int:
        """Those of the run before."""
        return self.before(timeline).tokens(timeline)

    def start(self, timeline: Timeline) -> str:
        """Id of the checkpoint whose weights it begins with."""
        return timeline.checkpoints(self.after)[-1].id

    def warmup_steps(self, timeline: Timeline) -> int:
        """Steps of its warmup."""
        return timeline.steps(self.warmup)

    def optimizer_in(self, timeline: Timeline) -> AnyOptimizer:
        """Its own, which is this scale's already."""
        return self.optimizer

    def measured_every(self, timeline: Timeline) -> int:
        """So that there are as many as the scale says."""
        return max(1, timeline.steps(self.length) // self.points)

    def spacing(self, timeline: Timeline) -> int:
        """As they are measured."""
        return self.measured_every(timeline)

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One so often after its beginning, which is the end of the run before, and its end."""
        (first, last), every = self.ends(timeline), self.spacing(timeline)
        steps = sorted({*range(first + every, last, every), last})
        return [Point(step_id(step), step) for step in steps]

    def check(self, place: str, timeline: Timeline) -> None:
        """It comes after a run, on text of that one's tokenizer, as its objective needs it."""
        if not isinstance(timeline.trajectory(self.after), Run):
            raise Problem(f"{place}.after is {self.after!r}, which is not trained; name a run")
        shape = self._check_text(place, self.model_shape(timeline), self.after, timeline)
        found = timeline.scale.corpora[shape.corpus]
        if self.objective.of_dialogues and not isinstance(found, DialoguesCorpus):
            raise Problem(
                f"{place}.objective is {self.objective.kind!r}, which is learned from dialogues, "
                f"and corpus {shape.corpus!r} has none; take one of source dialogues"
            )
