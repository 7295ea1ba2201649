"""The jobs that measure trajectories and probe the Hessian, and those of tasks and environments."""

from functools import cache
from itertools import chain

from ptq_dynamics.base import needs
from ptq_dynamics.base.components import kinds_in
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Figure, require
from ptq_dynamics.config.scale import Tasks
from ptq_dynamics.curvature import geometry
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.measure import metrics
from ptq_dynamics.measure.metrics import ModelMetric, OfPredictions
from ptq_dynamics.measure.names import BESIDE, FULL_PRECISION, LAYER_METRICS, MEASURED, TASK_METRICS
from ptq_dynamics.measure.series import (
    ComparisonSettings,
    MeasureSettings,
    Query,
    Series,
    TaskSettings,
)
from ptq_dynamics.measure.tasks.harness import HarnessSettings, HarnessTask
from ptq_dynamics.measure.tasks.made import MadeSettings, MadeTask
from ptq_dynamics.plan.own_checkpoints import Elsewhere
from ptq_dynamics.plan.planned_runs import PlannedRun
from ptq_dynamics.plan.releases import PlannedRelease
from ptq_dynamics.plan.site import Planner, Site
from ptq_dynamics.plan.trajectory_jobs import TrajectoryJobs
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.methods import CalibrationSettings, Quantizer
from ptq_dynamics.quantize.tool import ForeignGptq


class MeasurementJobs(Planner):
    """Jobs of measurements, curvature, landscapes and principal components."""

    def __init__(self, site: Site, trajectories: TrajectoryJobs) -> None:
        super().__init__(site)
        self.trajectories = trajectories

    @cache
    def measure(self, trajectory: str, quantizer: str, shard: str, seed: int) -> Job:
        """Return the job of all measurements of a shard under a quantizer."""
        scale, shape = self.scale, self.planned[trajectory].shape
        kind = None if quantizer == FULL_PRECISION else self.kind(quantizer, trajectory)
        has_tasks = self._has_tasks(trajectory, quantizer, seed)
        tasks = scale.tasks.names if scale.tasks and has_tasks else ()
        followed = self.planned[trajectory].followed
        public = followed.entry if isinstance(followed, PlannedRelease) else None
        is_compared = (trajectory, quantizer, shard, seed) in self._compared()
        settings = MeasureSettings(
            checkpoints=self.trajectories.checkpoints(trajectory, shard),
            context=shape.context,
            blocks=scale.evaluation.count(shape.context),
            batch=scale.evaluation.batch,
            quantizer=kind,
            calibration=None if kind is None else self._calibration(trajectory, kind),
            tasks=tuple(self._task(trajectory, task) for task in tasks),
            carried=self._carried(trajectory, shard) if kind is None else 0,
            keep=kind is not None and (scale.keep.quantize == "all" or is_compared),
            skip=(isinstance(public, Elsewhere) and public.skip)
            or hasattr(shape.model, "unquantized"),
            metrics=self._metrics(trajectory, quantizer),
            # Layers of public models are measured only for figures that show them.
            layers=(kind is None or kind.by_layer)
            and (public is None or is_compared or self._has_layers(trajectory)),
        )
        inputs = self.trajectories.inputs(trajectory, seed, shard) | self._tools(kind)
        corpus = scale.held_by(shape.corpus)
        inputs |= {needs.task(task): [self.task(task, corpus).manifest] for task in tasks}
        name = f"{trajectory} seed {seed} {quantizer}"
        at = {"trajectory": trajectory, "seed": seed, "quantizer": quantizer, "shard": shard}
        reads = getattr(kind, "reads", ())
        return self.make("measure", "measure.measure", name, inputs, settings, reads, **at)

    def _has_layers(self, trajectory: str) -> bool:
        figures = self.config.figures.values()
        shown = (f.metrics for f in figures if any(trajectory in c for c in f.curves.values()))
        return any({*LAYER_METRICS} & {*metrics} for metrics in shown)

    def _metrics(self, trajectory: str, quantizer: str) -> tuple[ModelMetric, ...]:
        """Return the metrics that any figure, chosen or not, shows of a series. Own checkpoints
        have all those of predictions, for their page."""
        shown = {
            metric
            for figure in self.config.figures.values()
            if trajectory in figure.trajectories and quantizer in self.quantizers(figure.query)
            for metric in figure.metrics
        }
        is_quantized = quantizer != FULL_PRECISION
        followed = self.planned[trajectory].followed
        is_own = isinstance(followed, PlannedRelease) and isinstance(followed.entry, Elsewhere)
        return tuple(
            kind.model_validate({"metric": column.name})
            for kind in kinds_in(metrics.__name__, ModelMetric)
            for column in kind.columns
            if column.quantized == is_quantized
            and (column.name in shown or (is_own and issubclass(kind, OfPredictions)))
        )

    def _carried(self, trajectory: str, shard: str) -> int:
        """Return the blocks of text for what a model's blocks carry, at the end of a run."""
        is_end = shard == list(self.planned[trajectory].shards)[-1]
        is_run = is_end and isinstance(self.planned[trajectory].followed, PlannedRun)
        return self.scale.landscape.count(self.planned[trajectory].shape.context) if is_run else 0

    @cache
    def curvature(self, trajectory: str, probe: str, shard: str, seed: int) -> Job:
        """Return the job of a probe of the Hessian, of a shard."""
        scale, context = self.scale.curvature, self.planned[trajectory].shape.context
        kind, ids = scale.probe(probe), self.trajectories.checkpoints(trajectory, shard)
        settings = kind.settings(
            checkpoints=tuple(dict.fromkeys((*ids[:: kind.every], ids[-1]))),
            context=context,
            sequences=scale.count(context),
            seed=seed,
            **scale.model_dump(include={"batch", "keep_graph", "tolerance", "max_iterations"}),
            **kind.own(),
        )
        name = f"{trajectory} seed {seed} {probe}"
        inputs = self.trajectories.inputs(trajectory, seed, shard)
        at = {"trajectory": trajectory, "seed": seed, "probe": probe, "shard": shard}
        return self.make("curvature", kind.stage, name, inputs, settings, **at)

    def named(self, rule: str, trajectory: str, seed: str, shard: str, **name: str) -> None:
        """Plan a measurement or a probe that no figure needs; `Problem` if it cannot be made."""
        ((what, kind),) = name.items()
        quantizers = [FULL_PRECISION, *self.config.quantizers]
        probes = [probe.kind for probe in self.scale.curvature.probes]
        require(rule, "trajectory", [trajectory], self.planned)
        require(f"{rule} {trajectory}", "shard", [shard], self.planned[trajectory].shards)
        require(rule, what, [kind], quantizers if what == "quantizer" else probes)
        if isinstance(self.planned[trajectory].followed, PlannedRelease):
            seeds = [str(known) for known in self.planned[trajectory].seeds]
            require(f"{rule} {trajectory}", "seed", [seed], seeds)
        if kind in self.config.quantizers:
            model = self.planned[trajectory].shape.model
            if (wrong := self.config.quantizers[kind].refuses(model)) is not None:
                raise Problem(f"{kind} cannot quantize {trajectory}: {wrong}; name another one")
        make = self.measure if what == "quantizer" else self.curvature
        make(trajectory, kind, shard, int(seed) if seed.isdecimal() else None)

    @cache
    def series(self, trajectory: str, quantizer: str, seed: int | None = None) -> Series:
        """Return a trajectory at a seed under a quantizer, or in full precision."""
        family, places = self.planned[trajectory].origin.family, self.planned[trajectory].places
        own = (trajectory, self.seed(trajectory, seed), family, quantizer)
        if quantizer == FULL_PRECISION:
            return Series(*own, FULL_PRECISION, None, None, places)
        kind = self.kind(quantizer, trajectory)
        return Series(*own, kind.method, kind.bits, kind.columns, places)

    def inputs(self, series: Series) -> dict[str, list[str]]:
        """Return manifests of a series' measurements, and of its tasks at chance, by label."""
        shards = self.planned[series.trajectory].shards
        pair = (series.trajectory, series.quantizer)
        jobs = [self.measure(*pair, shard, series.seed) for shard in shards]
        inputs = {series.label(MEASURED): [job.manifest for job in jobs]}
        for question in jobs[0].settings.tasks:
            if question.task in self.tasks.at_chance:
                inputs[f"{BESIDE} {question.task}"] = jobs[0].inputs[needs.task(question.task)]
        return inputs

    def probed(self, series: Series, probe: str) -> dict[str, list[str]]:
        """Return manifests of a probe of a series, by label."""
        shards = self.planned[series.trajectory].shards
        jobs = [self.curvature(series.trajectory, probe, s, series.seed) for s in shards]
        return {series.label(probe): [job.manifest for job in jobs]}

    @cache
    def landscape(self, trajectory: str, quantizer: str, previous: int) -> Job:
        """Return the job of the loss in the plane of the last checkpoint, its quantization and the
        checkpoint `previous` steps before."""
        grid, seed = self.scale.landscape, self.seed(trajectory)
        context = self.planned[trajectory].shape.context
        kind, final = self.kind(quantizer, trajectory), self.planned[trajectory].measured[-1]
        ids = {point.step: point.id for point in self.planned[trajectory].checkpoints}
        settings = geometry.LandscapeSettings(
            final=final.id,
            previous=ids[(final.step or 0) - previous],
            context=context,
            blocks=grid.count(context),
            batch=self.scale.evaluation.batch,
            **grid.model_dump(include={"side", "margin"}),
            quantizer=kind,
            calibration=self._calibration(trajectory, kind),
        )
        name = f"{trajectory} seed {seed} {quantizer}"
        inputs = self.trajectories.inputs(trajectory, seed) | self._tools(kind)
        at = {"trajectory": trajectory, "seed": seed, "quantizer": quantizer, "steps": previous}
        return self.make("landscape", "curvature.landscape", name, inputs, settings, **at)

    def components(self, name: str, figure: Figure, count: int) -> Job:
        """Return the job of principal components along a figure's trajectories."""
        inputs, paths = {}, []
        for trajectory in figure.trajectories:
            ids = tuple(point.id for point in self.planned[trajectory].measured)
            for seed in self.planned[trajectory].seeds_shown(figure.headline):
                label = f"{trajectory} seed {seed}"
                inputs[label] = self.trajectories.manifests(trajectory, seed)
                paths.append(
                    geometry.Path(label=label, trajectory=trajectory, seed=seed, checkpoints=ids)
                )
        settings = geometry.ComponentsSettings(paths=tuple(paths), components=count)
        return self.make("components", "curvature.components", name, inputs, settings, figure=name)

    @cache
    def comparison(self) -> Job:
        """Return the job that compares GPTQ backends on the last shard of a trajectory."""
        name, inputs = self.config.backends.trajectory, dict[str, list[str]]()
        series = [self.series(name, FULL_PRECISION)]
        for compared in self._compared():
            inputs[needs.quantized(compared[1])] = [self.measure(*compared).manifest]
            series.append(self.series(name, compared[1]))
        for one in series:
            inputs |= self.inputs(one)
        settings = ComparisonSettings(tuple(map(tuple, self.config.backends.groups)), tuple(series))
        return self.make("comparison", "measure.agreement", name, inputs, settings)

    @cache
    def _compared(self) -> list[tuple[str, str, str, int]]:
        """Return the measurements whose weights the comparison of backends reads."""
        name, groups = self.config.backends.trajectory, self.config.backends.groups
        shard, seed = list(self.planned[name].shards)[-1], self.seed(name)
        return [
            (name, quantizer, shard, seed)
            for quantizer in dict.fromkeys(chain.from_iterable(groups))
        ]

    @cache
    def kind(self, quantizer: str, trajectory: str) -> Quantizer:
        """Return a quantizer, resolved for a trajectory's model."""
        widths = self.planned[trajectory].shape.model.widths
        return self.config.quantizers[quantizer].resolved(widths)

    def draws(self, query: Query, quantizer: str) -> tuple[str, ...]:
        """Return the scale's quantizers for one of a query, one for each calibration set."""
        further = query.draws.get(quantizer, ())[: self.scale.calibration.draws - 1]
        return tuple(map(self.scale.used, (quantizer, *further)))

    def quantizers(self, query: Query) -> list[str]:
        """Return full precision and all quantizers of a query."""
        return [FULL_PRECISION, *chain(*(self.draws(query, name) for name in query.quantizers))]

    def _calibration(self, trajectory: str, kind: Quantizer) -> CalibrationSettings:
        """Return the calibration set of a trajectory for a quantizer."""
        calibration, context = self.scale.calibration, self.planned[trajectory].shape.context
        return CalibrationSettings(
            context=context,
            sequences=calibration.documents or calibration.count(context),
            documents=calibration.documents is not None,
            batch=calibration.batch,
            draw=kind.calibration_draw,
        )

    @cache
    def _tools(self, kind: Quantizer | None) -> dict[str, list[str]]:
        """Return the manifest of the environment that a quantizer needs, by label."""
        if not isinstance(kind, ForeignGptq):
            return {}
        tool, lock, root = kind.method, f"envs/{kind.method}.txt", self.site.root
        # The other file locks the CUDA libraries of torch.
        digest = environment.digest(root / lock, root / "envs/cuda.txt")
        settings = environment.EnvironmentSettings(
            lock=lock, folder=f"envs/{tool}", digest=digest, python=kind.python
        )
        job = self.make("environment", "quantize.environment", tool, {}, settings, tool=tool)
        return {needs.ENVIRONMENT: [job.manifest]}

    def _has_tasks(self, trajectory: str, quantizer: str, seed: int) -> bool:
        """Return whether any figure, chosen or not, has tasks for a series."""
        return any(
            trajectory in figure.trajectories
            and seed in self.planned[trajectory].seeds_shown(figure.headline)
            and quantizer in self.quantizers(figure.query)
            for figure in self.config.figures.values()
            if not {*TASK_METRICS}.isdisjoint(figure.metrics)
        )

    def _task(self, trajectory: str, task: str) -> TaskSettings:
        tasks, planned = self.tasks, self.planned[trajectory]
        is_public = isinstance(planned.followed, PlannedRelease)
        return TaskSettings(
            task=task,
            documents=None if self.config.tasks[task].made else tasks.documents,
            shots=tasks.shots_before(task),
            batch=tasks.batch,
            # Released models read longer prompts than blocks.
            context=max((is_public and tasks.context) or 0, planned.shape.context),
        )

    @property
    def tasks(self) -> Tasks:
        """The tasks of the scale, which has some if a figure shows them."""
        assert self.scale.tasks is not None
        return self.scale.tasks

    @cache
    def task(self, task: str, corpus: str) -> Job:
        """Return the job of a task, downloaded or generated from held-out documents."""
        kind, tasks = self.config.tasks[task], self.tasks
        if isinstance(kind, HarnessTask):
            stage, fetched = "measure.tasks.harness", HarnessSettings(name=task, task=kind)
            return self.make("fetch_task", stage, task, {}, fetched, fetched=task)
        assert isinstance(kind, MadeTask)
        settings = MadeSettings(
            name=task,
            kind=kind.kind,
            shots=tasks.shots_before(task),
            **tasks.model_dump(include={"documents", "pool", "context"}),
        )
        corpora = self.trajectories
        made = {
            needs.FUNCTIONS: corpora.functions(corpus),
            needs.CORPUS: corpora.corpus(corpus),
        }
        inputs = {label: [job.manifest] for label, job in made.items()}
        at = {"made": task, "corpus": corpus}
        return self.make("make_task", "measure.tasks.made", task, inputs, settings, **at)
