"""What the warm process does before it forks: import big libraries and fill their caches."""

import gc
import logging
import tempfile
from collections.abc import Callable, Collection
from importlib import import_module

# What jobs import of the libraries they compute with, by distribution, and which take seconds.
MODULES = {
    "torch": ("torch",),
    "transformers": ("transformers",),
    "bitsandbytes": ("bitsandbytes",),
    "datasets": ("datasets",),
    "llmcompressor": ("llmcompressor.modifiers.gptq", "llmcompressor.modifiers.transform.awq"),
    "pandas": ("pandas",),
    "seaborn": ("seaborn", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf"),
}


def prime(libraries: Collection[str], is_wanted: Callable[[], bool] = lambda: True) -> bool:
    """Import what jobs import of these distributions, and save and load a tiny model where they
    have models, whose first time is slow; whether it came to its end while it was wanted."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    for distribution, modules in MODULES.items():
        if distribution in libraries:
            for module in modules:
                if not is_wanted():
                    return False
                import_module(module)
    if "torch" in libraries:
        import_module("torch").set_num_threads(1)
    if "transformers" in libraries:
        _save_and_load()
    # The garbage collector of a child would otherwise touch, and so copy, all of this memory.
    gc.collect()
    gc.freeze()
    return is_wanted()


def _save_and_load() -> None:
    from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

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
