"""Types of config/quantizers.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.config.fields import Count, Rate, Strict


class AtMost(Strict):
    """The largest group size up to this that divides every width of the model."""

    at_most: Count


GroupSize = Count | AtMost


class Gptq(Strict):
    """GPTQ through llm-compressor."""

    method: Literal["gptq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    group_size: GroupSize
    symmetric: bool
    activation_order: Literal["static"] | None
    damping: Rate
    block_size: Count


class ForeignGptq(Strict):
    """GPTQ through GPTQModel or AutoGPTQ, each in its own environment."""

    method: Literal["gptqmodel", "autogptq"]
    bits: Literal[2, 3, 4, 8]
    group_size: GroupSize
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: Rate
    damping_increment: Annotated[float, Field(ge=0)]
    true_sequential: bool
    mse: Annotated[float, Field(ge=0)]


class Awq(Strict):
    """AWQ through llm-compressor; `duo_scaling` takes the weights into the scales beside the
    activations, `grid_points` exponents are tried for every layer."""

    method: Literal["awq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    group_size: GroupSize
    symmetric: bool
    duo_scaling: bool
    grid_points: Annotated[int, Field(ge=4)]


class Int8(Strict):
    """LLM.int8 through bitsandbytes; activation columns beyond `threshold` are not rounded."""

    method: Literal["int8"]
    bits: Literal[8]
    threshold: Annotated[float, Field(ge=0)]


class Nf4(Strict):
    """NF4 through bitsandbytes; `double_quantization` stores the blocks' scales in 8 bits."""

    method: Literal["nf4"]
    bits: Literal[4]
    block_size: Literal[32, 64, 128, 256, 512, 1024, 2048, 4096]
    double_quantization: bool


class Rtn(Strict):
    """Round to nearest on a symmetric grid."""

    method: Literal["rtn"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    group_size: GroupSize


Quantizer = Annotated[Gptq | ForeignGptq | Awq | Int8 | Nf4 | Rtn, Field(discriminator="method")]
