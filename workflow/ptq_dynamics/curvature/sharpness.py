"""Sharpness (top Hessian eigenvalue) and Hessian trace of a trajectory's checkpoints (figures 9 and
26: power iteration, Hutchinson), after PyHessian (Yao et al. 2020, arXiv 1912.07145)."""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature.hessian import LossHessian, Metric, dot, run_probe
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
    limits = settings.model_dump(include={"tolerance", "max_iterations"})
    generator = torch.Generator().manual_seed(settings.seed)
    estimate = top_spectrum(hessian, hessian.like, 1, generator, **limits)
    top = top_eigenvalue(hessian, estimate.top, **limits)
    if top.residual > settings.tolerance:
        raise Problem(
            f"power iteration reached a residual of {top.residual:.1e} in {top.iterations} steps, "
            f"not {settings.tolerance:.0e}; raise the scale's max_iterations or tolerance"
        )
    sampled_text = standard_error(hessian.form(top.vector))
    yield SHARPNESS, top.value, math.hypot(top.value * top.residual, sampled_text)
    yield "sharpness_iterations", estimate.iterations + top.iterations, None
    yield TRACE, *trace(hessian.form, hessian.like, settings.trace_samples, generator)


class Eigenpair(NamedTuple):
    """The eigenvalue of largest magnitude, with its sign (nats per squared parameter unit), and a
    vector [P] of unit norm whose Rayleigh quotient it is; `iterations`: Hessian-vector products;
    `residual`: |Hv - value v| / |value|."""

    value: float
    vector: Tensor
    iterations: int
    residual: float


def top_eigenvalue(
    matvec: Callable[[Tensor], Tensor], start: Tensor, *, tolerance: float, max_iterations: int
) -> Eigenpair:
    """Sharpness: the eigenvalue of largest magnitude by power iteration from a unit vector [P],
    until |Hv - value v| <= tolerance |value|. From a start nearly orthogonal to the dominant
    eigenvector it can settle on the next one, which `spectrum.top_spectrum` avoids."""
    v = start
    for iteration in count(1):
        product = matvec(v)
        value = dot(v, product)
        error = torch.linalg.vector_norm(product - value * v).item()
        residual = error / abs(value) if value else math.inf
        if residual <= tolerance or iteration >= max_iterations:
            break
        v = product / torch.linalg.vector_norm(product)
    return Eigenpair(value, v, iteration, residual)


def trace(
    form: Callable[[Tensor], Tensor], like: Tensor, samples: int, generator: torch.Generator
) -> tuple[float, float]:
    """Trace by Hutchinson's estimator, the mean of z'Hz over at least two Rademacher vectors z that
    are `like` a tensor [P], from its parts (see `LossHessian.form`), with the standard error of
    both samples: of the vectors, and of the parts of the text. Source: Hutchinson (1990);
    PyHessian."""
    draws = []
    for _ in range(samples):
        bits = torch.randint(0, 2, like.shape, generator=generator, dtype=torch.int8)
        draws.append(form((2 * bits - 1).to(like)))
    values = torch.stack(draws)
    error = math.hypot(standard_error(values.mean(dim=1)), standard_error(values.mean(dim=0)))
    return values.mean().item(), error


def standard_error(values: Tensor) -> float:
    """Standard error of the mean of values [n]; 0 of one alone, of which it is not known."""
    return values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
