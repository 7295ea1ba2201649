"""The jobs that quantize checkpoints, and the environments of the tools that need their own."""

from functools import cache
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.quantizers import Kind
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.quantize import lock_file
from ptq_dynamics.quantize.settings import EnvironmentSettings, QuantizeSettings

# What torch brings along in each environment, where it is built for a GPU.
CUDA = Path("envs/cuda.txt")


class Quantization:
    """Quantized trajectories."""

    def __init__(self, site: Site, corpora: Corpora, trajectories: Trajectories) -> None:
        self._site, self._corpora, self._trajectories = site, corpora, trajectories

    @cache
    def quantize(
        self, trajectory: str, quantizer: str, shard: str = "all", seed: int | None = None
    ) -> Job:
        """Quantization of one shard of a trajectory."""
        site, timeline = self._site, self._site.timeline
        kind, seed = self.kind(quantizer, trajectory), self._site.seed(trajectory, seed)
        inputs = {
            "corpus": [self._corpora.of(trajectory).manifest],
            "trajectory": self._trajectories.manifests(trajectory, seed, shard),
        }
        if kind.tool is not None:
            inputs["environment"] = [self.environment(kind.tool).manifest]
        context = timeline.trajectory(trajectory).model_shape(timeline).context
        calibration = site.config.scale.calibration
        settings = QuantizeSettings(
            checkpoints=self._trajectories.checkpoints(trajectory, shard),
            context=context,
            calibration_sequences=calibration.documents or calibration.count(context),
            calibration_documents=calibration.documents is not None,
            calibration_batch=calibration.batch,
            calibration_draw=kind.calibration_draw,
            quantizer=kind.settings(),
        )
        folder = site.place(
            "quantize", trajectory=trajectory, seed=seed, quantizer=quantizer, shard=shard
        )
        name = f"{trajectory} seed {seed} {quantizer}"
        return self._site.add(Job(kind.stage, name, folder, inputs, settings))

    def weights(self, trajectory: str, quantizer: str, shard: str, seed: int) -> list[str]:
        """Manifests of the checkpoints of one shard, quantized or in full precision."""
        if quantizer == FULL_PRECISION:
            return self._trajectories.manifests(trajectory, seed, shard)
        return [self.quantize(trajectory, quantizer, shard, seed).manifest]

    @cache
    def environment(self, tool: str) -> Job:
        """The environment of a tool that cannot share the main one, from its lock file."""
        lock, folder = Path("envs") / f"{tool}.txt", f"envs/{tool}"
        digest = _digest(self._site.root / lock, self._site.root / CUDA)
        settings = EnvironmentSettings(str(lock), folder, digest)
        return self._site.add(Job("quantize.environment", tool, folder, {}, settings))

    @cache
    def kind(self, quantizer: str, trajectory: str) -> Kind:
        """A quantizer as it is for a trajectory's model."""
        timeline = self._site.timeline
        widths = timeline.trajectory(trajectory).model_shape(timeline).model.widths
        return self._site.config.quantizers[quantizer].resolved(widths)


def _digest(*locks: Path) -> str:
    try:
        return lock_file.digest("".join(lock.read_text(encoding="utf-8") for lock in locks))
    except FileNotFoundError as error:
        lock = error.filename
        raise Problem(f"{lock} is missing; restore it with git checkout {lock}") from None
