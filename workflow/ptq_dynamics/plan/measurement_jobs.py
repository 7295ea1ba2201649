"""The jobs that measure trajectories and probe the Hessian, and the table of all measurements."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, product
from typing import get_args

from ptq_dynamics.base import needs
from ptq_dynamics.base.components import kinds_in
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.definitions import TableQuery
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.scale import Tasks
from ptq_dynamics.curvature.probes import ProbeSettings
from ptq_dynamics.engine.job import Job
from ptq_dynamics.figures.columns import owners
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.measure import metrics, names
from ptq_dynamics.measure.metrics import ModelMetric, OfPredictions
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.measure.series import (
    CollectSettings,
    ComparisonSettings,
    MeasureSettings,
    Query,
    Series,
    TaskSettings,
    in_order,
)
from ptq_dynamics.plan.planned_runs import PlannedBranch
from ptq_dynamics.plan.releases import PlannedRelease, Public
from ptq_dynamics.plan.site import Planner, Rule, Site
from ptq_dynamics.plan.trajectory_jobs import TrajectoryJobs
from ptq_dynamics.quantize.methods import Quantizer
from ptq_dynamics.quantize.tool import ForeignGptq

MEASURE = Rule[MeasureSettings](
    "measure",
    "<results>/measure/{trajectory}/seed-{seed}/{quantizer}/{shard}/",
    "measure.measure",
)
# Each probe names its own stage.
CURVATURE = Rule[ProbeSettings](
    "curvature",
    "<results>/curvature/{trajectory}/seed-{seed}/{probe}/{shard}/",
    "curvature.sharpness",
)
COMPARISON = Rule[ComparisonSettings]("comparison", "<results>/backends/", "measure.agreement")
COLLECT = Rule[CollectSettings]("collect", "<results>/measurements.", "measure.measurements")
RULES = (MEASURE, CURVATURE, COMPARISON, COLLECT)


class MeasurementJobs(Planner):
    """Jobs of measurements, of curvature and of their table."""

    def __init__(self, site: Site, trajectories: TrajectoryJobs) -> None:
        super().__init__(site)
        self.trajectories = trajectories

    @cache
    def measure(self, trajectory: str, quantizer: str, shard: str, seed: int) -> Job:
        """Return the job of all measurements of a shard under a quantizer."""
        scale, planned, shape = self.scale, self.planned[trajectory], self.planned[trajectory].shape
        kind = None if quantizer == FULL_PRECISION else self.kind(quantizer, trajectory)
        # Figures that were not chosen count, so that a choice changes no result.
        figures = [f for f in self.config.figures.values() if trajectory in f.trajectories]
        has_layers = any({*names.LAYER_METRICS} & {*figure.metrics} for figure in figures)
        figures = [figure for figure in figures if quantizer in self.quantizers(figure.query)]
        shown = {metric for figure in figures for metric in figure.metrics}
        has_tasks = any(
            seed in planned.seeds_shown(figure.headline)
            for figure in figures
            if {*names.TASK_METRICS} & {*figure.metrics}
        )
        tasks = scale.tasks.names if scale.tasks and has_tasks else ()
        public = self._public(trajectory)
        is_end, backends = shard == list(planned.shards)[-1], self.config.backends
        is_compared = is_end and (trajectory, seed) == (backends.trajectory, planned.seeds[0])
        is_compared = is_compared and quantizer in chain(*backends.groups)
        has_carried = is_end and public is None and kind is None
        settings = MeasureSettings(
            checkpoints=self.trajectories.measured_ids(trajectory, shard),
            context=shape.context,
            blocks=scale.evaluation.count(shape.context),
            batch=scale.evaluation.batch,
            quantizer=kind,
            calibration=None if kind is None else self.calibration(trajectory, kind),
            tasks=tuple(self._task(trajectory, task) for task in tasks),
            carried=scale.landscape.count(shape.context) if has_carried else 0,
            keep=kind is not None and (scale.keep.quantize == "all" or is_compared),
            skip=(public is not None and public.skip) or hasattr(shape.model, "unquantized"),
            metrics=self._metrics(trajectory, kind, shown),
            # Layers of public models are measured only for figures that show them.
            layers=(kind is None or kind.by_layer)
            and (public is None or is_compared or has_layers),
        )
        inputs = self.trajectories.inputs(trajectory, seed, shard) | self.tools(kind)
        corpus = scale.held_by(shape.corpus)
        for task in tasks:
            inputs[needs.task(task)] = [self.trajectories.task(task, corpus).manifest]
        name, reads = f"{trajectory} seed {seed} {quantizer}", getattr(kind, "reads", ())
        at = {"trajectory": trajectory, "seed": seed, "quantizer": quantizer, "shard": shard}
        return self.make(MEASURE, name, inputs, settings, reads, **at)

    @cache
    def collect(self) -> Job:
        """Return the job that joins all measurements of the chosen figures and their tables."""
        figures = [self.config.figures[name] for name in self.config.chosen]
        added = chain.from_iterable(map(self.added, self.config.tables.values()))
        series, inputs = self.series_of(figure.query for figure in (*figures, *added))
        return self.make(COLLECT, "measurements", inputs, CollectSettings(in_order(series)))

    def series_of(
        self, queries: Iterable[Query]
    ) -> tuple[tuple[Series, ...], dict[str, list[str]]]:
        """Return the series of some queries, and the manifests of their measurements by label."""
        every, inputs = dict[Series, None](), dict[str, list[str]]()
        of_models = [name for name, kind in owners().items() if issubclass(kind, ModelMetric)]
        of_series = {*get_args(names.Evaluated), *names.TASK_METRICS, *of_models}
        for query in queries:
            wanted = {*query.metrics}
            chosen = self.scale.curvature.probes
            probes = [p.kind for p in chosen if not wanted.isdisjoint(p.measured())]
            is_evaluated = not wanted.isdisjoint(of_series)
            quantizers = [FULL_PRECISION] if probes else []
            quantizers = self.quantizers(query) if is_evaluated else quantizers
            for name, quantizer in product(query.trajectories, quantizers):
                for seed in self.planned[name].seeds_shown(query.seeds):
                    series = self.series(name, quantizer, seed)
                    every[series] = None
                    inputs |= self.measurements_of(series) if is_evaluated else {}
                    for probe in probes if quantizer == FULL_PRECISION else ():
                        shards = self.planned[name].shards
                        jobs = [self.curvature(name, probe, shard, seed) for shard in shards]
                        inputs[series.label(probe)] = [job.manifest for job in jobs]
        return tuple(every), inputs

    @cache
    def series(self, trajectory: str, quantizer: str, seed: int | None = None) -> Series:
        """Return a trajectory at a seed under a quantizer, or in full precision."""
        planned = self.planned[trajectory]
        own = (trajectory, self.seed(trajectory, seed), planned.origin.family, quantizer)
        checkpoints = planned.planned_checkpoints
        if quantizer == FULL_PRECISION:
            return Series(*own, FULL_PRECISION, None, None, checkpoints)
        kind = self.kind(quantizer, trajectory)
        return Series(*own, kind.method, kind.bits, kind.resolved_group_size, checkpoints)

    def measurements_of(self, series: Series) -> dict[str, list[str]]:
        """Return manifests of a series' measurements, and of its tasks at chance, by label."""
        name, quantizer = series.trajectory, series.quantizer
        shards = self.planned[name].shards
        jobs = [self.measure(name, quantizer, shard, series.seed) for shard in shards]
        inputs = {series.label(): [job.manifest for job in jobs]}
        for task in (question.task for question in jobs[0].settings.tasks):
            if task in (self.tasks.at_chance or ()):
                inputs[needs.beside_mean(task)] = jobs[0].inputs[needs.task(task)]
        return inputs

    @cache
    def curvature(self, trajectory: str, probe: str, shard: str, seed: int) -> Job:
        """Return the job of a probe of the Hessian, of a shard."""
        scale, context = self.scale.curvature, self.planned[trajectory].shape.context
        kind, ids = scale.probe(probe), self.trajectories.measured_ids(trajectory, shard)
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
        return self.make(replace(CURVATURE, stage=kind.stage), name, inputs, settings, **at)

    def named(self, rule: str, trajectory: str, seed: str, shard: str, **name: str) -> None:
        """Plan a measurement or a probe that no figure needs; `Problem` if it cannot be made."""
        ((what, kind),) = name.items()
        quantizers = [FULL_PRECISION, *self.config.quantizers]
        probes = [probe.kind for probe in self.scale.curvature.probes]
        require(rule, "trajectory", [trajectory], self.planned)
        require(f"{rule} {trajectory}", "shard", [shard], self.planned[trajectory].shards)
        require(rule, what, [kind], quantizers if what == "quantizer" else probes)
        if self._public(trajectory) is not None:
            seeds = [str(known) for known in self.planned[trajectory].seeds]
            require(f"{rule} {trajectory}", "seed", [seed], seeds)
        if kind in self.config.quantizers:
            model = self.planned[trajectory].shape.model
            if (wrong := self.config.quantizers[kind].refuses(model)) is not None:
                raise Problem(f"{kind} cannot quantize {trajectory}: {wrong}; name another one")
        make = self.measure if what == "quantizer" else self.curvature
        make(trajectory, kind, shard, int(seed) if seed.isdecimal() else None)

    @cache
    def comparison(self) -> Job:
        """Return the job that compares GPTQ backends on the last shard of a trajectory."""
        backends, inputs = self.config.backends, dict[str, list[str]]()
        name = backends.trajectory
        shard, series = list(self.planned[name].shards)[-1], [self.series(name, FULL_PRECISION)]
        for quantizer in dict.fromkeys(chain(*backends.groups)):
            job = self.measure(name, quantizer, shard, self.seed(name))
            inputs[needs.quantized(quantizer)] = [job.manifest]
            series.append(self.series(name, quantizer))
        for one in series:
            inputs |= self.measurements_of(one)
        settings = ComparisonSettings(tuple(map(tuple, backends.groups)), tuple(series))
        return self.make(COMPARISON, name, inputs, settings)

    def tools(self, kind: Quantizer | None) -> dict[str, list[str]]:
        """Return the manifest of the environment that a quantizer needs, by label."""
        if not isinstance(kind, ForeignGptq):
            return {}
        job = self.trajectories.environment(kind.method, kind.python)
        return {needs.ENVIRONMENT: [job.manifest]}

    def _public(self, trajectory: str) -> Public | None:
        """Return the public model that a trajectory follows, if it does."""
        followed = self.planned[trajectory].followed
        return followed.entry if isinstance(followed, PlannedRelease) else None

    def _metrics(
        self, trajectory: str, kind: Quantizer | None, shown: Collection[str]
    ) -> tuple[ModelMetric, ...]:
        """Return the metrics of models among those shown. Own checkpoints have all those of
        predictions, for their page."""
        public = self._public(trajectory)
        is_own = public is not None and public.is_own
        return tuple(
            metric.model_validate({"metric": column.name})
            for metric in kinds_in(metrics.__name__, ModelMetric)
            for column in metric.columns
            if column.quantized == (kind is not None)
            and (column.name in shown or (is_own and issubclass(metric, OfPredictions)))
        )

    def _task(self, trajectory: str, task: str) -> TaskSettings:
        tasks, context = self.tasks, self.planned[trajectory].shape.context
        is_public = self._public(trajectory) is not None
        return TaskSettings(
            task=task,
            documents=None if self.config.tasks[task].made else tasks.documents,
            shots=tasks.shots_before(task),
            batch=tasks.batch,
            # Released models read longer prompts than blocks.
            context=max((is_public and tasks.context) or 0, context),
        )

    @property
    def tasks(self) -> Tasks:
        """The tasks of the scale, which has some if a figure shows them."""
        assert self.scale.tasks is not None
        return self.scale.tasks

    def members(self, table: TableQuery, figure: Figure) -> Iterator[tuple[str, str]]:
        """Yield the trajectories that a table shows of a figure, each after its curve's label."""
        for label, members in figure.curves.items():
            for name in members:
                trajectory = self.planned[name]
                is_branch = isinstance(trajectory, PlannedBranch) or trajectory.branched is not None
                if is_branch or not table.branches:
                    yield label, name

    def added(self, table: TableQuery) -> Iterator[Figure]:
        """Yield queries for a table's quantizers that figures lack, in a build of all figures."""
        figures = [self.config.figures[n] for n in table.figures if n in self.config.figures]
        for quantizer, figure in product(table.quantizers, figures):
            if self.config.is_whole and quantizer not in figure.quantizers:
                curves = dict[str, tuple[str, ...]]()
                for label, name in self.members(table, figure):
                    curves[label] = (*curves.get(label, ()), name)
                query = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
                metrics = (names.LOSS, names.QUANTIZATION_ERROR)
                yield figure.model_copy(update={**query, "metrics": metrics})
