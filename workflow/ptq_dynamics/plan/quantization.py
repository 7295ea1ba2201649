"""The jobs that quantize checkpoints, and the environments of the tools that need their own."""

from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.config import AtMost
from ptq_dynamics.content import sha256
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.trajectories import Trajectories
from ptq_dynamics.problem import Problem

# Methods whose library has an environment of its own, envs/METHOD.txt.
FOREIGN = ("gptqmodel", "autogptq")


class Quantization(Trajectories):
    """Quantized trajectories."""

    @cache
    def quantize(self, trajectory: str, quantizer: str, shard: str) -> Job:
        """Quantization of one shard of a trajectory."""
        settings = dict(self._quantizer(quantizer, trajectory))
        method = settings.pop("method")
        inputs = {
            "corpus": [self.corpus_of(trajectory).manifest],
            "trajectory": [self.trajectory(trajectory).manifest],
        }
        scripts: tuple[str, ...] = ()
        if method in FOREIGN:
            inputs["environment"] = [self.environment(method).manifest]
            names = (f"{method}_worker", "worker_protocol")
            scripts = tuple(f"quantize.foreign.{name}" for name in names)
        calibration = self.config.scale.calibration
        config = {
            "steps": self.timeline.shards(trajectory)[shard],
            "context": self.timeline.shape(trajectory).context,
            "calibration_sequences": calibration.sequences,
            "calibration_batch": calibration.batch,
            "settings": settings,
        }
        folder = f"{self.results}/quantize/{trajectory}/{quantizer}/{shard}"
        name = f"{trajectory} {quantizer}"
        return Job(f"quantize.{method}", name, folder, inputs, config, scripts=scripts)

    @cache
    def environment(self, method: str) -> Job:
        """The environment of a tool that cannot share the main one, from its lock file."""
        lock = Path("envs") / f"{method}.txt"
        config = {
            "lock": str(lock),
            "folder": f"envs/{method}",
            "digest": _digest(self.root / lock),
        }
        return Job("quantize.environment", method, f"envs/{method}", {}, config)

    @cache
    def _quantizer(self, quantizer: str, trajectory: str) -> dict[str, Any]:
        """Settings of a quantizer for a trajectory's model, the group size resolved."""
        settings = self.config.quantizers[quantizer]
        resolved = settings.model_dump(mode="json")
        size = getattr(settings, "group_size", None)
        shape = self.timeline.shape(trajectory)
        if isinstance(size, AtMost):
            sizes = range(1, size.at_most + 1)
            divisors = [g for g in sizes if not shape.width % g and not shape.feedforward % g]
            resolved["group_size"] = max(divisors)
        return resolved


def _digest(lock: Path) -> str:
    try:
        return sha256(lock)
    except FileNotFoundError:
        raise Problem(f"{lock} is missing; restore it with git checkout {lock}") from None
