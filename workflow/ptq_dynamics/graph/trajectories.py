"""The jobs that make trajectories: training runs, and averages of checkpoints."""

from functools import cache

from ptq_dynamics.config import Branch, Public, Run, Stage, Whole
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.site import Site
from ptq_dynamics.train import schedules
from ptq_dynamics.train.fetch import FetchSettings, Revision
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.settings import TrainSettings
from ptq_dynamics.train.trajectory import Checkpoint


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
            case Public():
                shards = [shard] if shard else list(self._timeline.shards(name))
                return [self.fetch(name, each) for each in shards]
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
        trained = run.trained(timeline)
        longest = max(trained.context, run.model_shape(timeline).model.context)
        first, last = run.ends(timeline)
        inputs = {"corpus": [self._corpora.corpus(trained.corpus).manifest]}
        for label, source in run.sources().items():
            inputs[label] = [self.train(source, site.seed(name, seed)).manifest]
        settings = TrainSettings(
            model=trained.model.model_copy(update={"context": longest}),
            vocabulary=scale.whole(trained.corpus).vocabulary,
            start=run.start(timeline) if isinstance(run, Stage) else None,
            objective=run.objective if isinstance(run, Stage) else Language(),
            batch=trained.batch,
            micro_batch=trained.micro_batch,
            context=trained.context,
            precision=scale.precision,
            compile=scale.compile,
            seed=site.seed(name, seed),
            optimizer=run.optimizer_in(timeline),
            budget=scale.budget,
            clip=timeline.defaults.clip,
            schedule=self.schedule(run),
            first=first,
            last=last,
            first_tokens=run.tokens_before(timeline),
            data_first=run.data_first(timeline),
            checkpoint_steps=tuple(p.step or 0 for p in timeline.checkpoints(name)),
            state_steps=tuple(run.state_steps(timeline)) if isinstance(run, Whole) else (),
            log_every=scale.log_every,
        )
        folder = site.place("train", run=name, seed=settings.seed)
        return site.add(Job(run.stage, f"{name} seed {settings.seed}", folder, inputs, settings))

    @cache
    def fetch(self, name: str, shard: str) -> Job:
        """One shard of the released checkpoints of a public model."""
        public = self._site.config.runs.public[name]
        shape = public.model_shape(self._timeline).model
        vocabulary = self._site.config.scale.whole(shape.corpus).vocabulary
        revisions = []
        for each in self.checkpoints(name, shard):
            step, tokens, entry = public.revisions[each]
            checkpoint = Checkpoint(each, step, tokens, public.rate(step), public.phase(step))
            commit, files = (entry.commit, entry.files) if entry else (None, ())
            revisions.append(Revision(checkpoint=checkpoint, commit=commit, files=files))
        settings = FetchSettings(
            repository=public.repository,
            revisions=tuple(revisions),
            parameters=shape.parameters(vocabulary),
            convert=public.convert,
            format=public.format,
        )
        folder = self._site.place("fetch", public=name, shard=shard)
        return self._site.add(Job(public.stage, f"{name} {shard}", folder, {}, settings))

    def schedule(self, run: Run) -> schedules.Schedule:
        """The learning rate schedule of a run, in steps."""
        timeline = self._timeline
        whole, (first, last) = run.whole(timeline), run.ends(timeline)
        peak, warmup = whole.peak(timeline), whole.warmup_steps(timeline)
        floor = run.floor * peak
        match run:
            case Stage():
                peak, warmup = run.used_lr, run.warmup_steps(timeline)
                length, floor = last - first, run.floor * run.used_lr
                return schedules.StageSchedule(
                    "stage", peak, warmup, floor, first, length, run.name
                )
            case Branch():
                start = run.cooldown_start(timeline)
                if whole.schedule == "constant":
                    return schedules.Wsd("wsd", peak, warmup, floor, start, last - start, run.shape)
                rate = schedules.learning_rate(self.schedule(whole), first)
                return schedules.Anneal(
                    "anneal", peak, warmup, rate, floor, first, last - first, run.shape
                )
            case Whole(cooldown=cooldown) if cooldown is not None:
                length = timeline.steps(cooldown)
                return schedules.Wsd("wsd", peak, warmup, floor, last - length, length, run.shape)
            case Whole(schedule="cosine"):
                stop = timeline.steps(run.horizon) if run.horizon else last
                return schedules.Cosine("cosine", peak, warmup, floor, stop)
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
        return tuple(point.id for point in self._timeline.shard(name, shard))

    def runs(self, names: list[str]) -> list[str]:
        """The runs and public models whose learning rates the trajectories follow, each once."""
        found = (self._timeline.trajectory(name).run(name, self._timeline) for name in names)
        return list(dict.fromkeys(found))
