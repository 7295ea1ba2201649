"""Sharpness and Hessian trace (figures 9, 26), after PyHessian (Yao et al., arXiv 1912.07145)."""

import math
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature.hessian import LossHessian, Product, Value, dot, run_probe
from ptq_dynamics.curvature.probes.sharpness import SharpnessSettings
from ptq_dynamics.curvature.spectrum import top_spectrum
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import SHARPNESS, TRACE


def run(context: Context[SharpnessSettings]) -> Mapping[str, object]:
    """Write sharpness, its iterations, and trace of each checkpoint."""
    return run_probe(context, eigenvalue_and_trace)


def eigenvalue_and_trace(hessian: LossHessian, settings: SharpnessSettings) -> Iterator[Value]:
    """Yield sharpness, by power iteration from a Lanczos estimate, and trace."""
    limits = settings.model_dump(include={"tolerance", "max_iterations"})
    generator = Generator().manual_seed(settings.seed)
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
    yield TRACE, *hutchinson_trace(hessian.form, hessian.like, settings.trace_samples, generator)


class Eigenpair(NamedTuple):
    """An eigenvalue, its unit eigenvector [P], and the residual |Hv - value v| / |value|."""

    value: float
    vector: Tensor
    iterations: int
    residual: float


def top_eigenvalue(
    matvec: Product, start: Tensor, *, tolerance: float, max_iterations: int
) -> Eigenpair:
    """Return the eigenvalue of largest magnitude by power iteration from a unit vector [P]."""
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


def hutchinson_trace(
    form: Product, like: Tensor, samples: int, rng: Generator
) -> tuple[float, float]:
    """Return the trace and its standard error by Hutchinson's estimator, the mean of z'Hz over
    Rademacher vectors z. The error combines those over vectors and micro-batches."""
    draws = []
    for _ in range(samples):
        bits = torch.randint(0, 2, like.shape, generator=rng, dtype=torch.int8)
        draws.append(form((2 * bits - 1).to(like)))
    values = torch.stack(draws)
    error = math.hypot(standard_error(values.mean(dim=1)), standard_error(values.mean(dim=0)))
    return values.mean().item(), error


def standard_error(values: Tensor) -> float:
    """Return the standard error of the mean of values [n], or 0 for one value."""
    return values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
