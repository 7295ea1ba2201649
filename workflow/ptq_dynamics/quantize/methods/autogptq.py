"""GPTQ through AutoGPTQ, GPTQModel's archived predecessor."""

from typing import Literal

from ptq_dynamics.quantize.worker import ForeignGptq


class AutoGptq(ForeignGptq):
    """GPTQ of AutoGPTQ: symmetric only, no search for scales."""

    method: Literal["autogptq"]
    symmetric: Literal[True]
    mse: Literal[0]
