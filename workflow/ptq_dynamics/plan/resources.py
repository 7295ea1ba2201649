"""What jobs need of a machine. It stands outside their specification: no result depends on it."""

from ptq_dynamics.config import Config

# Rules whose jobs compute with as many threads as the scale says; others take one.
COMPUTING = frozenset(
    {"train", "average", "quantize", "evaluate", "curvature", "landscape", "components"}
)
# Rules whose jobs compute on a GPU where there is one.
ON_DEVICE = COMPUTING - {"average", "components"}


class Resources:
    """Resources of the jobs of a scale, by rule."""

    def __init__(self, config: Config) -> None:
        self._scale = config.scale

    def threads(self, rule: str, cores: int = 1) -> int:
        """Threads of a rule's jobs; a corpus is made with all `cores`, since all wait for it."""
        if rule == "corpus":
            return cores
        return self._scale.threads if rule in COMPUTING else 1
