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
        seed, evaluation = self.seed(trajectory, seed), self.scale.evaluation
        context, made = self.context(trajectory), self.plan.trajectories
        inputs = {
            "corpus": [self.plan.corpora.of(trajectory).manifest],
            "trajectory": made.manifests(trajectory, seed, shard),
        }
        kind = None
        if quantizer != FULL_PRECISION:
            kind = self.kind(quantizer, trajectory)
            inputs |= self.tools(kind)
        tasks: tuple[str, ...] = ()
        if self.scale.tasks and (trajectory, seed, quantizer) in self._answering:
            tasks = self.scale.tasks.names
        inputs |= {f"task {task}": [self._task(trajectory, task).manifest] for task in tasks}
        written = self.scale.keep.quantize == "all"
        settings = MeasureSettings(
            checkpoints=made.checkpoints(trajectory, shard),
            context=context,
            blocks=evaluation.count(context),
            batch=evaluation.batch,
            quantizer=kind,
            calibration=None if kind is None else self.calibration(trajectory, kind),
            tasks=tuple(self._asked(trajectory, task) for task in tasks),
            keep=kind is not None
            and (written or (trajectory, quantizer, shard, seed) in self._compared),
        )
        places = {"trajectory": trajectory, "seed": seed, "method": quantizer, "shard": shard}
        name = f"{trajectory} seed {seed} {quantizer}"
        return self.site.make("measure", "measure.measure", name, inputs, settings, **places)

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
        for each in jobs[0].settings.tasks:
            if self.scale.tasks and each.task in self.scale.tasks.at_chance:
                found[f"{BESIDE} {each.task}"] = jobs[0].inputs[f"task {each.task}"]
        return found

    @cache
    def kind(self, quantizer: str, trajectory: str) -> Quantizer:
        """A quantizer as it is for a trajectory's model."""
        shape = self.timeline.trajectory(trajectory).model_shape(self.timeline)
        return self.config.quantizers[quantizer].resolved(shape.model.widths)

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

    def tools(self, kind: Quantizer) -> dict[str, list[str]]:
        """The environment that a quantizer needs beside the main one, by its label."""
        return {} if kind.tool is None else {"environment": [self.environment(kind.tool).manifest]}

    @cache
    def environment(self, tool: str) -> Job:
        """The environment of a tool that cannot share the main one, from its lock file."""
        lock, folder = Path("envs") / f"{tool}.txt", f"envs/{tool}"
        digest = environment.digest(self.site.root / lock, self.site.root / CUDA)
        settings = environment.EnvironmentSettings(lock=str(lock), folder=folder, digest=digest)
        return self.site.add(Job("quantize.environment", tool, folder, {}, settings))

    def draws(self, query: Figure, quantizer: str) -> tuple[str, ...]:
        """The quantizers that this scale takes where a figure names one: with each draw of the
        calibration set that both have."""
        further = query.draws.get(quantizer, ())[: self.scale.calibration.draws - 1]
        return tuple(map(self.scale.used, (quantizer, *further)))

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
        shape = self.timeline.trajectory(trajectory).model_shape(self.timeline)
        if self.config.tasks[task].made:
            return self.made(task, self.scale.held_by(shape.corpus))
        return self.fetched(task)

    @cache
    def made(self, task: str, corpus: str) -> Job:
        """A task about documents that a corpus holds out."""
        chosen: Any = self.scale.tasks
        kind: Any = self.config.tasks[task]
        settings = MadeSettings(
            name=task,
            task=kind,
            documents=chosen.documents,
            pool=chosen.pool,
            shots=chosen.shots_before(task),
            context=chosen.context,
        )
        inputs = {
            "functions": [self.plan.corpora.functions(corpus).manifest],
            "corpus": [self.plan.corpora.corpus(corpus).manifest],
        }
        return self.site.make(
            "make_task", "measure.tasks.made", task, inputs, settings, made=task, corpus=corpus
        )

    @cache
    def fetched(self, task: str) -> Job:
        """A task of the harness with its data."""
        kind: Any = self.config.tasks[task]
        settings = HarnessSettings(name=task, task=kind)
        return self.site.make(
            "fetch_task", "measure.tasks.harness", task, {}, settings, fetched=task
        )

    @cached_property
    def _compared(self) -> frozenset[tuple[str, str, str, int]]:
        """Trajectory, quantizer, shard and seed of all weights that the comparison of backends
        reads."""
        name, groups = self.config.backends.trajectory, self.config.backends.groups
        last, seed = list(self.timeline.shards(name))[-1], self.seed(name, None)
        return frozenset((name, each, last, seed) for each in chain.from_iterable(groups))

    @cache
    def comparison(self) -> Job:
        """The comparison of GPTQ backends, on the last shard of one trajectory."""
        trajectory, groups = self.config.backends.trajectory, self.config.backends.groups
        shard = list(self.timeline.shards(trajectory))[-1]
        quantizers = dict.fromkeys(chain.from_iterable(groups))
        series = [self.series(trajectory, each) for each in (FULL_PRECISION, *quantizers)]
        inputs = {
            f"quantized {each}": [self.measure(trajectory, each, shard).manifest]
            for each in quantizers
        }
        for each in series:
            inputs |= self.inputs(each)
        settings = ComparisonSettings(tuple(map(tuple, groups)), tuple(series))
        return self.site.make("comparison", "measure.comparison", trajectory, inputs, settings)
