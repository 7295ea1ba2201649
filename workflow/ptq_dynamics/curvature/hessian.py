"""Curvature of a causal language model's loss: its Hessian, sharpness and trace.

The estimators see the Hessian only as a function v -> Hv on flat vectors: no P x P matrix is ever
formed, and a known matrix can stand in for a model. Source: paper, figures 9 and 26 (power
iteration, Hutchinson), after PyHessian (Yao et al. 2020, arXiv 1912.07145).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

Matvec = Callable[[Tensor], Tensor]
# v ↦ v'H v in parts, float64 [b], whose mean it is (see `LossHessian.form`).
Form = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Eigenpair:
    """Dominant eigenpair found by power iteration.

    value: eigenvalue of largest magnitude, with its sign (nats per squared parameter unit).
    vector: [P], unit norm, whose Rayleigh quotient `value` is.
    iterations: Hessian-vector products used. residual: |Hv - value v| / |value|.
    converged: whether the residual reached the tolerance.
    """

    value: float
    vector: Tensor
    iterations: int
    residual: float
    converged: bool


@dataclass(frozen=True)
class Trace:
    """Hutchinson estimate of a trace: mean and standard error of samples ([s, b] float64: vectors,
    parts of the text)."""

    mean: float
    standard_error: float
    samples: Tensor


class LossHessian:
    """Hessian of the mean next-token cross-entropy over all probe tokens; call it with v for H v.

    model: causal LM in evaluation mode, eager attention (fused attention has no double backward).
    probes: [n, context] int64; n (context - 1) predictions. batch_size: probes per micro-batch.
    keep_graph: hold the gradient's graph of every micro-batch between products, which spares their
    forward and backward passes; memory grows with n. Without it memory is one micro-batch's.
    `dim` is P, the number of trainable parameters, in the order of `plane.flatten` (sorted names),
    so that eigenvectors and loss planes share coordinates. `loss` is the mean (nats per token).
    ValueError: training mode, another attention, or a loss that is not finite (divergence).
    """

    def __init__(
        self, model: PreTrainedModel, probes: Tensor, batch_size: int, *, keep_graph: bool = True
    ) -> None:
        if model.training:
            raise ValueError("the Hessian needs model.eval(): dropout would redraw the loss")
        attention = model.config._attn_implementation
        if attention != "eager":
            raise ValueError(f"attention {attention!r} has no double backward; load with 'eager'")
        self._model = model
        self._batches = torch.split(probes, batch_size)
        self._tokens = probes.shape[0] * (probes.shape[1] - 1)
        named = sorted(model.named_parameters())
        self._parameters = [parameter for _, parameter in named if parameter.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self.dim = sum(self._sizes)
        self.dtype = self._parameters[0].dtype
        self.device = self._parameters[0].device
        with torch.no_grad():
            self.loss = sum(self._batch_loss(batch).item() for batch in self._batches)
        if not math.isfinite(self.loss):
            raise ValueError(f"loss on the probes is {self.loss}: the model has no curvature")
        self._graphs = list(self._gradients()) if keep_graph else None

    def __call__(self, v: Tensor) -> Tensor:
        """H v, exact mean over all tokens; v and result [P] of `dtype` on `device`."""
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
        batch = batch.to(self.device)
        logits = self._model(input_ids=batch[:, :-1], use_cache=False).logits
        total = functional.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        )
        return total / self._tokens

    def _gradients(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self._batches:
            yield torch.autograd.grad(self._batch_loss(batch), self._parameters, create_graph=True)


def top_eigenvalue(
    matvec: Matvec,
    dim: int,
    *,
    tolerance: float,
    max_iterations: int,
    generator: torch.Generator,
    start: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Eigenpair:
    """Sharpness: eigenvalue of largest magnitude by power iteration, from a Gaussian start or from
    the unit vector `start` ([dim]).

    Stops when |Hv - value v| <= tolerance |value|: some eigenvalue then lies that close to the
    result. PyHessian's rule (relative change of the quotient below 1e-3) bounds nothing. Neither
    rule shows that the eigenvalue is the largest: a start nearly orthogonal to the dominant
    eigenvector can settle on the next one; `lanczos.top_spectrum` gives a start that is not.
    A negative value means that the most negative curvature outweighs the most positive. Eigenvalues
    of equal magnitude and opposite sign never converge, and `converged` says so.
    generator: on the CPU: every device sees the same start. dtype, device: those of `matvec`.
    ValueError: max_iterations < 1.
    """
    v = gaussian(dim, generator, dtype, device) if start is None else start
    for iteration in range(1, max_iterations + 1):
        product = matvec(v)
        value = dot(v, product)
        error = torch.linalg.vector_norm(product - value * v).item()
        residual = error / abs(value) if value else math.inf
        if residual <= tolerance or iteration == max_iterations:
            return Eigenpair(value, v, iteration, residual, residual <= tolerance)
        v = product / torch.linalg.vector_norm(product)
    raise ValueError(f"max_iterations must be positive, not {max_iterations}")


def trace(
    form: Form,
    dim: int,
    *,
    samples: int,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Trace:
    """Trace by Hutchinson's estimator, the mean of z'Hz over Rademacher vectors z.

    samples: vectors, at least 2 (else ValueError: one sample has no standard error). The standard
    error is that of both samples: of the vectors, and of the parts of the text.
    generator, dtype, device: as for `top_eigenvalue`. Source: Hutchinson (1990); PyHessian.
    """
    if samples < 2:
        raise ValueError(f"a standard error needs at least 2 samples, not {samples}")
    draws = []
    for _ in range(samples):
        bits = torch.randint(0, 2, (dim,), generator=generator, dtype=torch.int8)
        z = (2 * bits - 1).to(device, dtype)
        draws.append(form(z))
    values = torch.stack(draws)
    error = math.hypot(standard_error(values.mean(dim=1)), standard_error(values.mean(dim=0)))
    return Trace(values.mean().item(), error, values)


def standard_error(values: Tensor) -> float:
    """Standard error of the mean of values [n]; of one alone it is not known, and none is added."""
    return values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0


def gaussian(
    dim: int, generator: torch.Generator, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """A random direction: [dim], unit norm, drawn on the CPU in float32."""
    draw = torch.randn(dim, generator=generator, dtype=torch.float32).to(device, dtype)
    return functional.normalize(draw, dim=0)


def dot(a: Tensor, b: Tensor) -> float:
    """Scalar product of two vectors [P], summed in float64."""
    return float((a * b).sum(dtype=torch.float64))
