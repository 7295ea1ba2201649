"""The jobs that measure trajectories, and those that make what measuring needs: tasks, and
environments of tools."""

from functools import cache, cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from ptq_dynamics.config import Figure
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Planner
from ptq_dynamics.measure.names import BESIDE, FULL_PRECISION, MEASURED, TASK_METRICS
from ptq_dynamics.measure.settings import Asked, ComparisonSettings, MeasureSettings, Series
from ptq_dynamics.measure.tasks.harness import HarnessSettings
from ptq_dynamics.measure.tasks.made import MadeSettings
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.calibration import CalibrationSettings
from ptq_dynamics.quantize.environment import EnvironmentSettings
from ptq_dynamics.quantize.methods import Quantizer

# What torch brings along in each environment, where it is built for a GPU.
CUDA = Path("envs/cuda.txt")


class Measuring(Planner):
    """Losses, layer errors and answers to tasks of trajectories, quantized or not."""

    @cache
    def measure(
        self, trajectory: str, quantizer: str, shard: str = "all", seed: int | None = None
    ) -> Job:
        """All measurements of one shard under a quantizer, or in full precision."""
        site, scale = self.site, self.scale
        seed, context = self.seed(trajectory, seed), self.context(trajectory)
        kind = None if quantizer == FULL_PRECISION else self.kind(quantizer, trajectory)
        named = scale.tasks.names if scale.tasks else ()
        tasks = named if (trajectory, seed, quantizer) in self._answering else ()
        inputs = {
            "corpus": [self.plan.corpora.of(trajectory).manifest],
            "trajectory": self.plan.trajectories.manifests(trajectory, seed, shard),
            **self.tools(kind),
            **{f"task {task}": [self._task(trajectory, task).manifest] for task in tasks},
        }
        is_compared = (trajectory, quantizer, shard, seed) in self._compared
        settings = MeasureSettings(
            checkpoints=self.plan.trajectories.checkpoints(trajectory, shard),
            context=context,
            blocks=scale.evaluation.count(context),
            batch=scale.evaluation.batch,
            quantizer=kind,
            calibration=None if kind is None else self.calibration(trajectory, kind),
            tasks=tuple(self._asked(trajectory, task) for task in tasks),
            keep=kind is not None and (scale.keep.quantize == "all" or is_compared),
        )
        places = {"trajectory": trajectory, "seed": seed, "method": quantizer, "shard": shard}
        name, folder = (
            f"{trajectory} seed {seed} {quantizer}",
            self.site.places("measure").format(**places),
        )
        return site.add(Job("measure.measure", name, folder, inputs, settings))

    @cache
    def series(self, trajectory: str, quantizer: str, seed: int | None = None) -> Series:
        """A trajectory at a seed under a quantizer, or in full precision."""
        family = self.timeline.trajectory(trajectory).trained_by(self.timeline)
        seed = self.seed(trajectory, seed)
        if quantizer == FULL_PRECISION:
            return Series(trajectory, seed, family, quantizer, FULL_PRECISION, None, None)
        kind = self.kind(quantizer, trajectory)
        return Series(trajectory, seed, family, quantizer, kind.method, kind.bits, kind.columns)

    def inputs(self, series: Series) -> dict[str, list[str]]:
        """The manifests of what was measured of a series, by their label; and of its tasks that
        count in no mean."""
        shards = self.timeline.shards(series.trajectory)
        of = (series.trajectory, series.quantizer)
        jobs = [self.measure(*of, shard, series.seed) for shard in shards]
        found = {series.label(MEASURED): [job.manifest for job in jobs]}
        chosen = self.scale.tasks
        for each in jobs[0].settings.tasks:
            if chosen is not None and each.task in chosen.at_chance:
                found[f"{BESIDE} {each.task}"] = jobs[0].inputs[f"task {each.task}"]
        return found

    @cache
    def kind(self, quantizer: str, trajectory: str) -> Quantizer:
        """A quantizer as it is for a trajectory's model."""
        widths = self.timeline.trajectory(trajectory).model_shape(self.timeline).model.widths
        return self.config.quantizers[quantizer].resolved(widths)

    def calibration(self, trajectory: str, kind: Quantizer) -> CalibrationSettings:
        """The calibration set of a trajectory for a quantizer."""
        calibration, context = self.scale.calibration, self.context(trajectory)
        return CalibrationSettings(
            context=context,
            sequences=calibration.documents or calibration.count(context),
            documents=calibration.documents is not None,
            batch=calibration.batch,
            draw=kind.calibration_draw,
        )

    def tools(self, kind: Quantizer | None) -> dict[str, list[str]]:
        """The environment that a quantizer needs beside the main one, by its label."""
        tool = kind and kind.tool
        return {"environment": [self.environment(tool).manifest]} if tool else {}

    @cache
    def environment(self, tool: str) -> Job:
        """The environment of a tool that cannot share the main one, from its lock file."""
        lock, folder = Path("envs") / f"{tool}.txt", f"envs/{tool}"
        digest = environment.digest(self.site.root / lock, self.site.root / CUDA)
        settings = EnvironmentSettings(lock=str(lock), folder=folder, digest=digest)
        return self.site.add(Job("quantize.environment", tool, folder, {}, settings))

    def used(self, quantizer: str) -> str:
        """The quantizer that this scale takes where a figure names one."""
        return self.scale.quantizers.get(quantizer, quantizer)

    def draws(self, query: Figure, quantizer: str) -> tuple[str, ...]:
        """The quantizers that this scale takes where a figure names one: with each draw of the
        calibration set that both have."""
        further = query.draws.get(quantizer, ())[: self.scale.calibration.draws - 1]
        return tuple(map(self.used, (quantizer, *further)))

    @cached_property
    def _answering(self) -> frozenset[tuple[str, int, str]]:
        """Trajectory, seed and quantizer of all series that are asked tasks: by all figures, chosen
        or not, so that a job is the same in a build of one figure as in one of all."""
        found = set[tuple[str, int, str]]()
        for figure in self.config.figures.values():
            if not {*TASK_METRICS}.isdisjoint(figure.metrics):
                drawn = chain.from_iterable(self.draws(figure, each) for each in figure.quantizers)
                quantizers = (FULL_PRECISION, *drawn)
                for name in figure.trajectories:
                    seeds = self.timeline.seeds_shown(name, figure.headline)
                    found |= set(product([name], seeds, quantizers))
        return frozenset(found)

    def _asked(self, trajectory: str, task: str) -> Asked:
        chosen, public = self.scale.tasks, self.timeline.run(trajectory) is None
        assert chosen is not None
        return Asked(
            task=task,
            documents=None if self.config.tasks[task].made else chosen.documents,
            shots=chosen.shots_before(task),
            batch=chosen.batch,
            # What was released reads more than the blocks that losses are measured on.
            context=(public and chosen.context) or self.context(trajectory),
        )

    def _task(self, trajectory: str, task: str) -> Job:
        if not self.config.tasks[task].made:
            return self.fetched(task)
        shape = self.timeline.trajectory(trajectory).model_shape(self.timeline)
        return self.made(task, self.scale.held_by(shape.corpus))

    @cache
    def made(self, task: str, corpus: str) -> Job:
        """A task about documents that a corpus holds out."""
        made: Any = self.config.tasks[task]
        chosen = self.scale.tasks
        assert chosen is not None
        settings = MadeSettings(
            name=task,
            kind=made.kind,
            shots=chosen.shots_before(task),
            **chosen.model_dump(include={"documents", "pool", "context"}),
        )
        inputs = {
            "functions": [self.plan.corpora.functions(corpus).manifest],
            "corpus": [self.plan.corpora.corpus(corpus).manifest],
        }
        folder = self.site.places("make_task").format(made=task, corpus=corpus)
        return self.site.add(Job("measure.tasks.made", task, folder, inputs, settings))

    @cache
    def fetched(self, task: str) -> Job:
        """A task of the harness with its data."""
        kind: Any = self.config.tasks[task]
        folder, settings = (
            self.site.places("fetch_task").format(fetched=task),
            HarnessSettings(name=task, task=kind),
        )
        return self.site.add(Job("measure.tasks.harness", task, folder, {}, settings))

    @cached_property
    def _compared(self) -> dict[tuple[str, str, str, int], None]:
        """Trajectory, quantizer, shard and seed of all weights that the comparison of backends
        reads, in order."""
        backends = self.config.backends
        shard = list(self.timeline.shards(backends.trajectory))[-1]
        seed = self.seed(backends.trajectory, None)
        quantizers = chain.from_iterable(backends.groups)
        return {(backends.trajectory, each, shard, seed): None for each in quantizers}

    @cache
    def comparison(self) -> Job:
        """The comparison of GPTQ backends, on the last shard of one trajectory."""
        backends, series = self.config.backends, []
        inputs = {f"quantized {each[1]}": [self.measure(*each).manifest] for each in self._compared}
        for quantizer in (FULL_PRECISION, *(each[1] for each in self._compared)):
            series.append(self.series(backends.trajectory, quantizer))
            inputs |= self.inputs(series[-1])
        settings = ComparisonSettings(tuple(map(tuple, backends.groups)), tuple(series))
        name, folder = backends.trajectory, self.site.places("comparison")
        return self.site.add(Job("measure.comparison", name, folder, inputs, settings))
