"""GPTQ through GPTQModel, the tool of the paper."""

from typing import ClassVar, Literal

from ptq_dynamics.quantize.worker import ForeignGptq


class GptqModel(ForeignGptq):
    """GPTQ with every setting of GPTQModel that bears on the result."""

    tool: ClassVar[str | None] = "gptqmodel"
    scripts: ClassVar[tuple[str, ...]] = ("quantize.foreign.worker",)

    method: Literal["gptqmodel"]
