"""GPTQ through AutoGPTQ, the archived predecessor of GPTQModel.

AutoGPTQ refuses a machine without CUDA. On a CPU, `foreign/worker.py` goes around this check."""

from typing import ClassVar, Literal

from ptq_dynamics.quantize.tool import ForeignGptq


class AutoGptq(ForeignGptq):
    """GPTQ with every setting of AutoGPTQ that affects the result, on a symmetric grid."""

    python: ClassVar[str | None] = "3.11"
    less: ClassVar[int] = 1

    method: Literal["autogptq"]
    symmetric: Literal[True]
