"""The jobs that probe the loss around checkpoints."""

from functools import cache

from ptq_dynamics.config import Pca
from ptq_dynamics.geometry.settings import (
    ComponentsSettings,
    LandscapeSettings,
    SharpnessSettings,
    SpectrumSettings,
)
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.measurements import Measurements


class Geometry(Measurements):
    """Curvature, landscapes and principal components."""

    @cache
    def curvature(self, trajectory: str, probe: str, shard: str) -> Job:
        """Sharpness and trace, or spectrum, of one shard in full precision."""
        settings = self.config.scale.curvature.model_dump()
        eigenvalues, samples = settings.pop("spectrum"), settings.pop("trace_samples")
        every = {name: settings.pop(f"{name}_every") for name in ("sharpness", "spectrum")}
        steps = self.timeline.shards(trajectory)[shard]
        steps = sorted({*steps[:: every[probe]], steps[-1]})
        common = {
            "steps": tuple(steps),
            "context": self.timeline.shape(trajectory).context,
            "seed": self.config.choice.seed,
            "columns": self._columns(trajectory, None),
            **settings,
        }
        return Job(
            f"geometry.{probe}",
            f"{trajectory} {probe}",
            f"{self.results}/curvature/{trajectory}/{probe}/{shard}",
            {
                "corpus": [self.corpus_of(trajectory).manifest],
                "trajectory": [self.trajectory(trajectory).manifest],
            },
            SpectrumSettings(**common, eigenvalues=eigenvalues)
            if probe == "spectrum"
            else SharpnessSettings(**common, trace_samples=samples),
        )

    @cache
    def landscape(self, trajectory: str, quantizer: str, previous: int) -> Job:
        """Loss in the plane of a run's last checkpoint, its quantization and an earlier one."""
        last_shard = list(self.timeline.shards(trajectory))[-1]
        final = self.timeline.measured_steps(trajectory)[-1]
        return Job(
            "geometry.landscape",
            f"{trajectory} {quantizer}",
            f"{self.results}/landscape/{trajectory}/{quantizer}/back-{previous}",
            {
                "corpus": [self.corpus_of(trajectory).manifest],
                "trajectory": [self.trajectory(trajectory).manifest],
                "quantized": [self.quantize(trajectory, quantizer, last_shard).manifest],
            },
            LandscapeSettings(
                final=final,
                previous=final - previous,
                context=self.timeline.shape(trajectory).context,
                batch=self.config.scale.evaluation.batch,
                **self.config.scale.landscape.model_dump(),
            ),
        )

    @cache
    def components(self, figure: str) -> Job:
        """Principal components of the weights along a figure's trajectories."""
        settings = self.config.figures[figure]
        assert isinstance(settings, Pca)
        names = settings.trajectories
        return Job(
            "geometry.components",
            figure,
            f"{self.results}/components/{figure}",
            {name: [self.trajectory(name).manifest] for name in names},
            ComponentsSettings(
                steps=tuple((name, tuple(self.timeline.measured_steps(name))) for name in names),
                components=settings.components,
            ),
        )
