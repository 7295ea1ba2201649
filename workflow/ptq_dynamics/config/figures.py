"""Types of config/figures.yaml: one for every layout, which is a module in figures/layouts/."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Once, Share, Strict
from ptq_dynamics.config.queries import Query
from ptq_dynamics.figures.settings import UNDER, in_group
from ptq_dynamics.measure.names import (
    INCREASE,
    LOSS,
    PROBES,
    QUANTIZED,
    AlongStages,
    ErrorOrCurvature,
    ErrorThenLoss,
    Evaluated,
    LossOrIncrease,
    Metric,
    OfRuns,
)

# As many as there are styles of lines.
MOST_CURVES = 8


class Drawing(Query):
    """A query, its title and caption for those who read the figure, and how it is drawn. A
    `headline` figure shows all seeds of the configuration, others the first."""

    title: Annotated[str, Field(min_length=1)]
    caption: Annotated[str, Field(min_length=1)]
    headline: bool = False
    layout: str
    options: Strict = Strict()

    @property
    def styles(self) -> list[str]:
        """Names of what is told apart by the style of lines."""
        return list(self.curves)

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        if len(self.styles) > MOST_CURVES:
            raise ValueError(
                f"curves: there are {len(self.styles)}, and {MOST_CURVES} can be told apart; "
                "take fewer"
            )
        return self


class Measured(Drawing):
    """A figure of metrics. One that has quantizers has a metric that it shows under them."""

    metrics: Annotated[tuple[Metric, ...], Field(min_length=1), Once]
    quantized: ClassVar[frozenset[str]] = QUANTIZED

    @model_validator(mode="after")
    def _shows_quantizers(self) -> Self:
        if self.quantizers:
            self._has(self.quantized, f"what it shows under {self.quantizers[0]}")
        return self

    def _has(self, wanted: frozenset[str], what: str) -> None:
        if not wanted & {*self.metrics}:
            raise ValueError(f"metrics has nothing of {what}: {', '.join(sorted(wanted))}")


Evaluations = Annotated[tuple[Evaluated, ...], Field(min_length=1), Once]


class OverTokensOptions(Strict):
    """`quantized_losses`: the loss under every quantizer beside that in full precision; `phases`:
    further panels along what branches off, from its beginning to its end."""

    quantized_losses: bool = False
    phases: bool = False


class OverTokens(Measured):
    """Every metric against tokens: a panel for each quantizer, or one in full precision."""

    layout: Literal["over_tokens"]
    metrics: Evaluations
    options: OverTokensOptions = OverTokensOptions()

    @model_validator(mode="after")
    def _shows_quantizers(self) -> Self:
        asked = self.options.quantized_losses
        if self.quantizers and not (asked and LOSS in self.metrics):
            self._has(self.quantized, f"what it shows under {self.quantizers[0]}")
        if asked and not (LOSS in self.metrics and self.quantizers):
            raise ValueError(
                "options.quantized_losses goes with the metric loss and quantizers; name them, or "
                "leave it out"
            )
        for label in self.curves if asked else ():
            if (of := UNDER.fullmatch(label)) and of[1] in self.curves:
                raise ValueError(
                    f"curves: {label!r} is what options.quantized_losses may call {of[1]!r} "
                    "under a quantizer; rename it"
                )
        return self


class DynamicsOptions(Strict):
    """`lineage`: a curve with a run and a branch of it goes over to the branch; `log`: logarithmic
    vertical axes."""

    lineage: bool = False
    log: bool = False


class Dynamics(Measured):
    """What runs show while they train, and errors beside it, against tokens."""

    layout: Literal["dynamics"]
    metrics: Annotated[tuple[OfRuns, ...], Field(min_length=1), Once]
    options: DynamicsOptions = DynamicsOptions()


class LossesOptions(Strict):
    """What is on the horizontal axis: tokens, or the share of the way along a line between
    checkpoints."""

    against: Literal["tokens", "share"] = "tokens"


class Losses(Measured):
    """The loss in full precision and under every quantizer, and the errors between."""

    layout: Literal["losses"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: LossesOptions = LossesOptions()


class ParametricOptions(Strict):
    """`losses_of`: quantizers under which the loss is drawn; all of the figure's unless stated."""

    losses_of: Annotated[tuple[str, ...], Field(min_length=1), Once] | None = None


class Parametric(Measured):
    """The error under the first quantizer against tokens, and losses after quantization against
    those before it."""

    layout: Literal["parametric"]
    quantizers: Annotated[tuple[str, ...], Field(min_length=1), Once]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: ParametricOptions = ParametricOptions()

    @model_validator(mode="after")
    def _has_losses(self) -> Self:
        self._has(frozenset({LOSS}), "its panels of losses")
        unknown = {*(self.options.losses_of or ())} - {*self.quantizers}
        if unknown:
            raise ValueError(
                f"options.losses_of: {min(unknown)!r} is none of the figure's quantizers "
                f"({', '.join(self.quantizers)})"
            )
        return self


class Ends(Measured):
    """Metrics of the last checkpoints against the tokens up to there, a line a curve; curves that
    are named "GROUP: NAME" are drawn in a row of panels for every group."""

    layout: Literal["ends"]
    metrics: Evaluations

    @property
    def styles(self) -> list[str]:
        """Names of what is told apart by the style of lines: curves within a group."""
        return list(dict.fromkeys(in_group(label)[1] for label in self.curves))


class Averages(Measured):
    """The loss under every quantizer, or how much it rises, against that in full precision, of
    averages beside the runs that they are made of; curves that are named "GROUP: NAME" are drawn in
    a panel for every group."""

    layout: Literal["averages"]
    quantizers: Annotated[tuple[str, ...], Field(min_length=1), Once]
    metrics: Annotated[tuple[LossOrIncrease, ...], Field(min_length=1), Once]
    quantized = frozenset({LOSS, INCREASE})

    @property
    def styles(self) -> list[str]:
        """Names of what is told apart by the style of lines: curves within a group."""
        return list(dict.fromkeys(in_group(label)[1] for label in self.curves))


class Onset(Measured):
    """The error under every quantizer against tokens, against the loss in full precision, and
    against the learning rate, with how much of its variance each of the latter two describes."""

    layout: Literal["onset"]
    quantizers: Annotated[tuple[str, ...], Field(min_length=1), Once]
    metrics: ErrorThenLoss


class Windows(Measured):
    """Averages at the end of a run, a point each, against the mean age of what is in them; of other
    trajectories the end is a level to compare with."""

    layout: Literal["windows"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}


class StagesOptions(Strict):
    """`ends`: the last checkpoint of every trajectory alone; `tasks`: a panel for the mean over
    tasks, or for each of them and the mean."""

    ends: bool = False
    tasks: Literal["mean", "each"] = "mean"


class Stages(Measured):
    """Metrics along what one model went through, a curve a stage, each with a stretch of the
    horizontal axis; accuracies with what chance gives."""

    layout: Literal["stages"]
    metrics: Annotated[tuple[AlongStages, ...], Field(min_length=1), Once]
    quantized = QUANTIZED
    options: StagesOptions = StagesOptions()


CURVATURE = frozenset(PROBES["sharpness"])


class Flatness(Measured):
    """Metrics of quantized weights against curvature, a point a checkpoint."""

    layout: Literal["flatness"]
    quantizers: Annotated[tuple[str, ...], Field(min_length=1), Once]
    metrics: Annotated[tuple[ErrorOrCurvature, ...], Once]

    @model_validator(mode="after")
    def _has_curvature(self) -> Self:
        self._has(CURVATURE, "its horizontal axis")
        return self


class Plane(Strict):
    """A plane through a trajectory's last checkpoint, its quantized weights and the checkpoint
    `previous` before."""

    previous: Share


class Landscapes(Drawing):
    """Loss landscapes, a panel for every curve of one trajectory, and every quantizer."""

    layout: Literal["landscapes"]
    curves: Annotated[
        dict[str, Annotated[tuple[str, ...], Field(min_length=1, max_length=1)]],
        Field(min_length=1),
    ]
    quantizers: Annotated[tuple[str, ...], Field(min_length=1), Once]
    metrics: tuple[()] = ()
    landscape: Plane

    @property
    def styles(self) -> list[str]:
        """Nothing: every curve has a panel of its own."""
        return []


class Pca(Drawing):
    """Where the checkpoints lie in the first two of `components` principal components."""

    layout: Literal["pca"]
    quantizers: tuple[()] = ()
    metrics: tuple[()] = ()
    components: Annotated[int, Field(ge=2)]


Figure = Annotated[
    OverTokens
    | Dynamics
    | Losses
    | Parametric
    | Ends
    | Averages
    | Onset
    | Stages
    | Windows
    | Flatness
    | Landscapes
    | Pca,
    Field(discriminator="layout"),
]
