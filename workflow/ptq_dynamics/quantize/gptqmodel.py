"""GPTQ through GPTQModel, in an environment of its own (envs/gptqmodel.txt)."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.jobs.context import Context
from ptq_dynamics.quantize.worker import run_worker


def run(context: Context) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints with GPTQModel."""
    return run_worker(context, "gptqmodel_worker.py")
