"""Kinds of optimizer, one class each, as they are in config/runs.yaml.

`module` names the module beside this one that makes an optimizer of the kind (`make`), sets its
rate (`set_rate`) and has a dataclass `Settings` of the fields here but `kind`. A new kind is one
class here and one module; no stage imports this one, so that no other run is trained again.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

_Decay = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Adam:
    """What the kinds of Adam share: decay rates of both moments, ε, and the weight decay."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    module: ClassVar[str]

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


@dataclass(frozen=True)
class AdamC(Adam):
    """AdamW with a decay that shrinks with the rate, p·lr·(lr/peak)·weight_decay."""

    module: ClassVar[str] = "adamc"
    kind: Literal["adamc"]


Optimizer = Annotated[AdamW | IndependentAdamW | AdamC, Field(discriminator="kind")]
