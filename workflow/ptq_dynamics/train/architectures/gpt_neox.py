"""GPT-NeoX (arXiv 2204.06745), as Pythia and the paper's controlled runs have it (section 4):
untied, with biases, parallel residual."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ptq_dynamics.train.architectures import Architecture


class GptNeoX(Architecture):
    """GPT-NeoX; `rotary_fraction` of a head's dimensions are rotated."""

    own: ClassVar = "GPTNeoXConfig"
    architecture: Literal["gpt-neox"]
    rotary_fraction: Annotated[float, Field(gt=0, le=1)]

    def options(self, vocabulary: int) -> dict[str, Any]:
        """With its own."""
        rotary = {"rope_theta": 10000.0, "partial_rotary_factor": self.rotary_fraction}
        return {
            **super().options(vocabulary),
            "rope_parameters": {"rope_type": "default", **rotary},
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
            "hidden_dropout": 0.0,
        }

    def parameters(self, vocabulary: int) -> int:
        """Those of layers, with 9 vectors of the width in each, norms, embedding and head."""
        width, inner = self.width, self.feedforward
        layer = 4 * width * width + 2 * width * inner + inner + 9 * width
        return self.layers * layer + 2 * width + 2 * vocabulary * width
