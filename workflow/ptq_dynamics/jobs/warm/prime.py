"""What the warm process does before it forks: import the big libraries and fill their caches."""

import gc
import logging
import tempfile

import torch


def prime() -> None:
    """Import what jobs import, and save and load a tiny model, whose first time is slow."""
    from loguru import logger

    for package in ("llmcompressor", "compressed_tensors"):
        logger.disable(package)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import bitsandbytes  # noqa: F401
    import datasets  # noqa: F401
    import llmcompressor.modifiers.gptq
    import llmcompressor.modifiers.transform.awq  # noqa: F401
    import pandas  # noqa: F401
    import seaborn  # noqa: F401
    from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

    torch.set_num_threads(1)
    shape = GPTNeoXConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=8,
    )
    with tempfile.TemporaryDirectory() as folder:
        GPTNeoXForCausalLM(shape).save_pretrained(folder)
        AutoModelForCausalLM.from_pretrained(folder)
    # The garbage collector of a child would otherwise touch, and so copy, all of this memory.
    gc.collect()
    gc.freeze()
