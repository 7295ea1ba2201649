"""OLMo (arXiv 2402.00838): norms without weights."""

from transformers import OlmoConfig

from ptq_dynamics.train.architectures.llama_like import Settings, options

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> OlmoConfig:
    """Its configuration; `context` in tokens."""
    return OlmoConfig(**options(settings, vocabulary, context))
