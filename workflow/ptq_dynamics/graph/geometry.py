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
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.measuring import Measuring
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.settings import Series


class Geometry:
    """Curvature, landscapes and principal components."""

    def __init__(
        self, site: Site, corpora: Corpora, trajectories: Trajectories, measuring: Measuring
    ) -> None:
        self._site, self._timeline = site, site.timeline
        self._corpora, self._trajectories = corpora, trajectories
        self._measuring = measuring

    @cache
    def curvature(
        self, trajectory: str, probe: str, shard: str = "all", seed: int | None = None
    ) -> Job:
        """Sharpness and trace, or spectrum, of one shard in full precision."""
        scale, seed = self._site.config.scale.curvature, self._site.seed(trajectory, seed)
        every = scale.spectrum_every if probe == "spectrum" else scale.sharpness_every
        ids = self._trajectories.checkpoints(trajectory, shard)
        context = self._context(trajectory)
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
        wildcards = {"trajectory": trajectory, "seed": seed, "probe": probe, "shard": shard}
        inputs = {
            "corpus": [self._corpora.of(trajectory).manifest],
            "trajectory": self._trajectories.manifests(trajectory, seed, shard),
        }
        folder, name = self._site.place("curvature", **wildcards), f"{trajectory} seed {seed}"
        return self._site.add(
            Job(f"curvature.{probe}", f"{name} {probe}", folder, inputs, settings)
        )

    def probed(self, series: Series, probe: str) -> dict[str, list[str]]:
        """The manifests of a probe of a series, by their label."""
        shards = self._timeline.shards(series.trajectory)
        jobs = [self.curvature(series.trajectory, probe, s, series.seed) for s in shards]
        return {series.label(probe): [job.manifest for job in jobs]}

    @cache
    def landscape(
        self, trajectory: str, quantizer: str, previous: int, seed: int | None = None
    ) -> Job:
        """Loss in the plane of a trajectory's last checkpoint, its quantization and the checkpoint
        `previous` steps before."""
        final = self._timeline.measured(trajectory)[-1]
        seed = self._site.seed(trajectory, seed)
        kind = self._measuring.kind(quantizer, trajectory)
        grid, context = self._site.config.scale.landscape, self._context(trajectory)
        return self._site.add(
            Job(
                "curvature.landscape",
                f"{trajectory} seed {seed} {quantizer}",
                self._site.place(
                    "landscape",
                    trajectory=trajectory,
                    seed=seed,
                    quantizer=quantizer,
                    steps=previous,
                ),
                {
                    "corpus": [self._corpora.of(trajectory).manifest],
                    "trajectory": self._trajectories.manifests(trajectory, seed),
                    **self._measuring.tools(kind),
                },
                LandscapeSettings(
                    final=final.id,
                    previous=self._before(trajectory, previous),
                    context=context,
                    blocks=grid.count(context),
                    batch=self._site.config.scale.evaluation.batch,
                    side=grid.side,
                    margin=grid.margin,
                    quantizer=kind,
                    calibration=self._measuring.calibration(trajectory, kind),
                ),
            )
        )

    def _before(self, trajectory: str, steps: int) -> str:
        """Id of the checkpoint so many steps before the last, which checks have found to exist."""
        points = {point.step: point for point in self._timeline.checkpoints(trajectory)}
        return points[(self._timeline.measured(trajectory)[-1].step or 0) - steps].id

    @cache
    def components(
        self, figure: str, trajectories: tuple[tuple[str, tuple[int, ...]], ...], components: int
    ) -> Job:
        """Principal components of the weights along a figure's trajectories at their seeds."""
        inputs, paths = {}, []
        for name, seeds in trajectories:
            for seed in seeds:
                label = f"{name} seed {seed}"
                inputs[label] = self._trajectories.manifests(name, seed)
                ids = tuple(point.id for point in self._timeline.measured(name))
                paths.append(Path(label=label, trajectory=name, seed=seed, checkpoints=ids))
        settings = ComponentsSettings(paths=tuple(paths), components=components)
        folder = self._site.place("components", figure=figure)
        return self._site.add(Job("curvature.components", figure, folder, inputs, settings))

    def _context(self, trajectory: str) -> int:
        return self._timeline.trajectory(trajectory).model_shape(self._timeline).context
