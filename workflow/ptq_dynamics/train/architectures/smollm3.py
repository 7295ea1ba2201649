"""SmolLM3: Llama's, but without rotary embedding in one layer of every few (NoPE)."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.architectures import LlamaLike

if TYPE_CHECKING:
    from transformers import SmolLM3Config


class SmolLM3(LlamaLike):
    """SmolLM3; the last of `no_rotary_every` layers has no rotary embedding."""

    architecture: Literal["smollm3"]
    no_rotary_every: Count

    def config(self, vocabulary: int) -> "SmolLM3Config":
        """Its configuration."""
        from transformers import SmolLM3Config

        options = self.options(vocabulary)
        return SmolLM3Config(**options, no_rope_layer_interval=self.no_rotary_every)
