"""Types of config/runs.yaml: runs from fresh weights, and branches of these runs."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated

from pydantic import Discriminator, Field, Tag, model_validator

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Factor, Named, Once, Rate, Seed, Share, Strict
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import AnyScheduled, Floor, Shape
from ptq_dynamics.trajectories.averages import AnyAverage


class Run(Strict):
    """A run that a scale trains."""

    checkpoint_every: Share | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), Once] | None = None

    def sources(self) -> Mapping[str, str]:
        """Return the names of its source trajectories by label."""
        return {}


class Trunk(Run):
    """A run from fresh weights. `batch_factor` multiplies the batch of the scale's regime. The run
    may outlast the budget."""

    model: str = "main"
    schedule: AnyScheduled
    peak_lr: Rate
    length: Factor
    warmup: Share | None = None
    batch_factor: Factor = Fraction(1)
    state_every: Share | None = None
    state_at: list[Factor] = []
    optimizer: AnyOptimizer | None = None
    objective: Annotated[AnyObjective, Field(exclude_if=Language().__eq__)] = Language()

    @model_validator(mode="after")
    def _fits(self) -> "Trunk":
        self.schedule.check(self.length)
        return self


class Branch(Run):
    """A run from the state of its trunk: `steady` steps at a constant rate, if any, then a cooldown
    from the trunk's rate to the share `floor` of the peak rate. A branch starts at the beginning of
    its own `corpus`, or continues the data of its trunk. `batch_factor` multiplies the batch of the
    trunk. An average named `weights`, which ends at the branch point, replaces the weights of the
    trunk. An `objective` replaces that of the trunk."""

    trunk: str
    at: Factor
    cooldown: Share
    steady: Share | None = None
    shape: Shape = "linear"
    floor: Floor = 0.0
    corpus: str | None = None
    batch_factor: Factor = Fraction(1)
    weights: Annotated[str | None, Field(exclude_if=lambda name: name is None)] = None
    objective: Annotated[AnyObjective | None, Field(exclude_if=lambda kind: kind is None)] = None

    def sources(self) -> Mapping[str, str]:
        """Return the trunk, and the average that gives the weights."""
        return {needs.TRUNK: self.trunk} | ({needs.WEIGHTS: self.weights} if self.weights else {})


def _kind_of_run(data: object) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "trunk"


AnyRun = Annotated[
    Annotated[Trunk, Tag("trunk")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class RunDefaults(Strict):
    """Defaults of all runs; `clip` is the largest gradient norm."""

    optimizer: AnyOptimizer
    clip: Rate
    warmup: Share
    checkpoint_every: Share


class Runs(Strict):
    """Controlled runs and averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: Named[AnyRun]
    averages: Named[AnyAverage]
