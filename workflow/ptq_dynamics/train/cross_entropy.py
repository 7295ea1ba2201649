"""Cross-entropy for training, with less memory traffic than that of torch."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable
from torch.nn.functional import cross_entropy


def summed(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of cross-entropies in nats over all targets, of float32 logits."""
    if torch.compiler.is_compiling():
        # Compiled code keeps no float32 table in memory.
        return cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")
    losses: Tensor = CrossEntropy.apply(logits, targets)  # type: ignore[no-untyped-call]
    return losses.sum()


class CrossEntropy(Function):
    """Cross-entropy in nats [...] of logits [..., vocabulary] and targets, int64 [...], with one
    table of the logits' size instead of torch's three."""

    @staticmethod
    def forward(context: FunctionCtx, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute the losses, and keep only the probabilities."""
        probabilities, at = logits.softmax(dim=-1), targets.unsqueeze(-1)
        context.save_for_backward(probabilities, at)
        losses = -probabilities.gather(-1, at).squeeze(-1).log()
        # Below e^-104 a probability is 0 in float32, as of a token that training has not had yet.
        if (rare := losses.isinf()).any():
            exact = logits.logsumexp(dim=-1) - logits.gather(-1, at).squeeze(-1)
            losses = losses.where(~rare, exact)
        return losses

    @staticmethod
    @once_differentiable
    def backward(context: BackwardCFunction, *gradients: Tensor) -> tuple[Tensor, None]:
        """Write the gradient, p - 1 at the target and p elsewhere, over the probabilities."""
        probabilities, at = context.saved_tensors  # type: ignore[misc]  # typed as one tensor
        probabilities.scatter_add_(-1, at, -torch.ones_like(at, dtype=probabilities.dtype))
        return probabilities.mul_(gradients[0].unsqueeze(-1)), None
