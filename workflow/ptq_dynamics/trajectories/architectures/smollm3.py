"""SmolLM3: Llama's, but without rotary embedding in one layer of every few (NoPE)."""

from dataclasses import dataclass

from transformers import SmolLM3Config

from ptq_dynamics.trajectories.architectures import llama_like


@dataclass(frozen=True)
class Settings(llama_like.Settings):
    """`no_rotary_every`: the last of so many layers has no rotary embedding."""

    no_rotary_every: int


def config(settings: Settings, vocabulary: int, context: int) -> SmolLM3Config:
    """Its configuration; `context` in tokens."""
    return SmolLM3Config(
        **llama_like.options(settings, vocabulary, context),
        no_rope_layer_interval=settings.no_rotary_every,
    )
