"""The jobs that quantize checkpoints, and the environments of the tools that need their own."""

from functools import cache
from pathlib import Path

from ptq_dynamics.config.quantizers import Kind
from ptq_dynamics.content import sha256
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.trajectories import Trajectories
from ptq_dynamics.problem import Problem
from ptq_dynamics.quantize.settings import EnvironmentSettings, QuantizeSettings


class Quantization(Trajectories):
    """Quantized trajectories."""

    @cache
    def quantize(self, trajectory: str, quantizer: str, shard: str) -> Job:
        """Quantization of one shard of a trajectory."""
        kind = self._kind(quantizer, trajectory)
        inputs = {
            "corpus": [self.corpus_of(trajectory).manifest],
            "trajectory": [self.trajectory(trajectory).manifest],
        }
        if kind.tool is not None:
            inputs["environment"] = [self.environment(kind.tool).manifest]
        calibration = self.config.scale.calibration
        settings = QuantizeSettings(
            steps=tuple(self.timeline.shards(trajectory)[shard]),
            context=self.timeline.shape(trajectory).context,
            calibration_sequences=calibration.sequences,
            calibration_batch=calibration.batch,
            quantizer=kind,
        )
        folder = f"{self.results}/quantize/{trajectory}/{quantizer}/{shard}"
        name = f"{trajectory} {quantizer}"
        return Job(kind.stage, name, folder, inputs, settings, scripts=kind.scripts)

    @cache
    def environment(self, tool: str) -> Job:
        """The environment of a tool that cannot share the main one, from its lock file."""
        lock, folder = Path("envs") / f"{tool}.txt", f"envs/{tool}"
        settings = EnvironmentSettings(str(lock), folder, _digest(self.root / lock))
        return Job("quantize.environment", tool, folder, {}, settings)

    @cache
    def _kind(self, quantizer: str, trajectory: str) -> Kind:
        """A quantizer as it is for a trajectory's model."""
        shape = self.timeline.shape(trajectory)
        return self.config.quantizers[quantizer].resolved((shape.width, shape.feedforward))


def _digest(lock: Path) -> str:
    try:
        return sha256(lock)
    except FileNotFoundError:
        raise Problem(f"{lock} is missing; restore it with git checkout {lock}") from None
