"""GPTQ through GPTQModel, the tool of the paper."""

from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.quantize.tool import ForeignGptq


class GptqModel(ForeignGptq):
    """GPTQ with every setting of GPTQModel that affects the result."""

    method: Literal["gptqmodel"]
    damping_increment: Annotated[float, Field(ge=0)]
    mse: Annotated[float, Field(ge=0)]
