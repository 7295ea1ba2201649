"""Types of config/runs.yaml: runs and averages."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from ptq_dynamics.config.fields import Rate, Share, Strict
from ptq_dynamics.config.names import Named

OptimizerKind = Literal["adamw", "adamw-independent", "adamc"]


class Optimizer(Strict):
    """A kind of AdamW and its settings; `clip` is the largest gradient norm.

    In one step at rate lr, weight decay takes from a weight p: adamw, p·lr·weight_decay;
    adamw-independent, p·(lr/peak)·weight_decay; adamc, p·lr·(lr/peak)·weight_decay.
    """

    kind: OptimizerKind
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]
    eps: Rate
    weight_decay: Annotated[float, Field(ge=0)]
    clip: Rate


class OptimizerChange(Strict):
    """What a run's optimizer has other than the default."""

    kind: OptimizerKind | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None


class Whole(Strict):
    """A run from fresh weights; `floor` is the final share of the peak learning rate; `cooldown`
    and `shape` belong to the schedule wsd."""

    model: str = "main"
    schedule: Literal["constant", "wsd", "cosine"]
    peak_lr: Rate
    length: Share
    cooldown: Share | None = None
    shape: Literal["linear", "1-sqrt"] = "linear"
    warmup: Share | None = None
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    checkpoint_every: Share | None = None
    state_every: Share | None = None
    state_at: list[Share] = []
    optimizer: OptimizerChange = OptimizerChange()

    @model_validator(mode="after")
    def _has_cooldown(self) -> "Whole":
        if (self.cooldown is not None) != (self.schedule == "wsd"):
            raise ValueError("cooldown goes with schedule wsd, and wsd with a cooldown")
        steady = self.length - (self.cooldown or 0)
        if steady < (self.warmup or 0):
            raise ValueError(
                f"warmup {self.warmup} and cooldown {self.cooldown} do not fit into length "
                f"{self.length}"
            )
        return self


class Branch(Strict):
    """A cooldown that goes on from another run's state; `floor` as a share of the peak."""

    trunk: str
    at: Share
    cooldown: Share
    shape: Literal["linear", "1-sqrt"] = "linear"
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    checkpoint_every: Share | None = None


def _kind_of_run(data: Any) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "whole"


Run = Annotated[
    Annotated[Whole, Tag("whole")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class Lawa(Strict):
    """Uniform mean of the last `window` checkpoints, one `every` so often, of one run."""

    trajectory: str
    every: Share
    window: Annotated[int, Field(ge=2)]


class Interpolation(Strict):
    """The line from the last checkpoint of one trajectory to that of another, in `points` equal
    steps, both ends counted."""

    start: str
    end: str
    points: Annotated[int, Field(ge=2)]


def _kind_of_average(data: Any) -> str:
    line = "start" in data if isinstance(data, dict) else isinstance(data, Interpolation)
    return "line" if line else "lawa"


Average = Annotated[
    Annotated[Lawa, Tag("lawa")] | Annotated[Interpolation, Tag("line")],
    Discriminator(_kind_of_average),
]


class RunDefaults(Strict):
    """What runs share unless they say otherwise."""

    optimizer: Optimizer
    warmup: Share
    checkpoint_every: Share


class Runs(Strict):
    """Controlled runs and the averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: Named[Run]
    averages: Named[Average]
