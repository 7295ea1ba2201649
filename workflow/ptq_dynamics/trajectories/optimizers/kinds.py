"""Kinds of optimizer, one class each, as they are in config/runs.yaml.

`module` names the module beside this one that makes an optimizer of the kind (`make`), sets its
rate (`set_rate`) and has a dataclass `Settings` of the fields here but `kind`. A new kind is one
class here and one module; no stage imports this one, so that no other run is trained again.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

_Decay = Annotated[float, Field(ge=0, lt=1)]


class Kind:
    """What every kind answers; here, one without weight decay."""

    module: ClassVar[str]

    def scaled(self, _peak_lr: float, _weight_decay: float) -> Self:
        """With the factors that a scale has on peak rates and weight decay."""
        return self

    def per_step(self, _lr: float, _peak: float) -> float:
        """The share of a weight that one step at rate `lr` takes."""
        return 0.0

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


Optimizer = Annotated[AdamW | IndependentAdamW | AdamC, Field(discriminator="kind")]
