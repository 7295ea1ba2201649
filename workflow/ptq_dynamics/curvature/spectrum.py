"""The leading Hessian eigenvalues of checkpoints (figure 9), by Lanczos in bounded memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional

from ptq_dynamics.curvature.hessian import LossHessian, Product, Value, dot, gaussian, run_probe
from ptq_dynamics.curvature.probes.spectrum import SpectrumSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import EIGENVALUE

# Memory of the basis: 53 vectors at scale paper.
BASIS_BYTES = 32 << 30
# Fewest products: a start nearly orthogonal to the top eigenvector first gives the next one.
_KRYLOV_FLOOR = 16
# Columns mixed at once at a restart.
_BLOCK = 1 << 16


def run(context: Context[SpectrumSettings]) -> Mapping[str, object]:
    """Write the eigenvalues of each checkpoint by falling magnitude; errors are residuals."""
    return run_probe(context, eigenvalues)


def eigenvalues(hessian: LossHessian, settings: SpectrumSettings) -> Iterator[Value]:
    """Yield the eigenvalues."""
    limits = settings.model_dump(include={"tolerance", "max_iterations"})
    generator = Generator().manual_seed(settings.seed)
    spectrum = top_spectrum(hessian, hessian.like, settings.eigenvalues, generator, **limits)
    pairs = zip(spectrum.values.tolist(), spectrum.residuals.tolist(), strict=True)
    for number, (value, residual) in enumerate(pairs, start=1):
        yield f"{EIGENVALUE}{number:02d}", value, abs(value) * residual


class Eigenvalues(NamedTuple):
    """Eigenvalues and residuals |Hv - value v| / |value|, [k]; the first eigenvector, [P]."""

    values: Tensor
    residuals: Tensor
    iterations: int
    top: Tensor


def top_spectrum(
    matvec: Product, like: Tensor, k: int, rng: Generator, *, tolerance: float, max_iterations: int
) -> Eigenvalues:
    """Return the k eigenvalues of largest magnitude by Lanczos with full reorthogonalization (Saad,
    Numerical Methods for Large Eigenvalue Problems, 2011, sections 6.6 and 6.7).

    Iteration ends when all residuals are within `tolerance`, after at least max(2k + 1, 16)
    products. When the basis fills its memory, a thick restart (Wu and Simon, SIAM J. Matrix Anal.
    Appl. 22, 2000, 602) keeps the k leading Ritz vectors and half of the others."""
    dim, dtype = len(like), like.dtype
    least = max(2 * k + 1, _KRYLOV_FLOOR)
    capacity = max(least, BASIS_BYTES // (dim * dtype.itemsize))
    steps = min(max_iterations, dim) if dim <= capacity else max_iterations
    current = gaussian(like, rng)
    basis = [_kept(current)]
    side = min(capacity, steps) + 1
    projected = torch.zeros(side, side, dtype=torch.float64)
    for step in range(1, steps + 1):
        size = len(basis)
        product = matvec(current)
        projected[size - 1, size - 1] = dot(current, product)
        scale = torch.linalg.vector_norm(product).item()
        rest = _orthogonal(product, basis)
        beta = torch.linalg.vector_norm(rest).item()
        exhausted = beta <= 10 * torch.finfo(dtype).eps * scale
        ritz, mixtures = torch.linalg.eigh(projected[:size, :size])
        order = ritz.abs().argsort(descending=True)
        values, last = ritz[order[:k]], mixtures[-1, order[:k]].abs()
        residuals = torch.where(last * beta > 0, last * beta / values.abs(), 0.0)
        converged = size >= k and bool((residuals <= tolerance).all())
        if step == steps or (converged and step >= least):
            break
        if exhausted:  # an invariant subspace, which only a new direction leaves
            rest = _orthogonal(gaussian(like, rng), basis)
        links = torch.zeros(size, dtype=torch.float64)
        links[-1] = beta
        if size == capacity:
            leading = order[: k + (capacity - k) // 2]
            _mix(basis, mixtures[:, leading])
            size, links = len(leading), beta * mixtures[-1, leading]
            projected.zero_()
            projected.diagonal()[:size] = ritz[leading]
        projected[size, :size] = projected[:size, size] = links
        current = rest / torch.linalg.vector_norm(rest)
        basis.append(_kept(current))
    shares = mixtures[:, order[0]].to(dtype).tolist()
    top = torch.zeros_like(current)
    for share, vector in zip(shares, basis, strict=True):
        top = top + share * vector.to(top.device)
    return Eigenvalues(values, residuals, step, functional.normalize(top, dim=0))


def _kept(vector: Tensor) -> Tensor:
    return vector.cpu().pin_memory() if vector.is_cuda else vector


def _orthogonal(vector: Tensor, basis: Sequence[Tensor]) -> Tensor:
    """Return `vector` without components along `basis`; the second pass removes rounding."""
    vector = vector.clone()
    for _ in range(2):
        for kept in basis:
            direction = kept.to(vector.device, non_blocking=True)
            vector -= torch.dot(direction, vector) * direction
    return vector


def _mix(basis: list[Tensor], mixtures: Tensor) -> None:
    """Replace the m vectors of `basis` by l combinations, `mixtures` [m, l]."""
    count = mixtures.shape[1]
    for start in range(0, len(basis[0]), _BLOCK):
        columns = [vector[start : start + _BLOCK] for vector in basis]
        mixed = mixtures.T @ torch.stack(columns).double()
        for column, values in zip(columns[:count], mixed, strict=True):
            column.copy_(values)
    del basis[count:]
