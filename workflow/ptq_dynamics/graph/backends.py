"""The job that compares backends of GPTQ."""

from functools import cache
from itertools import chain

from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.losses import Losses
from ptq_dynamics.graph.quantization import Quantization
from ptq_dynamics.graph.site import Site
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.quantize.settings import ComparisonSettings


class Backends:
    """Quantizers with equal settings on the last shard of one trajectory."""

    def __init__(self, site: Site, quantization: Quantization, losses: Losses) -> None:
        self._site, self._quantization, self._losses = site, quantization, losses

    @cache
    def comparison(self) -> Job:
        """The comparison of GPTQ backends."""
        backends = self._site.config.backends
        trajectory = backends.trajectory
        shard = list(self._site.timeline.shards(trajectory))[-1]
        quantizers = list(dict.fromkeys(chain.from_iterable(backends.groups)))
        series = [self._losses.series(trajectory, q) for q in (FULL_PRECISION, *quantizers)]
        inputs = {}
        for quantizer in quantizers:
            quantized = self._quantization.quantize(trajectory, quantizer, shard)
            inputs[f"quantized {quantizer}"] = [quantized.manifest]
        for each in series:
            inputs |= self._losses.losses(each)
        groups = tuple(map(tuple, backends.groups))
        return self._site.add(
            Job(
                "quantize.comparison",
                trajectory,
                self._site.place("comparison"),
                inputs,
                ComparisonSettings(groups, tuple(series)),
            )
        )
