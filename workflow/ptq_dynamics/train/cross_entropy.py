"""Cross-entropy for training, whose gradient takes the place of the probabilities."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy


def summed(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over all targets of the cross-entropy in nats, of float32 logits."""
    if torch.compiler.is_compiling():
        # Compiled code holds no table of float32 in memory.
        return cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")
    losses: Tensor = CrossEntropy.apply(logits, targets)  # type: ignore[no-untyped-call]
    return losses.sum()


class CrossEntropy(Function):
    """Cross-entropy in nats [...] of logits [..., vocabulary] and targets, int64 [...]; its
    gradient is p - 1 at the target and p elsewhere. torch's own writes three tables of the logits'
    size instead of one, which takes a seventh of a step at scale laptop."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """Keep the probabilities alone."""
        probabilities, at = logits.softmax(dim=-1), targets.unsqueeze(-1)
        context.save_for_backward(probabilities, at)
        return -probabilities.gather(-1, at).squeeze(-1).log()

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """In place, since nothing else reads them."""
        probabilities, at = context.saved_tensors
        probabilities.scatter_add_(-1, at, -torch.ones_like(at, dtype=probabilities.dtype))
        return probabilities.mul_(gradients[0].unsqueeze(-1)), None
