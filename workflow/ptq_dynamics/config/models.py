"""Models of a scale, one class an architecture, which answers what the planner asks.

`architecture` names the module in train/architectures/ that makes a fresh one, of what
`settings` gives. What the planner asks is what quantizers and averages need to know of it, and how
large it is.
"""

from abc import abstractmethod
from dataclasses import astuple
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Context, Count, Rate, Strict
from ptq_dynamics.train.architectures import settings


class ModelShape(Strict):
    """A model and the corpus it reads; `context` in tokens, `micro_batch`, of which a batch is
    made, in sequences."""

    module: ClassVar[str]
    # Whether norms before attention and feedforward layer have weights, which could be scaled.
    scaled_norms_first: ClassVar[bool] = True

    architecture: str
    layers: Count
    width: Count
    heads: Count
    feedforward: Count
    context: Context
    micro_batch: Count | None = None
    corpus: str = "main"

    @abstractmethod
    def settings(self) -> Any:
        """What its architecture is set to, a dataclass."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Input widths of its quantized layers."""
        return self.width, self.feedforward

    @property
    def rotated(self) -> int:
        """Dimensions of a head that its rotary embedding turns."""
        return self.width // self.heads

    @property
    def weights(self) -> tuple[object, ...]:
        """What two models with one tokenizer have alike whose weights can be averaged."""
        return self.architecture, *astuple(self.settings())

    @abstractmethod
    def parameters(self, vocabulary: int) -> int:
        """How many weights and biases it has."""

    @model_validator(mode="after")
    def _divides(self) -> "ModelShape":
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        if self.rotated % 2:
            raise ValueError(
                f"{self.rotated} dimensions of a head are rotated, in pairs: width {self.width} "
                f"over heads {self.heads} does not give an even number"
            )
        return self


class GptNeoX(ModelShape):
    """GPT-NeoX, untied and with biases."""

    module: ClassVar[str] = "gpt_neox"

    architecture: Literal["gpt-neox"]
    rotary_fraction: Annotated[float, Field(gt=0, le=1)]

    def settings(self) -> settings.GptNeoX:
        """All of its shape."""
        size = (self.layers, self.width, self.heads, self.feedforward)
        return settings.GptNeoX(*size, self.rotary_fraction)

    @property
    def rotated(self) -> int:
        """A share of them."""
        return int(super().rotated * self.rotary_fraction)

    def parameters(self, vocabulary: int) -> int:
        """Those of layers, norms, embedding and head."""
        width, inner = self.width, self.feedforward
        attention = 4 * width * width + 4 * width
        feedforward = 2 * width * inner + inner + width
        norms = 4 * width
        return self.layers * (attention + feedforward + norms) + 2 * width + 2 * vocabulary * width


class LlamaLike(ModelShape):
    """Grouped-query attention; `tied` when the output head is the embedding."""

    # Linear layers between the width and the feedforward width.
    feedforward_layers: ClassVar[int] = 3

    key_value_heads: Count
    tied: bool
    rotary_base: Rate

    def settings(self) -> settings.LlamaLike:
        """All of its shape."""
        return settings.LlamaLike(*self._common())

    def _common(self) -> tuple[int, int, int, int, int, bool, float]:
        size = (self.layers, self.width, self.heads, self.feedforward)
        return *size, self.key_value_heads, self.tied, self.rotary_base

    @property
    def head(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    @property
    def vectors(self) -> int:
        """Numbers of a layer beside its matrices: of norms, of its activation, and biases."""
        return 2 * self.width

    @property
    def final_norm(self) -> int:
        """Weights of the last norm."""
        return self.width

    def parameters(self, vocabulary: int) -> int:
        """Those of layers, norms, embedding and head."""
        attention = 2 * self.width * (self.width + self.key_value_heads * self.head)
        feedforward = self.feedforward_layers * self.width * self.feedforward
        embeddings = vocabulary * self.width * (1 if self.tied else 2)
        return self.layers * (attention + feedforward + self.vectors) + self.final_norm + embeddings

    @model_validator(mode="after")
    def _shares_heads(self) -> "LlamaLike":
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"key_value_heads {self.key_value_heads} does not divide heads {self.heads}"
            )
        return self


class Llama(LlamaLike):
    """Llama."""

    module: ClassVar[str] = "llama"
    architecture: Literal["llama"]


class SmolLM3(LlamaLike):
    """SmolLM3; the last of `no_rotary_every` layers has no rotary embedding."""

    module: ClassVar[str] = "smollm3"
    architecture: Literal["smollm3"]
    no_rotary_every: Count

    def settings(self) -> settings.SmolLM3:
        """With the layers without rotary embedding."""
        return settings.SmolLM3(*self._common(), self.no_rotary_every)


class Olmo(LlamaLike):
    """OLMo 1, whose norms have no weights."""

    module: ClassVar[str] = "olmo"
    scaled_norms_first: ClassVar[bool] = False
    architecture: Literal["olmo"]

    @property
    def vectors(self) -> int:
        """None."""
        return 0

    @property
    def final_norm(self) -> int:
        """None."""
        return 0


class Olmo2(LlamaLike):
    """OLMo 2, with norms after attention and feedforward layer, and on queries and keys."""

    module: ClassVar[str] = "olmo2"
    scaled_norms_first: ClassVar[bool] = False
    architecture: Literal["olmo2"]

    @property
    def vectors(self) -> int:
        """Two of the width, and those of queries and keys."""
        return 3 * self.width + self.key_value_heads * self.head


class Apertus(LlamaLike):
    """Apertus, with norms on the queries and keys of a head, and xIELU without a gate."""

    module: ClassVar[str] = "apertus"
    feedforward_layers: ClassVar[int] = 2
    architecture: Literal["apertus"]

    @property
    def vectors(self) -> int:
        """Two of the width, those of a head's queries and keys, and both numbers of xIELU."""
        return 2 * self.width + 2 * self.head + 2


class Qwen3(LlamaLike):
    """Qwen3, with norms on the queries and keys of a head, and biases in attention."""

    module: ClassVar[str] = "qwen3"
    architecture: Literal["qwen3"]

    @property
    def vectors(self) -> int:
        """Two of the width, those of a head's queries and keys; and the biases."""
        biases = 2 * (self.width + self.key_value_heads * self.head)
        return 2 * self.width + 2 * self.head + biases


AnyModel = Annotated[
    GptNeoX | Llama | SmolLM3 | Olmo | Olmo2 | Apertus | Qwen3, Field(discriminator="architecture")
]
