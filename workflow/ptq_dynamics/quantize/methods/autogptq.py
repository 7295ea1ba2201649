"""GPTQ through AutoGPTQ, GPTQModel's archived predecessor."""

from typing import ClassVar, Literal

from ptq_dynamics.quantize.worker import ForeignGptq


class AutoGptq(ForeignGptq):
    """GPTQ of AutoGPTQ: symmetric only, no search for scales."""

    tool: ClassVar[str | None] = "autogptq"
    scripts: ClassVar[tuple[str, ...]] = ("quantize.foreign.worker",)

    method: Literal["autogptq"]
    symmetric: Literal[True]
    mse: Literal[0]
