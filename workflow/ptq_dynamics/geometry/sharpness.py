"""Sharpness (top Hessian eigenvalue) and Hessian trace of a trajectory's checkpoints (figure 9)."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ptq_dynamics.geometry.curvature import Metric, run_probe
from ptq_dynamics.geometry.hessian import LossHessian, top_eigenvalue, trace
from ptq_dynamics.problem import Problem
from ptq_dynamics.stage import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: one row each of sharpness, its iterations, and trace with its standard error."""
    return run_probe(context, probe)


def probe(hessian: LossHessian, config: Mapping[str, Any]) -> Iterator[Metric]:
    """Power iteration, then Hutchinson's estimate; both from one seeded generator."""
    generator = torch.Generator().manual_seed(config["seed"])
    top = top_eigenvalue(
        hessian,
        hessian.dim,
        tolerance=config["tolerance"],
        max_iterations=config["max_iterations"],
        generator=generator,
    )
    if not top.converged:
        raise Problem(
            f"power iteration reached a residual of {top.residual:.1e} in {top.iterations} steps, "
            f"not {config['tolerance']:.0e}; raise curvature.max_iterations or tolerance in the "
            "scale's file under config/scales"
        )
    yield Metric("sharpness", top.value, abs(top.value) * top.residual)
    yield Metric("sharpness_iterations", top.iterations, None)
    estimate = trace(hessian, hessian.dim, samples=config["trace_samples"], generator=generator)
    yield Metric("hessian_trace", estimate.mean, estimate.standard_error)
