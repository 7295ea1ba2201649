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
        scale, seed = self.scale.curvature, self.seed(trajectory, seed)
        every = scale.spectrum_every if probe == "spectrum" else scale.sharpness_every
        ids = self.plan.trajectories.checkpoints(trajectory, shard)
        context = self.context(trajectory)
        common: dict[str, Any] = {
            "checkpoints": tuple(dict.fromkeys((*ids[::every], ids[-1]))),
            "context": context,
            "sequences": scale.count(context),
            "batch": scale.batch,
            "keep_graph": scale.keep_graph,
            "tolerance": scale.tolerance,
            "max_iterations": scale.max_iterations,
            "seed": seed,
        }
        settings = (
            SpectrumSettings(**common, eigenvalues=scale.spectrum)
            if probe == "spectrum"
            else SharpnessSettings(**common, trace_samples=scale.trace_samples)
        )
        places = {"trajectory": trajectory, "seed": seed, "probe": probe, "shard": shard}
        inputs = {
            "corpus": [self.plan.corpora.of(trajectory).manifest],
            "trajectory": self.plan.trajectories.manifests(trajectory, seed, shard),
        }
        name = f"{trajectory} seed {seed} {probe}"
        return self.site.make("curvature", f"curvature.{probe}", name, inputs, settings, **places)

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
        seed, grid, measuring = (
            self.seed(trajectory, seed),
            self.scale.landscape,
            self.plan.measuring,
        )
        kind, context = measuring.kind(quantizer, trajectory), self.context(trajectory)
        final = self.timeline.measured(trajectory)[-1]
        ids = {point.step: point.id for point in self.timeline.checkpoints(trajectory)}
        inputs = {
            "corpus": [self.plan.corpora.of(trajectory).manifest],
            "trajectory": self.plan.trajectories.manifests(trajectory, seed),
            **measuring.tools(kind),
        }
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
        places = {"trajectory": trajectory, "seed": seed, "quantizer": quantizer, "steps": previous}
        name = f"{trajectory} seed {seed} {quantizer}"
        return self.site.make("landscape", "curvature.landscape", name, inputs, settings, **places)

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
        return self.site.make(
            "components", "curvature.components", figure, inputs, settings, figure=figure
        )
