"""The leading Hessian eigenvalues of a trajectory's checkpoints (figure 9)."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ptq_dynamics.curvature.curvature import Metric, run_probe
from ptq_dynamics.curvature.hessian import LossHessian, gaussian
from ptq_dynamics.curvature.lanczos import top_spectrum
from ptq_dynamics.curvature.settings import SpectrumSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import EIGENVALUE


def run(context: Context[SpectrumSettings]) -> Mapping[str, Any]:
    """Stage: a row for every eigenvalue, eigenvalue_01 the one of largest magnitude; its error is
    its residual."""
    return run_probe(context, probe)


def probe(hessian: LossHessian, settings: SpectrumSettings) -> Iterator[Metric]:
    """The eigenvalues by Lanczos."""
    limits: Any = {"tolerance": settings.tolerance, "max_iterations": settings.max_iterations}
    generator = torch.Generator().manual_seed(settings.seed)
    start = gaussian(hessian.like, generator)
    found = top_spectrum(hessian, start, settings.eigenvalues, generator=generator, **limits)
    pairs = zip(found.values.tolist(), found.residuals.tolist(), strict=True)
    for number, (value, residual) in enumerate(pairs, start=1):
        yield f"{EIGENVALUE}{number:02d}", value, abs(value) * residual
