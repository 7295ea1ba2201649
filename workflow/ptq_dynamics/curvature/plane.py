"""Flat parameter vectors, the plane through three checkpoints, and PCA of a trajectory."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Sine of the angle below which three float32 checkpoints lie on a line up to their rounding.
_COLLINEAR = 1e-6


class Plane(NamedTuple):
    """Plane through a final checkpoint (`origin`), an earlier one and the quantized final one, with
    orthonormal `u` and `v`, all [P] float64; `points`: final (0, 0), earlier (a, 0), quantized
    (b, c), [3, 2], with a and c positive; L2 distances of the final one from the others."""

    origin: Tensor
    u: Tensor
    v: Tensor
    points: Tensor
    training_distance: float
    quantization_distance: float


def flatten(state: Mapping[str, Tensor]) -> Tensor:
    """Floating-point tensors of a state as one vector [P], by sorted name."""
    tensors = [state[name] for name in sorted(state) if state[name].is_floating_point()]
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def plane(theta_k: Tensor, theta_prev: Tensor, theta_q: Tensor) -> Plane:
    """Plane through final, earlier and quantized parameters, each [P] floating point (figure 8): u
    points from the final checkpoint to the earlier one, v to the side of the quantized one."""
    origin = theta_k.double()
    earlier, quantized = theta_prev.double() - origin, theta_q.double() - origin
    training, quantization = (torch.linalg.vector_norm(d).item() for d in (earlier, quantized))
    u = earlier / training
    along = torch.dot(u, quantized)
    rest = quantized - along * u
    rest = rest - torch.dot(u, rest) * u  # again: the first pass leaves rounding along u
    height = torch.linalg.vector_norm(rest).item()
    if not (training > 0 and height > _COLLINEAR * quantization):
        raise ValueError("no plane: the three checkpoints lie on a line, or are not finite")
    points = [[0.0, 0.0], [training, 0.0], [along.item(), height]]
    places = torch.tensor(points, dtype=torch.float64)
    return Plane(origin, u, rest / height, places, training, quantization)


def grid(points: Tensor, side: int, margin: float) -> Tensor:
    """Regular grid over the smallest square around `points` ([m, 2]) with their box in its middle,
    widened by `margin` of its side everywhere: [side, side, 2] float64, [i, j] is (x_j, y_i)."""
    low, high = points.double().amin(dim=0), points.double().amax(dim=0)
    middle, half = (low + high) / 2, (high - low).max() / 2 * (1 + 2 * margin)
    ramp = torch.linspace(-1, 1, side, dtype=torch.float64)
    x, y = (centre + half * ramp for centre in middle)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def pca(blocks: Iterable[Tensor], components: int) -> tuple[Tensor, Tensor]:
    """Principal components of n checkpoints through their n x n Gram matrix in float64.

    blocks: the matrix checkpoints x parameters, [n, P], in blocks of columns. Returns scores
    [n, components] (each column's largest entry is positive) and the explained share of variance.
    """
    gram: Any = 0
    for block in blocks:
        centred = block.to(torch.float64, copy=True)
        centred -= centred.mean(dim=0)
        gram = gram + centred @ centred.T
    total = gram.trace().item()
    if not 0 < total < float("inf"):
        raise ValueError(f"trajectory has total variance {total}")
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.flip(0)[:components].clamp(min=0), vectors.flip(1)[:, :components]
    scores = vectors * values.sqrt()
    largest = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    return scores * torch.where(largest < 0, -1.0, 1.0), values / total
