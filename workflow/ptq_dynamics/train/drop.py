"""Drop the weights of a trajectory that is no longer read, to save space.

The result stays known, with its manifest; a job that needs its files again has them made again.
"""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.engine.context import Context
from ptq_dynamics.train.settings import DropSettings


def run(context: Context[DropSettings]) -> Mapping[str, Any]:
    """Delete the weights and training states of the input under "result", but for the checkpoints
    that stay; facts: how many files and bytes."""
    result, kept = context.input("result"), context.settings.kept
    names = [
        name
        for name in result.files
        if name.endswith(".safetensors") and name.partition("/")[0] not in kept
    ]
    result.drop(names, context.settings.manifest)
    return {"files": len(names), "bytes": sum(result.files[name]["size"] for name in names)}
