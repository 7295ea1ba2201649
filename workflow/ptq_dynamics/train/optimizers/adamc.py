"""AdamC (arXiv 2506.02285): weight decay shrinks with the learning rate, p·lr·(lr/peak)·decay."""

from typing import Literal

from ptq_dynamics.train.optimizers import Adam


class AdamC(Adam):
    """AdamW with a decay that shrinks with the rate."""

    kind: Literal["adamc"]

    def decay(self, lr: float, peak: float) -> float:
        """Less the lower the rate."""
        return self.weight_decay * (lr / peak)
