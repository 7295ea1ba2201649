"""GPT-NeoX (arXiv 2204.06745), as Pythia and the paper's controlled runs have it (section 4):
untied, with biases, parallel residual."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ptq_dynamics.train.architectures import Architecture


class GptNeoX(Architecture):
    """GPT-NeoX; `rotary_fraction` of a head's dimensions are rotated."""

    own: ClassVar[str] = "GPTNeoXConfig"
    architecture: Literal["gpt-neox"]
    rotary_fraction: Annotated[float, Field(gt=0, le=1)]

    def options(self, vocabulary: int) -> dict[str, Any]:
        """All of its configuration."""
        rotary = {"rope_theta": 10000.0, "partial_rotary_factor": self.rotary_fraction}
        return {
            "vocab_size": vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.feedforward,
            "max_position_embeddings": self.context,
            "rope_parameters": {"rope_type": "default", **rotary},
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
            "attention_dropout": 0.0,
            "hidden_dropout": 0.0,
            "use_cache": False,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }

    @property
    def rotated(self) -> int:
        """A share of them."""
        return int(self.head * self.rotary_fraction)

    def parameters(self, vocabulary: int) -> int:
        """Those of layers, norms, embedding and head."""
        width, inner = self.width, self.feedforward
        attention = 4 * width * width + 4 * width
        feedforward = 2 * width * inner + inner + width
        norms = 4 * width
        return self.layers * (attention + feedforward + norms) + 2 * width + 2 * vocabulary * width
