"""Architectures after Llama, each of transformers' own class."""

from typing import ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.architectures import LlamaLike


class Llama(LlamaLike):
    """Llama (arXiv 2302.13971)."""

    own: ClassVar = "LlamaConfig"
    architecture: Literal["llama"]


class Olmo(LlamaLike):
    """OLMo (arXiv 2402.00838): norms have no weights."""

    own: ClassVar = "OlmoConfig"
    scaled_norms_first: ClassVar = False
    vectors: ClassVar = {}
    final_norms: ClassVar = 0
    architecture: Literal["olmo"]


class Olmo2(LlamaLike):
    """OLMo 2 (arXiv 2501.00656): norms after layers, and on queries and keys."""

    own: ClassVar = "Olmo2Config"
    scaled_norms_first: ClassVar = False
    vectors: ClassVar = {"width": 3, "keys": 1}
    architecture: Literal["olmo2"]


class Apertus(LlamaLike):
    """Apertus (arXiv 2509.14233): norms on queries and keys, no gate, and xIELU."""

    own: ClassVar = "ApertusConfig"
    feedforward_layers: ClassVar = 2
    vectors: ClassVar = {"width": 2, "head": 2, "one": 2}
    architecture: Literal["apertus"]


class Qwen3(LlamaLike):
    """Qwen3: norms on the queries and keys of each head, and biases in attention."""

    own: ClassVar = "Qwen3Config"
    vectors: ClassVar = {"width": 4, "head": 2, "keys": 2}
    architecture: Literal["qwen3"]

    def options(self, vocabulary: int) -> dict[str, object]:
        """Add the biases of attention."""
        return {**super().options(vocabulary), "head_dim": self.head, "attention_bias": True}


class SmolLM3(LlamaLike):
    """SmolLM3: each `no_rotary_every`-th layer has no rotary embedding (NoPE)."""

    own: ClassVar = "SmolLM3Config"
    architecture: Literal["smollm3"]
    no_rotary_every: Count

    def options(self, vocabulary: int) -> dict[str, object]:
        """Add the interval of layers without rotary embedding."""
        return {**super().options(vocabulary), "no_rope_layer_interval": self.no_rotary_every}


class Olmoe(LlamaLike):
    """OLMoE (arXiv 2409.02060): a router, in full precision, sends each token to `active` of
    `experts` feedforward layers. No loss balances the experts."""

    own: ClassVar = "OlmoeConfig"
    vectors: ClassVar = {"width": 3, "keys": 1}
    unquantized: ClassVar = ("mlp.gate.weight",)
    architecture: Literal["olmoe"]
    experts: Count
    active: Count

    def options(self, vocabulary: int) -> dict[str, object]:
        """Add the numbers of experts."""
        experts = {"num_experts": self.experts, "num_experts_per_tok": self.active}
        return {**super().options(vocabulary), **experts}

    def parameters(self, vocabulary: int) -> int:
        """Add those of routers, and of all experts but one."""
        more = 3 * (self.experts - 1) * self.feedforward + self.experts
        return super().parameters(vocabulary) + self.layers * self.width * more
