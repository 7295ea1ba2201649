"""GPT-NeoX (arXiv 2204.06745), the architecture of Pythia and the controlled runs (section 4)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ptq_dynamics.train.architectures import Architecture


class GptNeoX(Architecture):
    """GPT-NeoX; rotary embeddings rotate the share `rotary_fraction` of a head's dimensions."""

    own: ClassVar = "GPTNeoXConfig"
    architecture: Literal["gpt-neox"]
    rotary_fraction: Annotated[float, Field(gt=0, le=1)]

    def options(self, vocabulary: int) -> dict[str, object]:
        """Add rotary embeddings, parallel residual, and an untied head."""
        rotary = {"rope_theta": 10000.0, "partial_rotary_factor": self.rotary_fraction}
        return {
            **super().options(vocabulary),
            "rope_parameters": {"rope_type": "default", **rotary},
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
            "hidden_dropout": 0.0,
        }

    def parameters(self, vocabulary: int) -> int:
        """Count those of layers (each with 9 vectors of the width), norms, embedding and head."""
        width, inner = self.width, self.feedforward
        layer = 4 * width * width + 2 * width * inner + inner + 9 * width
        return self.layers * layer + 2 * width + 2 * vocabulary * width
