"""Qwen3: Llama's, but with norms on the queries and keys of a head, and biases in attention."""

from transformers import Qwen3Config

from ptq_dynamics.train.architectures.llama_like import Settings, options

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> Qwen3Config:
    """Its configuration; `context` in tokens."""
    return Qwen3Config(
        **options(settings, vocabulary, context),
        head_dim=settings.width // settings.heads,
        attention_bias=True,
    )
