"""AdamW of torch, with three kinds of weight decay."""

from typing import Literal, Self

from ptq_dynamics.train.optimizers import Adam


class AdamW(Adam):
    """AdamW: a step takes p·lr·weight_decay from a weight p."""

    kind: Literal["adamw"]


class AdamC(Adam):
    """AdamC (arXiv 2506.02285): a step takes p·lr·(lr/peak)·weight_decay from a weight p."""

    kind: Literal["adamc"]

    def decay(self, lr: float, peak: float) -> float:
        """Scale the weight decay with the learning rate."""
        return self.weight_decay * (lr / peak)


class IndependentAdamW(Adam):
    """AdamW whose decay is independent of the peak rate (figure 19): p·(lr/peak)·weight_decay."""

    kind: Literal["adamw-independent"]

    def decay(self, lr: float, peak: float) -> float:
        """Divide by the peak rate, because torch multiplies the decay by the rate."""
        return self.weight_decay / peak

    def scaled(self, rate_factor: float, decay_factor: float) -> Self:
        """Apply both factors, so that decay equals that of AdamW."""
        return self.model_copy(
            update={"weight_decay": self.weight_decay * rate_factor * decay_factor}
        )
