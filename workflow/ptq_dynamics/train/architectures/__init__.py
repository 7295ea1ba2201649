"""Architectures: classes whose fields are a model's configuration."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import model_validator

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Context, Count, Rate, Strict

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Architecture(Strict):
    """A model and its corpus; `context` in tokens, `micro_batch` in sequences."""

    # Class of the configuration in transformers.
    own: ClassVar[str]
    # Whether norms before attention and feedforward layer have weights.
    scaled_norms_first: ClassVar[bool] = True
    # Fields that must divide other fields.
    divisors: ClassVar[Mapping[str, str]] = {"heads": "width"}

    architecture: str
    layers: Count
    width: Count
    heads: Count
    feedforward: Count
    context: Context
    micro_batch: Count | None = None
    corpus: str = "main"

    def options(self, vocabulary: int) -> dict[str, object]:
        """Return the arguments of the configuration in transformers."""
        return {
            "vocab_size": vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.feedforward,
            "max_position_embeddings": self.context,
            "attention_dropout": 0.0,
            "use_cache": False,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "pad_token_id": None,
        }

    @abstractmethod
    def parameters(self, vocabulary: int) -> int:
        """Return the number of weights and biases."""

    def create(self, vocabulary: int, seed: int) -> "PreTrainedModel":
        """Return a newly initialized model in float32."""
        import torch
        import transformers

        config = getattr(transformers, self.own)(**self.options(vocabulary))
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config)

    @property
    def head(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    @property
    def widths(self) -> tuple[int, ...]:
        """Input widths of the quantized layers."""
        return self.width, self.feedforward

    @property
    def weights(self) -> tuple[object, ...]:
        """The settings that must be equal in models whose weights are averaged."""
        return tuple(self.model_dump(exclude={"context", "micro_batch", "corpus"}).values())

    @model_validator(mode="after")
    def _divides(self) -> Self:
        for name, multiple in self.divisors.items():
            divisor, size = getattr(self, name), getattr(self, multiple)
            if size % divisor:
                raise ValueError(f"{name} {divisor} does not divide {multiple} {size}")
        return self


class LlamaLike(Architecture):
    """Grouped-query attention, rotary embeddings, no biases; `tied`: the head is the embedding."""

    feedforward_layers: ClassVar[int] = 3
    # Number of vectors of a layer (norms, biases, parameters of the activation) by length.
    vectors: ClassVar[Mapping[str, int]] = {"width": 2}
    final_norms: ClassVar[int] = 1
    divisors: ClassVar = {"heads": "width", "key_value_heads": "heads"}

    key_value_heads: Count
    tied: bool
    rotary_base: Rate

    def options(self, vocabulary: int) -> dict[str, object]:
        """Add the options of attention and embeddings."""
        return {
            **super().options(vocabulary),
            "num_key_value_heads": self.key_value_heads,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rotary_base},
            "tie_word_embeddings": self.tied,
        }

    def parameters(self, vocabulary: int) -> int:
        """Count those of layers, norms, embedding and head."""
        width, keys = self.width, self.key_value_heads * self.head
        lengths = {"width": width, "keys": keys, "head": self.head, "one": 1}
        layer = 2 * width * (width + keys) + self.feedforward_layers * width * self.feedforward
        layer += sum(count * lengths[name] for name, count in self.vectors.items())
        embeddings = vocabulary * width * (1 if self.tied else 2)
        return self.layers * layer + self.final_norms * width + embeddings


AnyArchitecture = Annotated[Architecture, OneOf(__name__, by="architecture")]
