"""Architectures, one module each: a class whose fields are a model's configuration, which makes a
fresh model of transformers' own class and says how large it is."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Context, Count, Rate, Strict


class Architecture(Strict):
    """A model and the corpus it reads; `context` in tokens, `micro_batch`, of which a batch is
    made, in sequences."""

    # The class of its configuration in transformers.
    own: ClassVar[str]
    # Whether norms before attention and feedforward layer have weights, which could be scaled.
    scaled_norms_first: ClassVar[bool] = True
    # Fields that divide others.
    divisors: ClassVar[Mapping[str, str]] = {"heads": "width"}

    architecture: str
    layers: Count
    width: Count
    heads: Count
    feedforward: Count
    context: Context
    micro_batch: Count | None = None
    corpus: str = "main"

    def options(self, vocabulary: int) -> dict[str, Any]:
        """What transformers' own class is configured with; here, the part that all of them have."""
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
        """How many weights and biases it has."""

    def create(self, vocabulary: int, seed: int) -> Any:
        """A freshly initialised model in float32."""
        import torch
        import transformers

        config = getattr(transformers, self.own)(**self.options(vocabulary))
        torch.manual_seed(seed)
        kind: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        return kind(config)

    @property
    def head(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    @property
    def widths(self) -> tuple[int, ...]:
        """Input widths of its quantized layers."""
        return self.width, self.feedforward

    @property
    def weights(self) -> tuple[object, ...]:
        """What two models with one tokenizer have alike whose weights can be averaged."""
        return tuple(self.model_dump(exclude={"context", "micro_batch", "corpus"}).values())

    @model_validator(mode="after")
    def _divides(self) -> Self:
        for part, whole in self.divisors.items():
            one, all_of_it = getattr(self, part), getattr(self, whole)
            if all_of_it % one:
                raise ValueError(f"{part} {one} does not divide {whole} {all_of_it}")
        return self


class LlamaLike(Architecture):
    """After Llama: grouped-query attention with rotary embeddings, layers without biases; `tied`
    when the output head is the embedding."""

    # Linear layers between the width and the feedforward width.
    feedforward_layers: ClassVar[int] = 3
    # Vectors of a layer (norms, biases, numbers of its activation) by their length.
    vectors: ClassVar[Mapping[str, int]] = {"width": 2}
    final_norms: ClassVar[int] = 1
    divisors: ClassVar = {"heads": "width", "key_value_heads": "heads"}

    key_value_heads: Count
    tied: bool
    rotary_base: Rate

    def options(self, vocabulary: int) -> dict[str, Any]:
        """With what they share."""
        return {
            **super().options(vocabulary),
            "num_key_value_heads": self.key_value_heads,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rotary_base},
            "tie_word_embeddings": self.tied,
        }

    def parameters(self, vocabulary: int) -> int:
        """Those of layers, norms, embedding and head."""
        width, keys = self.width, self.key_value_heads * self.head
        lengths = {"width": width, "keys": keys, "head": self.head, "one": 1}
        layer = 2 * width * (width + keys) + self.feedforward_layers * width * self.feedforward
        layer += sum(count * lengths[name] for name, count in self.vectors.items())
        embeddings = vocabulary * width * (1 if self.tied else 2)
        return self.layers * layer + self.final_norms * width + embeddings


AnyArchitecture = Annotated[Architecture, OneOf(__name__, by="architecture")]
