"""Types of config/scales/SCALE.yaml: the numbers of one scale."""

from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Count, Factor, Name, Named, Once, Rate, Seed, Share, Strict
from ptq_dynamics.corpus.corpus import AnyCorpus
from ptq_dynamics.corpus.sources import Derived, WholeCorpus
from ptq_dynamics.train.architectures import AnyArchitecture
from ptq_dynamics.train.timeline import TrainedShape

Shots = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Regime(Strict):
    """What a scale makes of the paper's runs, so that its own are alike in what is dimensionless
    (`dev regime` prints it): factors on all peak learning rates, on the weight decay of AdamW and
    AdamC (that of AdamW with independent decay has both), and on warmups; the batch in sequences;
    and runs that cannot be made so, each with the reason."""

    peak_lr_factor: Rate
    weight_decay_factor: Rate
    warmup_factor: Rate
    batch: Count
    left_out: dict[str, str] = {}


class MeasuredPoints(Strict):
    """Which checkpoints are measured: one every so often, besides the first and the last; a short
    run, other than a cooldown, more often, to have about `trunk_least` intervals between them."""

    trunk_every: Share
    trunk_least: Count
    cooldown_every: Share


class Text(Strict):
    """The first of a split: so many `blocks` of the model's context, or so many `tokens`, cut into
    whole blocks; one of them."""

    split: ClassVar[str]
    least: ClassVar[int] = 1  # blocks that there must be
    blocks: Count | None = None
    tokens: Count | None = None

    @model_validator(mode="after")
    def _one(self) -> "Text":
        if [self.blocks, self.tokens, getattr(self, "documents", None)].count(None) != 2:
            raise ValueError("takes one of blocks, tokens and, for calibration, documents")
        return self

    def count(self, context: int) -> int:
        """Blocks of `context` tokens."""
        return self.blocks or (self.tokens or 0) // context


class Evaluation(Text):
    """Validation text, and how many blocks go at once."""

    split = "validation"
    least = 2  # one alone has no standard error
    batch: Count


class CalibrationSet(Text):
    """Calibration text, and how many blocks go at once; or so many `documents`, as long as they
    are but cut to the model's context, which go one by one. Of quantizers that a figure names
    several draws of, `draws` are taken."""

    split = "calibration"
    documents: Count | None = None
    batch: Count
    draws: Count = 1


class Curvature(Text):
    """How the Hessian is probed: text of the probe split, and how many blocks go at once; iteration
    until the eigenvalue is known to `tolerance` (relative residual); whether the gradient's graph
    is kept between products (faster, memory for all blocks); Rademacher vectors of the trace;
    eigenvalues of the spectrum, which is taken at one in `spectrum_every` measured checkpoints of a
    shard and at its last."""

    split = "probe"
    batch: Count
    tolerance: Rate
    max_iterations: Count
    keep_graph: bool
    trace_samples: Annotated[int, Field(ge=2)]
    sharpness_every: Count
    spectrum: Count
    spectrum_every: Count


class LandscapeGrid(Text):
    """A regular, square grid of side × side points that reaches `margin` of its side beyond the
    three checkpoints; the loss is that of some validation text. On the same text is measured what
    the blocks of a model carry."""

    split = "validation"
    side: Annotated[int, Field(ge=2)]
    margin: Annotated[float, Field(ge=0)]


class Miniatures(Strict):
    """Miniatures of public families: the share `length` of the budget, in the scale's batch, for a
    family's longest way; a peak rate that is the family's times the ratio of the widths to the
    power `rate_exponent`, or to the one of the family in `exponents`; the share `e_folds` of the
    family's sum of rate times weight decay; a warmup of at least the share `warmup`; cooldowns of
    at least `least_cooldown` steps; so many checkpoints `measured` of a run, and
    `measured_cooldown` of a cooldown; the share `stage` of the budget for each stage after
    pre-training, and `measured_stage` checkpoints of it; widths times `widen` and layers times
    `deepen`, rounded up."""

    length: Share
    rate_exponent: Rate
    exponents: Named[Rate] = {}
    e_folds: Rate = 1.0
    warmup: Share
    measured: Count
    measured_cooldown: Count
    least_cooldown: Count = 1
    stage: Share
    measured_stage: Count
    widen: Factor = Fraction(1)
    deepen: Factor = Fraction(1)


class Tasks(Strict):
    """The tasks of a scale, by `names` of config/tasks.yaml: `documents` of each (all that there
    are, where null), `batch` sequences at once, after `shots` examples, or as many as `shots_of`
    has for a task. Made tasks draw examples from a `pool` of so many, and ask also about documents
    of `others`, packages that nothing is trained on. A prompt has at most `context` tokens, which
    released models have to read; those trained here read no more than in training. Those
    `at_chance` are shown, and left out of the mean: in full precision, what comes out of the last
    stage is less than 2 standard errors better on them than chance."""

    names: Annotated[tuple[Name, ...], Field(min_length=1), Once]
    documents: Annotated[int, Field(ge=2)] | None
    batch: Count
    shots: Shots
    shots_of: dict[str, Shots] = {}
    pool: Count = 1
    context: Count | None = None
    others: Annotated[tuple[str, ...], Once] = ()
    at_chance: Annotated[tuple[str, ...], Once] = ()

    @model_validator(mode="after")
    def _are_named(self) -> "Tasks":
        if unknown := {*self.at_chance, *self.shots_of} - {*self.names}:
            raise ValueError(f"at_chance or shots_of has {min(unknown)!r}, which names has not")
        return self

    def shots_before(self, task: str) -> int:
        """Examples before each question of a task."""
        return self.shots_of.get(task, self.shots)


class Amounts(Strict):
    """Time limit in `minutes`, main `memory` in MB, and `gpus`; of `gpus`, parts are rounded up."""

    minutes: Amount = 0
    memory: Amount = 0
    gpus: Amount = 0


class Request(Amounts):
    """What one job of a rule asks for, and how much more it asks for with each billion weights of
    the model that it is about. No result depends on it: a cluster is asked for these numbers, times
    the number of the attempt; on one machine nothing asks."""

    per_billion: Amounts = Amounts()


class Requests(Strict):
    """The request of each of some `rules` of Snakemake and, for all others, the `default`."""

    default: Request
    rules: dict[str, Request] = {}


class Keep(Strict):
    """What stays of trajectories once every job that reads their weights is done: all, the measured
    checkpoints, or none. What is dropped is made again when something new needs it. The states that
    runs branch from go with the first weights that go."""

    train: Literal["all", "measured", "none"] = "all"
    fetch: Literal["all", "none"] = "all"
    average: Literal["all", "measured", "none"] = "all"
    quantize: Literal["all", "measured", "none"] = "all"


class Scale(Strict):
    """The numbers of one scale; `note` stands beside outcomes; `budget` and `log_every` in steps;
    `quantizers` says which quantizer of config/quantizers.yaml this scale takes where a figure
    names another; `release_seeds` are those of headline figures in `make release`, beside the
    first.

    Of machines alone: `threads` of a job that computes; how many of them compute on one GPU at
    once, where no scheduler does (`jobs_per_device`); and what jobs ask of a cluster."""

    description: str
    note: str | None = Field(None, exclude=True)
    release_seeds: Annotated[tuple[Seed, ...], Once] = ()
    budget: Count
    regime: Regime
    models: Named[AnyArchitecture]
    precision: Literal["float32", "bfloat16"]
    compile: bool
    corpora: Named[AnyCorpus]
    log_every: Count
    measure: MeasuredPoints
    evaluation: Evaluation
    calibration: CalibrationSet
    curvature: Curvature
    landscape: LandscapeGrid
    tasks: Tasks | None = None
    miniatures: Miniatures | None = None
    quantizers: dict[str, str] = {}
    keep: Keep = Keep()
    shard: Count | None
    threads: Count
    jobs_per_device: Count = 1
    warm: bool
    resources: Requests

    def trained(self, model: str) -> TrainedShape:
        """A model as runs from fresh weights train it."""
        shape = self.models[model]
        reading = shape.corpus, shape.context, shape.micro_batch
        return TrainedShape(shape, *reading, self.regime.batch)

    def used(self, quantizer: str) -> str:
        """The quantizer that this scale takes where a figure names one."""
        return self.quantizers.get(quantizer, quantizer)

    def held_by(self, corpus: str) -> str:
        """Name of the corpus whose tokenizer and held-out splits one has: its own, or what it is
        derived of."""
        found = self.corpora[corpus]
        return found.of if isinstance(found, Derived) else corpus

    def whole(self, corpus: str) -> WholeCorpus:
        """The corpus whose tokenizer and held-out splits one has."""
        found = self.corpora[self.held_by(corpus)]
        assert isinstance(found, WholeCorpus)
        return found
