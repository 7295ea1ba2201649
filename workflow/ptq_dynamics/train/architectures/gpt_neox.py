"""GPT-NeoX (arXiv 2204.06745), as Pythia and the paper's controlled runs have it (section 4):
untied, parallel residual."""

from transformers import GPTNeoXConfig

from ptq_dynamics.train.architectures.settings import GptNeoX as Settings

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> GPTNeoXConfig:
    """Its configuration; `context` in tokens."""
    return GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.feedforward,
        max_position_embeddings=context,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": settings.rotary_fraction,
        },
        tie_word_embeddings=False,
        use_parallel_residual=True,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
