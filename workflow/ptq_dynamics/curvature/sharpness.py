"""Sharpness (top Hessian eigenvalue) and Hessian trace of a trajectory's checkpoints (figure 9)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature import hessian as hessians
from ptq_dynamics.curvature.curvature import Metric, run_probe
from ptq_dynamics.curvature.hessian import LossHessian
from ptq_dynamics.curvature.settings import SharpnessSettings
from ptq_dynamics.curvature.spectrum import top_spectrum
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import SHARPNESS, TRACE


def run(context: Context[SharpnessSettings]) -> Mapping[str, Any]:
    """Stage: one row each of sharpness, its iterations, and trace with its standard error."""
    return run_probe(context, probe)


def probe(hessian: LossHessian, settings: SharpnessSettings) -> Iterator[Metric]:
    """Sharpness, by power iteration from a Lanczos estimate of the top eigenvector, and trace. The
    error of the sharpness is its residual and the standard error over micro-batches of the
    curvature along its eigenvector."""
    generator = torch.Generator().manual_seed(settings.seed)
    estimate = top_spectrum(hessian, hessian.like, 1, generator, **settings.limits)
    top = hessians.top_eigenvalue(hessian, estimate.top, **settings.limits)
    if not top.converged:
        raise Problem(
            f"power iteration reached a residual of {top.residual:.1e} in {top.iterations} steps, "
            f"not {settings.tolerance:.0e}; raise the scale's max_iterations or tolerance"
        )
    sampled_text = hessians.standard_error(hessian.form(top.vector))
    yield SHARPNESS, top.value, math.hypot(top.value * top.residual, sampled_text)
    yield "sharpness_iterations", estimate.iterations + top.iterations, None
    yield TRACE, *hessians.trace(hessian.form, hessian.like, settings.trace_samples, generator)
