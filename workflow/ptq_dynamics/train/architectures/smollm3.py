"""SmolLM3: Llama's, but without rotary embedding in one layer of every few (NoPE)."""

from transformers import SmolLM3Config

from ptq_dynamics.train.architectures.llama_like import options
from ptq_dynamics.train.architectures.settings import SmolLM3 as Settings

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> SmolLM3Config:
    """Its configuration; `context` in tokens."""
    return SmolLM3Config(
        **options(settings, vocabulary, context),
        no_rope_layer_interval=settings.no_rotary_every,
    )
