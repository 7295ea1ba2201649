"""The jobs that make trajectories: training runs, and averages of checkpoints."""

from dataclasses import asdict
from functools import cache
from itertools import chain
from typing import Any

from ptq_dynamics.config import Branch, Point, Run, Whole
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.corpora import Corpora
from ptq_dynamics.plan.site import Site
from ptq_dynamics.trajectories import schedules
from ptq_dynamics.trajectories.optimizers.kinds import Optimizer
from ptq_dynamics.trajectories.settings import ModelSettings, OptimizerSettings, TrainSettings


class Trajectories:
    """The trajectories, which all other jobs take."""

    def __init__(self, site: Site, corpora: Corpora) -> None:
        self._site, self._timeline = site, site.timeline
        self._corpora = corpora

    def makers(self, name: str, seed: int | None = None, shard: str | None = None) -> list[Job]:
        """The jobs that make a trajectory, or the checkpoints of one shard of it, in their
        order."""
        match self._timeline.trajectory(name):
            case Run():
                return [self.train(name, seed)]
            case _:
                shards = [shard] if shard else list(self._timeline.shards(name))
                return [self.average(name, each, seed) for each in shards]

    def manifests(self, name: str, seed: int | None = None, shard: str | None = None) -> list[str]:
        """Paths of the manifests of what `makers` makes."""
        return [job.manifest for job in self.makers(name, seed, shard)]

    @cache
    def train(self, name: str, seed: int | None = None) -> Job:
        """Training of one run."""
        site, timeline, scale = self._site, self._timeline, self._site.config.scale
        run = site.config.runs.runs[name]
        whole = run.whole(timeline)
        model, phase = whole.model_shape(timeline), run.model_shape(timeline)
        corpus = scale.corpora[model.corpus]
        optimizer = timeline.optimizer(whole)
        first, last = run.ends(timeline)
        inputs = {"corpus": [self._corpora.of(name).manifest]}
        if isinstance(run, Branch):
            inputs["trunk"] = [self.train(run.trunk, site.seed(name, seed)).manifest]
        settings = TrainSettings(
            model=ModelSettings(
                model.model.module, model.model.settings, model.context, corpus.vocabulary
            ),
            batch=phase.batch,
            micro_batch=phase.micro_batch,
            context=phase.context,
            precision=scale.precision,
            compile=scale.compile,
            seed=site.seed(name, seed),
            optimizer=OptimizerSettings(optimizer.module, _settings_of(optimizer)),
            clip=timeline.defaults.clip,
            schedule=self.schedule(run),
            first=first,
            last=last,
            first_tokens=first * model.batch * model.context,
            data_first=first if isinstance(run, Branch) and run.has_own_data() else 0,
            checkpoint_every=run.spacing(timeline),
            state_steps=tuple(run.state_steps(timeline)) if isinstance(run, Whole) else (),
            log_every=scale.log_every,
        )
        return self._site.add(
            Job(
                run.stage,
                f"{name} seed {settings.seed}",
                site.place("train", run=name, seed=settings.seed),
                inputs,
                settings,
                modules=(
                    f"trajectories.architectures.{model.model.module}",
                    f"trajectories.optimizers.{optimizer.module}",
                ),
            )
        )

    def schedule(self, run: Run) -> schedules.Schedule:
        """The learning rate schedule of a run, in steps."""
        timeline = self._timeline
        whole, (first, last) = run.whole(timeline), run.ends(timeline)
        peak, warmup = whole.peak(timeline), whole.warmup_steps(timeline)
        floor = run.floor * peak
        match run:
            case Branch():
                length = last - first
                return schedules.Wsd("wsd", peak, warmup, floor, first, length, run.shape)
            case Whole(cooldown=cooldown) if cooldown is not None:
                length = timeline.steps(cooldown)
                return schedules.Wsd("wsd", peak, warmup, floor, last - length, length, run.shape)
            case Whole(schedule="cosine"):
                return schedules.Cosine("cosine", peak, warmup, floor, last)
        return schedules.Constant("constant", peak, warmup)

    @cache
    def average(self, name: str, shard: str = "all", seed: int | None = None) -> Job:
        """One shard of averages of checkpoints."""
        site, timeline = self._site, self._timeline
        kind, points = site.config.runs.averages[name], timeline.shard(name, shard)
        seed = site.seed(name, seed)
        sources = {label: self.manifests(source, seed) for label, source in kind.sources().items()}
        folder = site.place("average", average=name, seed=seed, shard=shard)
        settings = kind.settings(points, timeline)
        return self._site.add(Job(kind.stage, f"{name} seed {seed}", folder, sources, settings))

    def checkpoints(self, name: str, shard: str) -> tuple[str, ...]:
        """Ids of the measured checkpoints of one shard of a trajectory."""
        return _ids(self._timeline.shard(name, shard))

    def runs(self, names: list[str]) -> list[str]:
        """The runs whose learning rates the trajectories follow, each once."""
        found = (self._timeline.trajectory(name).run(name, self._timeline) for name in names)
        return list(dict.fromkeys(chain(found)))


def _settings_of(optimizer: Optimizer) -> dict[str, Any]:
    """What an optimizer is set to, but its kind, which its module stands for."""
    return {name: value for name, value in asdict(optimizer).items() if name != "kind"}


def _ids(points: list[Point]) -> tuple[str, ...]:
    return tuple(point.id for point in points)
