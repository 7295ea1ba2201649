"""AdamW with a decay that does not scale with the peak rate (figure 19): p·(lr/peak)·decay."""

from typing import Literal, Self

from ptq_dynamics.train.optimizers import Adam


class IndependentAdamW(Adam):
    """AdamW with a decay that is independent of the peak rate."""

    kind: Literal["adamw-independent"]

    def decay(self, lr: float, peak: float) -> float:
        """torch takes p·lr·decay, so 1/peak of the setting stands for decay."""
        return self.weight_decay / peak

    def scaled(self, peak_lr: float, weight_decay: float) -> Self:
        """With both factors, so that it takes as much as AdamW's."""
        return self.model_copy(update={"weight_decay": self.weight_decay * peak_lr * weight_decay})
