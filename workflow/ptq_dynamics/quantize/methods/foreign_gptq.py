"""GPTQ through GPTQModel, the tool of the paper, and AutoGPTQ, its archived predecessor.

AutoGPTQ refuses a machine without CUDA. On a CPU, `foreign/worker.py` goes around this check."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ptq_dynamics.quantize.tool import ForeignGptq


class GptqModel(ForeignGptq):
    """GPTQ with every setting of GPTQModel that affects the result."""

    method: Literal["gptqmodel"]
    damping_increment: Annotated[float, Field(ge=0)]
    mse: Annotated[float, Field(ge=0)]


class AutoGptq(ForeignGptq):
    """GPTQ with every setting of AutoGPTQ that affects the result, on a symmetric grid."""

    python: ClassVar[str | None] = "3.11"
    less: ClassVar[int] = 1

    method: Literal["autogptq"]
    symmetric: Literal[True]
