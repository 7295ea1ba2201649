"""What the architectures after Llama's share: grouped-query attention with rotary embeddings, and
layers without biases."""

from typing import Any

from ptq_dynamics.train.architectures.settings import LlamaLike as Settings

__all__ = ["Settings", "options"]


def options(settings: Settings, vocabulary: int, context: int) -> dict[str, Any]:
    """The part of a configuration that all of them have; `context` in tokens."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.key_value_heads,
        "intermediate_size": settings.feedforward,
        "max_position_embeddings": context,
        "rope_parameters": {"rope_type": "default", "rope_theta": settings.rotary_base},
        "tie_word_embeddings": settings.tied,
        "attention_dropout": 0.0,
        "use_cache": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": None,
    }
