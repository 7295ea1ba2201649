"""GPTQ through AutoGPTQ, in an environment of its own (envs/autogptq.txt)."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.jobs.context import Context
from ptq_dynamics.quantize.worker import run_worker


def run(context: Context) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints with AutoGPTQ."""
    return run_worker(context, "autogptq_worker.py")
