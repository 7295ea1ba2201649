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
        seed, context = self.seed(trajectory, seed), self.shape(trajectory).context
        scale = self.scale
        kind = None if quantizer == FULL_PRECISION else self.kind(quantizer, trajectory)
        is_asked = (trajectory, seed, quantizer) in self._answering
        tasks = scale.tasks.names if scale.tasks and is_asked else ()
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
        inputs = self.plan.trajectories.inputs(trajectory, seed, shard) | self.tools(kind)
        inputs |= {f"task {task}": [self._task(trajectory, task).manifest] for task in tasks}
        name = f"{trajectory} seed {seed} {quantizer}"
        at = {"trajectory": trajectory, "seed": seed, "method": quantizer, "shard": shard}
        return self.make("measure", "measure.measure", name, inputs, settings, **at)

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
            if each.task in self.scale.tasks.at_chance:
                found[f"{BESIDE} {each.task}"] = jobs[0].inputs[f"task {each.task}"]
        return found

    @cache
    def kind(self, quantizer: str, trajectory: str) -> Quantizer:
        """A quantizer as it is for a trajectory's model."""
        widths = self.shape(trajectory).model.widths
        return self.config.quantizers[quantizer].resolved(widths)

    def calibration(self, trajectory: str, kind: Quantizer) -> CalibrationSettings:
        """The calibration set of a trajectory for a quantizer."""
        calibration, context = self.scale.calibration, self.shape(trajectory).context
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
        lock = Path("envs") / f"{tool}.txt"
        digest = environment.digest(self.site.root / lock, self.site.root / CUDA)
        settings = EnvironmentSettings(lock=str(lock), folder=f"envs/{tool}", digest=digest)
        return self.make("environment", "quantize.environment", tool, {}, settings, tool=tool)

    def draws(self, query: Figure, quantizer: str) -> tuple[str, ...]:
        """The quantizers that this scale takes where a figure names one: with each draw of the
        calibration set that both have."""
        further = query.draws.get(quantizer, ())[: self.scale.calibration.draws - 1]
        return tuple(map(self.scale.used, (quantizer, *further)))

    @cached_property
    def _answering(self) -> set[tuple[str, int, str]]:
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
        return found

    def _asked(self, trajectory: str, task: str) -> Asked:
        chosen: Any = self.scale.tasks
        public = self.timeline.run(trajectory) is None
        return Asked(
            task=task,
            documents=None if self.config.tasks[task].made else chosen.documents,
            shots=chosen.shots_before(task),
            batch=chosen.batch,
            # What was released reads more than the blocks that losses are measured on.
            context=(public and chosen.context) or self.shape(trajectory).context,
        )

    def _task(self, trajectory: str, task: str) -> Job:
        if self.config.tasks[task].made:
            return self.made(task, self.scale.held_by(self.shape(trajectory).corpus))
        return self._fetched(task)

    @cache
    def made(self, task: str, corpus: str) -> Job:
        """A task about documents that a corpus holds out."""
        kind: Any = self.config.tasks[task]
        chosen: Any = self.scale.tasks
        settings = MadeSettings(
            name=task,
            kind=kind.kind,
            shots=chosen.shots_before(task),
            **chosen.model_dump(include={"documents", "pool", "context"}),
        )
        sources = {"functions": self.plan.corpora.functions, "corpus": self.plan.corpora.corpus}
        inputs = {label: [maker(corpus).manifest] for label, maker in sources.items()}
        at = {"made": task, "corpus": corpus}
        return self.make("make_task", "measure.tasks.made", task, inputs, settings, **at)

    @cache
    def _fetched(self, task: str) -> Job:
        kind: Any = self.config.tasks[task]
        settings = HarnessSettings(name=task, task=kind)
        return self.make("fetch_task", "measure.tasks.harness", task, {}, settings, fetched=task)

    @cached_property
    def _compared(self) -> list[tuple[str, str, str, int]]:
        """What `measure` takes for all weights that the comparison of backends reads."""
        name, groups = self.config.backends.trajectory, self.config.backends.groups
        shard, seed = list(self.timeline.shards(name))[-1], self.seed(name, None)
        quantizers = dict.fromkeys(chain.from_iterable(groups))
        return [(name, each, shard, seed) for each in quantizers]

    @cache
    def comparison(self) -> Job:
        """The comparison of GPTQ backends, on the last shard of one trajectory."""
        name, groups = self.config.backends.trajectory, self.config.backends.groups
        inputs = {f"quantized {each[1]}": [self.measure(*each).manifest] for each in self._compared}
        quantizers = (FULL_PRECISION, *(each[1] for each in self._compared))
        series = [self.series(name, each) for each in quantizers]
        for each in series:
            inputs |= self.inputs(each)
        settings = ComparisonSettings(tuple(map(tuple, groups)), tuple(series))
        return self.make("comparison", "measure.comparison", name, inputs, settings)
