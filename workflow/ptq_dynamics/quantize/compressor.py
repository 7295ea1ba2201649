"""llm-compressor as GPTQ and AWQ use it: the grid, and one quiet pass over a model."""

import logging
from collections.abc import Iterable
from typing import Any

from llmcompressor import oneshot, reset_session
from loguru import logger

# A deprecation in torch that the library cannot heed yet, once a process.
logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)


def grid(bits: int, symmetric: bool, group_size: int, layers: Iterable[str]) -> dict[str, Any]:
    """The library's description of an integer grid for the weights of some layers; the scale is
    from the smallest and largest weight of a group."""
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group"}
    weights |= {"group_size": group_size, "observer": "memoryless_minmax"}
    return {"blocks": {"targets": list(layers), "weights": weights}}


def compress(model: Any, dataset: Any, recipe: Any, **options: Any) -> None:
    """Apply a recipe to a model, in place, block by block."""
    for package in ("llmcompressor", "compressed_tensors"):
        logger.disable(package)
    reset_session()
    # Nothing is tokenized, but without a processor oneshot looks for one in the checkpoint.
    options |= {"processor": object(), "pipeline": "sequential", "log_dir": None}
    oneshot(model=model, dataset=dataset, recipe=recipe, **options)
