"""What the architectures of this folder are set to, one dataclass each, as it crosses the job
border: the planner fills it, and the module of the architecture reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GptNeoX:
    """Its size, and the share of a head's dimensions that are rotated."""

    layers: int
    width: int
    heads: int
    feedforward: int
    rotary_fraction: float


@dataclass(frozen=True)
class LlamaLike:
    """Its size; `key_value_heads` are shared by the heads of a group; `tied` when the output head
    is the embedding; the base of the rotary embedding."""

    layers: int
    width: int
    heads: int
    feedforward: int
    key_value_heads: int
    tied: bool
    rotary_base: float


@dataclass(frozen=True)
class SmolLM3(LlamaLike):
    """`no_rotary_every`: the last of so many layers has no rotary embedding."""

    no_rotary_every: int
