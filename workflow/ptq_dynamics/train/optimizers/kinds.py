"""Kinds of optimizer, one class each, as they are in config/runs.yaml.

`module` names the module beside this one that makes an optimizer of the kind (`make`), sets its
rate (`set_rate`) and has as `Settings` the dataclass that `settings` gives. A new kind is one class
here and one module, with a dataclass in `settings.py` where it has settings of its own; no stage
imports this one, so that no other run is trained again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from ptq_dynamics.base.shares import Share
from ptq_dynamics.train.optimizers import settings

_Decay = Annotated[float, Field(ge=0, lt=1)]


class Kind(ABC):
    """What every kind answers; here, one without weight decay."""

    module: ClassVar[str]

    def scaled(self, _peak_lr: float, _weight_decay: float) -> Self:
        """With the factors that a scale has on peak rates and weight decay."""
        return self

    def lasting(self, _share: Share) -> Self:
        """For a run, with what branches from it, over this share of the budget."""
        return self

    def per_step(self, _lr: float, _peak: float) -> float:
        """The share of a weight that one step at rate `lr` takes."""
        return 0.0

    @abstractmethod
    def settings(self, steps: Callable[[Share], int]) -> object:
        """What its module is told, a dataclass; `steps` are those of a share of the budget."""

    @property
    def named_by(self) -> float | None:
        """The number by which labels of curves name it, if there is one."""
        return None


class Decaying(Kind):
    """One that takes p·lr·weight_decay from a weight p in a step."""

    weight_decay: float

    @property
    def named_by(self) -> float | None:
        """Its weight decay."""
        return self.weight_decay

    def scaled(self, _peak_lr: float, weight_decay: float) -> Self:
        """With the factors that a scale has on peak rates and weight decay."""
        itself: Any = self
        return replace(itself, weight_decay=self.weight_decay * weight_decay)

    def per_step(self, lr: float, peak: float) -> float:
        """The share of a weight that one step at rate `lr` takes."""
        return lr * self.weight_decay


@dataclass(frozen=True)
class Adam(Decaying):
    """What the kinds of Adam share: decay rates of both moments, ε, and the weight decay."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: str
    betas: tuple[_Decay, _Decay]
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def settings(self, steps: Callable[[Share], int]) -> settings.Adam:
        """All of it."""
        return settings.Adam(self.betas, self.eps, self.weight_decay)


@dataclass(frozen=True)
class AdamW(Adam):
    """One step at rate lr takes p·lr·weight_decay from a weight p."""

    module: ClassVar[str] = "adamw"
    kind: Literal["adamw"]


@dataclass(frozen=True)
class IndependentAdamW(Adam):
    """AdamW with a decay that does not scale with the peak rate, p·(lr/peak)·weight_decay."""

    module: ClassVar[str] = "adamw_independent"
    kind: Literal["adamw-independent"]

    def scaled(self, peak_lr: float, weight_decay: float) -> Self:
        """Both, so that it takes as much as AdamW's."""
        return replace(self, weight_decay=self.weight_decay * peak_lr * weight_decay)

    def per_step(self, lr: float, peak: float) -> float:
        """Whatever the peak rate."""
        return lr / peak * self.weight_decay


@dataclass(frozen=True)
class AdamC(Adam):
    """AdamW with a decay that shrinks with the rate, p·lr·(lr/peak)·weight_decay."""

    module: ClassVar[str] = "adamc"
    kind: Literal["adamc"]

    def per_step(self, lr: float, peak: float) -> float:
        """Less the lower the rate."""
        return lr * lr / peak * self.weight_decay


@dataclass(frozen=True)
class AdEMAMix(Adam):
    """AdamW with a slow mean of gradients beside the fast one, of decay rate `beta3` and weight
    `alpha`. Both come up over `t_alpha_beta3`, a share of the budget, or else are there at once.

    `beta3` stays as it is at every scale: `scaled` leaves it, so its memory of −1 / ln(beta3) steps
    is shorter in a run of fewer steps only where another number is written there.
    """

    module: ClassVar[str] = "ademamix"
    kind: Literal["ademamix"]
    beta3: Annotated[float, Field(gt=0, lt=1)]
    alpha: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    t_alpha_beta3: Share | None = None

    def __post_init__(self) -> None:
        if self.beta3 < self.betas[0]:
            raise ValueError(
                f"beta3 {self.beta3} forgets faster than the first of betas, {self.betas[0]}; "
                "raise it"
            )

    def lasting(self, share: Share) -> Self:
        """What comes up comes up over all of it."""
        return self if self.t_alpha_beta3 is None else replace(self, t_alpha_beta3=share)

    def settings(self, steps: Callable[[Share], int]) -> settings.AdEMAMix:
        """With the share in steps."""
        share = self.t_alpha_beta3
        counted = None if share is None else steps(share)
        common = (self.betas, self.eps, self.weight_decay)
        return settings.AdEMAMix(*common, self.beta3, self.alpha, counted)


Optimizer = Annotated[AdamW | IndependentAdamW | AdamC | AdEMAMix, Field(discriminator="kind")]
