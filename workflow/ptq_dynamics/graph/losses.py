"""The jobs that evaluate losses, and the series that measurements are selected by."""

from functools import cache

from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.quantization import Quantization
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.measure.settings import LossSettings, Series


class Losses:
    """Losses of trajectories, quantized or not."""

    def __init__(
        self, site: Site, corpora: Corpora, trajectories: Trajectories, quantization: Quantization
    ) -> None:
        self._site, self._corpora = site, corpora
        self._trajectories, self._quantization = trajectories, quantization

    @cache
    def evaluate(
        self, trajectory: str, quantizer: str, shard: str = "all", seed: int | None = None
    ) -> Job:
        """Validation losses of one shard under a quantizer, or in full precision."""
        site, timeline = self._site, self._site.timeline
        seed = site.seed(trajectory, seed)
        checkpoints = self._quantization.weights(trajectory, quantizer, shard, seed)
        context = timeline.trajectory(trajectory).model_shape(timeline).context
        evaluation = site.config.scale.evaluation
        return self._site.add(
            Job(
                "measure.loss",
                f"{trajectory} seed {seed} {quantizer}",
                site.place(
                    "evaluate", trajectory=trajectory, seed=seed, method=quantizer, shard=shard
                ),
                {"corpus": [self._corpora.of(trajectory).manifest], "checkpoints": checkpoints},
                LossSettings(
                    checkpoints=self._trajectories.checkpoints(trajectory, shard),
                    context=context,
                    blocks=evaluation.count(context),
                    batch=evaluation.batch,
                    full_precision=quantizer == FULL_PRECISION,
                ),
            )
        )

    @cache
    def series(self, trajectory: str, quantizer: str, seed: int | None = None) -> Series:
        """A trajectory at a seed under a quantizer, or in full precision."""
        timeline = self._site.timeline
        family = timeline.trajectory(trajectory).trained_by(timeline)
        seed = self._site.seed(trajectory, seed)
        if quantizer == FULL_PRECISION:
            return Series(trajectory, seed, family, quantizer, FULL_PRECISION, None, None)
        kind = self._quantization.kind(quantizer, trajectory)
        return Series(trajectory, seed, family, quantizer, kind.method, kind.bits, kind.columns)

    def losses(self, series: Series) -> dict[str, list[str]]:
        """The manifests of a series' evaluations, by their label."""
        shards = self._site.timeline.shards(series.trajectory)
        jobs = [self.evaluate(series.trajectory, series.quantizer, s, series.seed) for s in shards]
        return {series.label("losses"): [job.manifest for job in jobs]}

    def layers(self, series: Series) -> dict[str, list[str]]:
        """The manifests of a quantized series' layer errors, by their label."""
        if series.quantizer == FULL_PRECISION:
            return {}
        shards, quantize = (
            self._site.timeline.shards(series.trajectory),
            self._quantization.quantize,
        )
        jobs = [quantize(series.trajectory, series.quantizer, s, series.seed) for s in shards]
        return {series.label("layers"): [job.manifest for job in jobs]}
