"""What the jobs of a rule ask of a machine. It stands outside their specification: no result
depends on it."""

from functools import cache
from math import ceil

from ptq_dynamics.config import Config
from ptq_dynamics.train.timeline import Timeline

# Rules whose jobs compute with as many threads as the scale says; others take one.
COMPUTING = frozenset({"train", "average", "measure", "curvature", "landscape", "components"})
BILLION = 10**9


class Resources:
    """Resource requests of the jobs of a scale."""

    def __init__(self, config: Config) -> None:
        self._scale, self._public = config.scale, config.runs.public
        self._timeline = Timeline(config)

    def ask(
        self, rule: str, attempt: int = 1, trajectory: str | None = None
    ) -> dict[str, int | str]:
        """Resources as Snakemake names them: `mem_mb` and `runtime` (minutes), which grow with the
        number of the attempt; `gpu` and `gpu_model` where the rule takes any. Where the job is
        about a trajectory, the size of its model counts."""
        asked = self._scale.resources.rules.get(rule, self._scale.resources.default)
        more, billions = asked.per_billion, self._weights(trajectory) / BILLION
        found: dict[str, int | str] = {
            "mem_mb": ceil(attempt * (asked.memory + billions * more.memory)),
            "runtime": max(1, ceil(attempt * (asked.minutes + billions * more.minutes))),
        }
        if gpus := ceil(asked.gpus + billions * more.gpus):
            found["gpu"] = gpus
            if model := self._scale.resources.gpu_model:
                found["gpu_model"] = model
        return found

    def threads(self, rule: str, cores: int = 1) -> int:
        """Threads of a rule's jobs; a corpus is made with all `cores`, since all wait for it."""
        if rule == "corpus":
            return cores
        return self._scale.threads if rule in COMPUTING else 1

    def device_map(self, trajectory: str) -> str:
        """How a model that fits on no device is spread, in the words of accelerate."""
        public = self._public.get(
            self._timeline.trajectory(trajectory).run(trajectory, self._timeline)
        )
        return public.device_map if public else "auto"

    @cache
    def _weights(self, trajectory: str | None) -> int:
        if trajectory is None:
            return 0
        shape = self._timeline.trajectory(trajectory).model_shape(self._timeline)
        return shape.model.parameters(self._scale.whole(shape.corpus).vocabulary)
