"""AdamW: one step at rate lr takes p·lr·weight_decay from a weight p."""

from typing import Literal

from ptq_dynamics.train.optimizers import Adam


class AdamW(Adam):
    """AdamW as torch has it."""

    kind: Literal["adamw"]
