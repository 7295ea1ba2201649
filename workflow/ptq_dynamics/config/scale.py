"""Types of config/scales/SCALE.yaml."""

from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Count, Factor, Name, Named, Once, Rate, Seed, Share, Strict
from ptq_dynamics.corpus.corpus import AnyCorpus
from ptq_dynamics.corpus.sources import Derived, WholeCorpus
from ptq_dynamics.curvature.probes import AnyProbe, Probe
from ptq_dynamics.train.architectures import AnyArchitecture

Shots = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Regime(Strict):
    """Factors that make the runs of a scale resemble the paper's; see `dev regime`. AdamW and AdamC
    take `weight_decay_factor`; AdamW with independent decay takes both factors. `batch` is in
    sequences. `left_out` names runs that the scale cannot have, with reasons."""

    peak_lr_factor: Rate
    weight_decay_factor: Rate
    warmup_factor: Rate
    batch: Count
    left_out: dict[str, str] = {}


class MeasuredPoints(Strict):
    """Spacing of measured checkpoints; short runs have about `trunk_least` intervals."""

    trunk_every: Share
    trunk_least: Count
    cooldown_every: Share


class Text(Strict):
    """The beginning of a split, in `blocks` of the model's context or in `tokens`."""

    split: ClassVar[str]
    least: ClassVar[int] = 1  # least number of blocks
    blocks: Count | None = None
    tokens: Count | None = None

    @model_validator(mode="after")
    def _one(self) -> "Text":
        if [self.blocks, self.tokens, getattr(self, "documents", None)].count(None) != 2:
            raise ValueError("takes one of blocks, tokens and, for calibration, documents")
        return self

    def count(self, context: int) -> int:
        """Return the number of blocks of `context` tokens."""
        return self.blocks or (self.tokens or 0) // context


class Evaluation(Text):
    """Validation text; `batch` is in blocks."""

    split = "validation"
    least = 2  # one block has no standard error
    batch: Count


class CalibrationSet(Text):
    """Calibration text; `batch` is in blocks. Alternatively a set has `documents`, each cut to the
    model's context and read alone. `draws` limits the sets for each quantizer of a figure."""

    split = "calibration"
    documents: Count | None = None
    batch: Count
    draws: Count = 1


class Curvature(Text):
    """Text and parameters of the probes of the Hessian; `batch` is in blocks. The power iteration
    ends at the relative residual `tolerance`. `keep_graph` keeps the gradient's graph between
    products, which is faster and needs memory for all blocks."""

    split = "probe"
    batch: Count
    tolerance: Rate
    max_iterations: Count
    keep_graph: bool
    probes: tuple[AnyProbe, ...]

    @model_validator(mode="after")
    def _kinds_differ(self) -> "Curvature":
        if len({probe.kind for probe in self.probes}) < len(self.probes):
            raise ValueError("probes has a kind twice; keep one")
        return self

    def probe(self, kind: str) -> Probe:
        """Return the probe of a kind."""
        return next(probe for probe in self.probes if probe.kind == kind)


class LandscapeGrid(Text):
    """A square grid of side × side points that extends by the share `margin` beyond three
    checkpoints. The loss on the grid, and what a model's blocks carry of the loss, are measured on
    this validation text."""

    split = "validation"
    side: Annotated[int, Field(ge=2)]
    margin: Annotated[float, Field(ge=0)]


class Miniatures(Strict):
    """Miniatures of public families. `length` is the share of the budget for a family's longest
    path, `stage` that of a stage after pre-training. A peak rate is the family's, times the ratio
    of widths to the power `rate_exponent`, or to the family's power in `exponents`. `e_folds` is a
    factor on the sum of rate times weight decay, `warmup` the least share. `measured` and others
    are numbers of checkpoints. `widen` multiplies widths, `deepen` layers, rounded up."""

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
    """The tasks of a scale, by `names` in config/tasks.yaml. Each uses `documents`, or all if null,
    in a `batch` of sequences, after `shots` examples; `shots_of` overrides this by task. Generated
    tasks draw examples from a `pool` of this size, and also ask about packages `others`, which no
    corpus trains on. Prompts of released models have at most `context` tokens. The mean leaves out
    tasks `at_chance`, if known: the last stage is less than 2 standard errors above chance."""

    names: Annotated[tuple[Name, ...], Field(min_length=1), Once]
    documents: Annotated[int, Field(ge=2)] | None
    batch: Count
    shots: Shots
    shots_of: dict[str, Shots] = {}
    pool: Count = 1
    context: Count | None = None
    others: Annotated[tuple[str, ...], Once] = ()
    at_chance: Annotated[tuple[str, ...], Once] | None = None

    @model_validator(mode="after")
    def _are_named(self) -> "Tasks":
        if unknown := {*(self.at_chance or ()), *self.shots_of} - {*self.names}:
            raise ValueError(f"at_chance or shots_of has {min(unknown)!r}, which is not in names")
        return self

    def shots_before(self, task: str) -> int:
        """Return the number of examples before each question of a task."""
        return self.shots_of.get(task, self.shots)


class Amounts(Strict):
    """A time limit in `minutes`, main `memory` in MB, and `gpus`, rounded up."""

    minutes: Amount = 0
    memory: Amount = 0
    gpus: Amount = 0


class Request(Amounts):
    """Resources of one job of a rule, and more per billion weights of its model. Only a cluster
    reads these numbers, times the number of the attempt. Results do not depend on them."""

    per_billion: Amounts = Amounts()


class Requests(Strict):
    """Resources of the jobs of some `rules` of Snakemake, and the `default` for all others."""

    default: Request
    rules: dict[str, Request] = {}


class Keep(Strict):
    """The weights that remain after all jobs that read them. A job that needs dropped weights later
    repeats their job. The states of a run are dropped with the first weights. Only measured
    checkpoints are quantized."""

    train: Literal["all", "measured", "none"] = "all"
    fetch: Literal["all", "none"] = "all"
    average: Literal["all", "measured", "none"] = "all"
    quantize: Literal["all", "none"] = "all"


class Scale(Strict):
    """The numbers of one scale. Builds and outcomes show `note`. `budget` and `log_every` are in
    steps. `quantizers` replaces quantizers in figures. `make release` builds headline figures with
    `release_seeds`, too. Figures in `most_seeds` have at most so many seeds. Results do not depend
    on `threads`, `jobs_per_device` (jobs that share a GPU), `warm` and `resources`."""

    description: str
    note: str | None = Field(None, exclude=True)
    release_seeds: Annotated[tuple[Seed, ...], Once] = ()
    most_seeds: dict[str, Count] = {}
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

    def used(self, quantizer: str) -> str:
        """Return the quantizer that replaces one of a figure."""
        return self.quantizers.get(quantizer, quantizer)

    def held_by(self, corpus: str) -> str:
        """Return the corpus that has the tokenizer and the held-out splits of a corpus."""
        entry = self.corpora[corpus]
        return entry.of if isinstance(entry, Derived) else corpus

    def base_corpus(self, corpus: str) -> WholeCorpus:
        """Return the settings of the corpus that `held_by` names."""
        entry = self.corpora[self.held_by(corpus)]
        assert isinstance(entry, WholeCorpus)
        return entry
