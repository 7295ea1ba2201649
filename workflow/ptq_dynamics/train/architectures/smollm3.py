"""SmolLM3: Llama's, but without rotary embedding in one layer of every few (NoPE)."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.architectures import LlamaLike


class SmolLM3(LlamaLike):
    """SmolLM3; the last of `no_rotary_every` layers has no rotary embedding."""

    own: ClassVar = "SmolLM3Config"
    architecture: Literal["smollm3"]
    no_rotary_every: Count

    def options(self, vocabulary: int) -> dict[str, Any]:
        """With the layers without rotary embedding."""
        return {**super().options(vocabulary), "no_rope_layer_interval": self.no_rotary_every}
