"""Curvature of a causal language model's loss: its Hessian, sharpness and trace. Source: paper,
figures 9 and 26 (power iteration, Hutchinson), after PyHessian (Yao et al. 2020, arXiv 1912.07145).
"""

import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

Matvec = Callable[[Tensor], Tensor]


class Eigenpair(NamedTuple):
    """The eigenvalue of largest magnitude, with its sign (nats per squared parameter unit), and a
    vector [P] of unit norm whose Rayleigh quotient it is; `iterations`: Hessian-vector products;
    `residual`: |Hv - value v| / |value|; `converged`: whether that reached the tolerance."""

    value: float
    vector: Tensor
    iterations: int
    residual: float
    converged: bool


class LossHessian:
    """Hessian of the mean next-token cross-entropy over all probe tokens; call it with v for H v.

    probes: [n, context] int64, `batch_size` per micro-batch. keep_graph: hold the gradient's graph
    of every micro-batch between products, which spares their forward and backward passes; memory
    grows with n. Vectors are `like` a tensor [P], P the number of trainable parameters, in the
    order of `plane.flatten`. `loss` is the mean (nats per token).
    """

    def __init__(
        self, model: PreTrainedModel, probes: Tensor, batch_size: int, *, keep_graph: bool = True
    ) -> None:
        self._model = model
        self._batches = torch.split(probes, batch_size)
        self._tokens = probes.shape[0] * (probes.shape[1] - 1)
        named = sorted(model.named_parameters())
        self._parameters = [parameter for _, parameter in named if parameter.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        first = self._parameters[0]
        self.dim = sum(self._sizes)
        self.like = torch.empty((), dtype=first.dtype, device=first.device).expand(self.dim)
        with torch.no_grad():
            self.loss = sum(self._batch_loss(batch).item() for batch in self._batches)
        if not math.isfinite(self.loss):
            raise ValueError(f"loss on the probes is {self.loss}: the model has no curvature")
        self._graphs = list(self._gradients()) if keep_graph else None

    def __call__(self, v: Tensor) -> Tensor:
        """H v, exact mean over all tokens; v and result [P]."""
        product = torch.zeros_like(v)
        for part in self._products(v):
            product += part
        return product

    def form(self, v: Tensor) -> Tensor:
        """v'H v by micro-batches of probes, float64 [b]: their mean; their spread says how much it
        depends on the probes. v: [P]."""
        parts = [dot(v, part) for part in self._products(v)]
        return torch.tensor(parts, dtype=torch.float64) * len(parts)

    def _products(self, v: Tensor) -> Iterator[Tensor]:
        parts = zip(v.split_with_sizes(self._sizes), self._parameters, strict=True)
        shaped = [part.view_as(parameter) for part, parameter in parts]
        # One vector at a time: under vmap layer norm's second derivative is wrong (torch 2.13).
        for gradient in self._graphs or self._gradients():
            products = torch.autograd.grad(
                gradient, self._parameters, shaped, retain_graph=self._graphs is not None
            )
            yield torch.cat([part.reshape(-1) for part in products])

    def _batch_loss(self, batch: Tensor) -> Tensor:
        batch = batch.to(self.like.device)
        logits = self._model(input_ids=batch[:, :-1], use_cache=False).logits
        total = functional.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        )
        return total / self._tokens

    def _gradients(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self._batches:
            yield torch.autograd.grad(self._batch_loss(batch), self._parameters, create_graph=True)


def top_eigenvalue(
    matvec: Matvec, start: Tensor, *, tolerance: float, max_iterations: int
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
    return Eigenpair(value, v, iteration, residual, residual <= tolerance)


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


def gaussian(like: Tensor, generator: torch.Generator) -> Tensor:
    """A random direction of unit norm, `like` a tensor [P]; drawn on the CPU in float32, so that
    every device sees the same."""
    draw = torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)
    return functional.normalize(draw, dim=0)


def dot(a: Tensor, b: Tensor) -> float:
    """Scalar product of two vectors [P], summed in float64."""
    return float((a * b).sum(dtype=torch.float64))
