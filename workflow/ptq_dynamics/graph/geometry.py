"""The jobs that probe the loss around checkpoints."""

from functools import cache
from typing import Any

from ptq_dynamics.curvature.settings import (
    ComponentsSettings,
    LandscapeSettings,
    Path,
    SharpnessSettings,
    SpectrumSettings,
)
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.settings import Series


class Geometry(Planner):
    """Curvature, landscapes and principal components."""

    @cache
    def curvature(
        self, trajectory: str, probe: str, shard: str = "all", seed: int | None = None
    ) -> Job:
        """Sharpness and trace, or spectrum, of one shard in full precision."""
        seed, context = self.seed(trajectory, seed), self.shape(trajectory).context
        scale, is_spectrum = self.scale.curvature, probe == "spectrum"
        every = scale.spectrum_every if is_spectrum else scale.sharpness_every
        ids = self.plan.trajectories.checkpoints(trajectory, shard)
        common: dict[str, Any] = {
            "checkpoints": tuple(dict.fromkeys((*ids[::every], ids[-1]))),
            "context": context,
            "sequences": scale.count(context),
            "seed": seed,
            **scale.model_dump(include={"batch", "keep_graph", "tolerance", "max_iterations"}),
        }
        settings = (
            SpectrumSettings(**common, eigenvalues=scale.spectrum)
            if is_spectrum
            else SharpnessSettings(**common, trace_samples=scale.trace_samples)
        )
        name = f"{trajectory} seed {seed} {probe}"
        inputs = self.plan.trajectories.inputs(trajectory, seed, shard)
        at = {"trajectory": trajectory, "seed": seed, "probe": probe, "shard": shard}
        return self.make("curvature", f"curvature.{probe}", name, inputs, settings, **at)

    def probed(self, series: Series, probe: str) -> dict[str, list[str]]:
        """The manifests of a probe of a series, by their label."""
        shards = self.timeline.shards(series.trajectory)
        jobs = [self.curvature(series.trajectory, probe, s, series.seed) for s in shards]
        return {series.label(probe): [job.manifest for job in jobs]}

    @cache
    def landscape(
        self, trajectory: str, quantizer: str, previous: int, seed: int | None = None
    ) -> Job:
        """Loss in the plane of a trajectory's last checkpoint, its quantization and the checkpoint
        `previous` steps before, which checks have found to exist."""
        grid, measuring = self.scale.landscape, self.plan.measuring
        seed, context = self.seed(trajectory, seed), self.shape(trajectory).context
        kind, final = measuring.kind(quantizer, trajectory), self.timeline.measured(trajectory)[-1]
        ids = {point.step: point.id for point in self.timeline.checkpoints(trajectory)}
        settings = LandscapeSettings(
            final=final.id,
            previous=ids[(final.step or 0) - previous],
            context=context,
            blocks=grid.count(context),
            batch=self.scale.evaluation.batch,
            side=grid.side,
            margin=grid.margin,
            quantizer=kind,
            calibration=measuring.calibration(trajectory, kind),
        )
        name = f"{trajectory} seed {seed} {quantizer}"
        inputs = self.plan.trajectories.inputs(trajectory, seed) | measuring.tools(kind)
        at = {"trajectory": trajectory, "seed": seed, "quantizer": quantizer, "steps": previous}
        return self.make("landscape", "curvature.landscape", name, inputs, settings, **at)

    @cache
    def components(
        self, figure: str, trajectories: tuple[tuple[str, tuple[int, ...]], ...], components: int
    ) -> Job:
        """Principal components of the weights along a figure's trajectories at their seeds."""
        inputs, paths = {}, []
        for name, seeds in trajectories:
            for seed in seeds:
                label = f"{name} seed {seed}"
                inputs[label] = self.plan.trajectories.manifests(name, seed)
                ids = tuple(point.id for point in self.timeline.measured(name))
                paths.append(Path(label=label, trajectory=name, seed=seed, checkpoints=ids))
        settings = ComponentsSettings(paths=tuple(paths), components=components)
        stage = "curvature.components"
        return self.make("components", stage, figure, inputs, settings, figure=figure)
