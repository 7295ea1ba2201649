"""Apertus (arXiv 2509.14233): norms on queries and keys, xIELU in a feedforward layer without
gate."""

from transformers import ApertusConfig

from ptq_dynamics.train.architectures.llama_like import Settings, options

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> ApertusConfig:
    """Its configuration; `context` in tokens."""
    return ApertusConfig(**options(settings, vocabulary, context))
