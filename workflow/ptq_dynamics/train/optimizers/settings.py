"""What the optimizers of this folder are set to, one dataclass each, as it crosses the job
border: the planner fills it, and the module that makes the optimizer reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Adam:
    """Of AdamW and its kin: decay rates of both moments, ε, and the weight decay."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float


@dataclass(frozen=True)
class AdEMAMix(Adam):
    """Beside those of AdamW: decay rate of the slow mean, its weight beside the fast one, and the
    updates in which both come up to these (None: they are so from the first)."""

    beta3: float
    alpha: float
    t_alpha_beta3: int | None
