"""Types of config/quantizers.yaml: one class a quantizer, which answers what the planner asks."""

from abc import abstractmethod
from collections.abc import Collection
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from ptq_dynamics.base.fields import Count, Rate, Strict
from ptq_dynamics.quantize import settings
from ptq_dynamics.train.architectures import Architecture


class Kind(Strict):
    """What every kind of quantizer has and answers.

    `stage` is the module that quantizes, `settings` what it reads; `tool` names the environment
    that it needs beside the main one, from envs/TOOL.txt, and `scripts` are the modules that run
    there.
    """

    stage: ClassVar[str]
    tool: ClassVar[str | None] = None
    scripts: ClassVar[tuple[str, ...]] = ()

    method: str
    bits: int

    def resolved(self, widths: Collection[int]) -> Self:
        """The same for a model whose layers have these numbers of input columns."""
        return self

    @abstractmethod
    def settings(self) -> object:
        """What its stage is told, a dataclass, once it is resolved."""

    def misfit(self, widths: Collection[int]) -> str | None:
        """What is wrong with it for such a model, or None."""
        return None

    def refuses(self, model: Architecture) -> str | None:
        """Why it cannot quantize such a model, or None."""
        return None

    @property
    def columns(self) -> int | None:
        """Columns in a group, once resolved, where there are groups of columns."""
        return None

    @property
    def compared_bits(self) -> int | None:
        """Of GPTQ, whose backends are compared, the bits."""
        return None

    @property
    def calibration_draw(self) -> int:
        """Which calibration set it takes, where it takes one."""
        return 1


class Calibrated(Kind):
    """A quantizer that looks at activations; `draw` says on which calibration set: 1 is the first
    of the split, 2 the one after it."""

    draw: Count = 1

    @property
    def calibration_draw(self) -> int:
        """Which calibration set it takes."""
        return self.draw


class AtMost(Strict):
    """The largest group size up to this that divides every width of the model."""

    at_most: Count


class Grouped(Kind):
    """A quantizer that has a scale for every `group_size` columns of a row."""

    group_size: Count | AtMost

    def resolved(self, widths: Collection[int]) -> Self:
        """The same with a number as group size."""
        if not isinstance(self.group_size, AtMost):
            return self
        sizes = range(1, min(self.group_size.at_most, *widths) + 1)
        largest = max(size for size in sizes if not any(width % size for width in widths))
        return self.model_copy(update={"group_size": largest})

    def misfit(self, widths: Collection[int]) -> str | None:
        """A group size that does not divide a width."""
        size = self.group_size
        unfit = [] if isinstance(size, AtMost) else [width for width in widths if width % size]
        if not unfit:
            return None
        return (
            f"group_size is {size}, which does not divide the layer width {unfit[0]}; choose a "
            "divisor, or {at_most: N}"
        )

    @property
    def columns(self) -> int | None:
        """Columns in a group, once resolved."""
        return None if isinstance(self.group_size, AtMost) else self.group_size

    def _size(self) -> int:
        """The same, of one that is resolved."""
        assert not isinstance(self.group_size, AtMost), self
        return self.group_size


class Gptq(Calibrated, Grouped):
    """GPTQ through llm-compressor."""

    stage: ClassVar[str] = "quantize.gptq"

    method: Literal["gptq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    symmetric: bool
    activation_order: Literal["static"] | None
    damping: Rate
    block_size: Count

    def settings(self) -> settings.Gptq:
        """All but its calibration set."""
        return settings.Gptq(
            bits=self.bits,
            group_size=self._size(),
            symmetric=self.symmetric,
            activation_order=self.activation_order,
            damping=self.damping,
            block_size=self.block_size,
        )

    @property
    def compared_bits(self) -> int | None:
        """Its bits."""
        return self.bits


class ForeignGptq(Calibrated, Grouped):
    """GPTQ through a tool in an environment of its own."""

    stage: ClassVar[str] = "quantize.worker"

    bits: Literal[2, 3, 4, 8]
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: Rate
    damping_increment: Annotated[float, Field(ge=0)]
    true_sequential: bool
    mse: Annotated[float, Field(ge=0)]

    def settings(self) -> settings.ForeignGptq:
        """All but its calibration set."""
        return settings.ForeignGptq(
            method=self.method,
            bits=self.bits,
            group_size=self._size(),
            symmetric=self.symmetric,
            activation_order=self.activation_order,
            static_groups=self.static_groups,
            damping=self.damping,
            damping_increment=self.damping_increment,
            true_sequential=self.true_sequential,
            mse=self.mse,
        )

    @property
    def compared_bits(self) -> int | None:
        """Its bits."""
        return self.bits


class GptqModel(ForeignGptq):
    """GPTQ through GPTQModel, the tool of the paper."""

    tool: ClassVar[str | None] = "gptqmodel"
    scripts: ClassVar[tuple[str, ...]] = ("quantize.foreign.gptqmodel_worker",)

    method: Literal["gptqmodel"]


class AutoGptq(ForeignGptq):
    """GPTQ through AutoGPTQ, GPTQModel's predecessor; symmetric only, no search for scales."""

    tool: ClassVar[str | None] = "autogptq"
    scripts: ClassVar[tuple[str, ...]] = ("quantize.foreign.autogptq_worker",)

    method: Literal["autogptq"]
    symmetric: Literal[True]
    mse: Literal[0]


class Awq(Calibrated, Grouped):
    """AWQ through llm-compressor; `duo_scaling` takes the weights into the scales beside the
    activations, `grid_points` exponents are tried for every layer."""

    stage: ClassVar[str] = "quantize.awq"

    method: Literal["awq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    symmetric: bool
    duo_scaling: bool
    grid_points: Annotated[int, Field(ge=4)]

    def settings(self) -> settings.Awq:
        """All but its calibration set."""
        return settings.Awq(
            bits=self.bits,
            group_size=self._size(),
            symmetric=self.symmetric,
            duo_scaling=self.duo_scaling,
            grid_points=self.grid_points,
        )

    def refuses(self, model: Architecture) -> str | None:
        """Where the norm before a layer cannot take up the layer's scales."""
        if model.scaled_norms_first:
            return None
        return f"{model.architecture} has no weights in norms before its layers to take up scales"


class Int8(Kind):
    """LLM.int8 through bitsandbytes; activation columns beyond `threshold` are not rounded."""

    stage: ClassVar[str] = "quantize.int8"

    method: Literal["int8"]
    bits: Literal[8]
    threshold: Annotated[float, Field(ge=0)]

    def settings(self) -> settings.Int8:
        """Its threshold."""
        return settings.Int8(self.threshold)


class Nf4(Kind):
    """NF4 through bitsandbytes; `double_quantization` stores the blocks' scales in 8 bits."""

    stage: ClassVar[str] = "quantize.nf4"

    method: Literal["nf4"]
    bits: Literal[4]
    block_size: Literal[32, 64, 128, 256, 512, 1024, 2048, 4096]
    double_quantization: bool

    def settings(self) -> settings.Nf4:
        """Its blocks."""
        return settings.Nf4(self.block_size, self.double_quantization)


class Rtn(Grouped):
    """Round to nearest on a symmetric grid."""

    stage: ClassVar[str] = "quantize.rtn"

    method: Literal["rtn"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]

    def settings(self) -> settings.Rtn:
        """Its grid."""
        return settings.Rtn(self.bits, self._size())


Quantizer = Annotated[
    Gptq | GptqModel | AutoGptq | Awq | Int8 | Nf4 | Rtn, Field(discriminator="method")
]
