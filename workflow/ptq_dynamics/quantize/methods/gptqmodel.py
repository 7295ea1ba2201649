"""GPTQ through GPTQModel, the tool of the paper."""

from typing import Literal

from ptq_dynamics.quantize.worker import ForeignGptq


class GptqModel(ForeignGptq):
    """GPTQ with every setting of GPTQModel that bears on the result."""

    method: Literal["gptqmodel"]
