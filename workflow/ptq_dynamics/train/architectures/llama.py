"""Llama (arXiv 2302.13971), as Amber has it."""

from transformers import LlamaConfig

from ptq_dynamics.train.architectures.llama_like import Settings, options

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> LlamaConfig:
    """Its configuration; `context` in tokens."""
    return LlamaConfig(**options(settings, vocabulary, context))
