"""The jobs that measure losses, and the comparison of backends by them."""

from functools import cache
from itertools import chain
from typing import Any

from ptq_dynamics.config import FULL_PRECISION
from ptq_dynamics.config.quantizers import Kind
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.quantization import Quantization
from ptq_dynamics.quantize.settings import ComparisonSettings


class Measurements(Quantization):
    """Losses of trajectories, quantized or not."""

    @cache
    def evaluate(self, trajectory: str, method: str, shard: str) -> Job:
        """Validation losses of one shard under a quantizer, or in full precision."""
        full = method == FULL_PRECISION
        source = self.trajectory(trajectory)
        if not full:
            source = self.quantize(trajectory, method, shard)
        return Job(
            "measure.loss",
            f"{trajectory} {method}",
            f"{self.results}/evaluate/{trajectory}/{method}/{shard}",
            {"corpus": [self.corpus_of(trajectory).manifest], "checkpoints": [source.manifest]},
            {
                "steps": self.timeline.shards(trajectory)[shard],
                "context": self.timeline.shape(trajectory).context,
                "full_precision": full,
                **self.config.scale.evaluation.model_dump(),
            },
        )

    @cache
    def measure(self, trajectory: str, method: str) -> Job:
        """Tidy measurements of a trajectory under a quantizer, or in full precision."""
        shards = self.timeline.shards(trajectory)

        def evaluations(method: str) -> list[str]:
            return [self.evaluate(trajectory, method, shard).manifest for shard in shards]

        inputs = {"evaluations": evaluations(method)}
        kind = None
        if method != FULL_PRECISION:
            kind = self._kind(method, trajectory)
            inputs["full_precision"] = evaluations(FULL_PRECISION)
            quantized = [self.quantize(trajectory, method, shard) for shard in shards]
            inputs["quantized"] = [job.manifest for job in quantized]
        columns = self._columns(trajectory, kind)
        folder = f"{self.results}/measure/{trajectory}/{method}"
        return Job(
            "measure.joining", f"{trajectory} {method}", folder, inputs, {"columns": columns}
        )

    def _columns(self, trajectory: str, kind: Kind | None) -> dict[str, Any]:
        """The columns of measurements that are the same for a whole trajectory and method."""
        return {
            "trajectory": trajectory,
            "family": "controlled",
            "method": kind.method if kind else FULL_PRECISION,
            "bits": kind.bits if kind else None,
            "group_size": kind.columns if kind else None,
        }

    @cache
    def backends(self) -> Job:
        """The comparison of GPTQ backends."""
        settings = self.config.backends
        inputs = {}
        shard = list(self.timeline.shards(settings.trajectory))[-1]
        for quantizer in chain.from_iterable(settings.groups):
            quantized = self.quantize(settings.trajectory, quantizer, shard)
            inputs[f"quantized {quantizer}"] = [quantized.manifest]
            measured = self.measure(settings.trajectory, quantizer)
            inputs[f"measured {quantizer}"] = [measured.manifest]
        groups = ComparisonSettings(tuple(tuple(group) for group in settings.groups))
        folder = f"{self.results}/backends"
        return Job("quantize.comparison", settings.trajectory, folder, inputs, groups)
