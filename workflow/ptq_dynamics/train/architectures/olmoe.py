"""OLMoE (arXiv 2409.02060), a mixture of experts, of transformers' own class."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.architectures import LlamaLike


class Olmoe(LlamaLike):
    """OLMoE: a router sends each token to `active` of `experts` feedforward layers. Routers stay in
    full precision. No loss balances the experts."""

    own: ClassVar = "OlmoeConfig"
    vectors: ClassVar = {"width": 3, "keys": 1}
    unquantized: ClassVar = ("mlp.gate.weight",)
    architecture: Literal["olmoe"]
    experts: Count
    active: Count

    def options(self, vocabulary: int) -> dict[str, Any]:
        """Add the numbers of experts."""
        experts = {"num_experts": self.experts, "num_experts_per_tok": self.active}
        return {**super().options(vocabulary), **experts}

    def parameters(self, vocabulary: int) -> int:
        """Add those of the other experts and of routers."""
        expert = self.feedforward_layers * self.width * self.feedforward
        more = (self.experts - 1) * expert + self.experts * self.width
        return super().parameters(vocabulary) + self.layers * more
