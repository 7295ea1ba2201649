"""The jobs of corpora and trajectories: training runs, downloaded checkpoints, averages."""

from functools import cache
from typing import Any

from ptq_dynamics.config import Public, Run, Stage, Whole
from ptq_dynamics.corpus.functions import FunctionsSettings
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.corpus.sources.own import OwnCorpus
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.plan.site import Planner
from ptq_dynamics.train.settings import AverageSettings, ChoosingText, TrainSettings


class Trajectories(Planner):
    """Jobs of corpora, and of trajectories on them."""

    @cache
    def corpus(self, name: str = "main") -> Job:
        """Return the job of one corpus."""
        corpus, inputs = self.scale.corpora[name], {}
        if isinstance(corpus, Derived):
            inputs["corpus"] = [self.corpus(corpus.of).manifest]
            if corpus.from_functions:
                inputs["functions"] = [self.functions(corpus.of).manifest]
        if isinstance(corpus, OwnCorpus):
            inputs["checkpoint"] = self.manifests(name)[:1]  # the same if checkpoints are added
        text = corpus.text if isinstance(corpus, OwnCorpus) else corpus
        packages = getattr(text, "packages", ())
        return self.make("corpus", "corpus.corpus", name, inputs, corpus, packages, corpus=name)

    @cache
    def functions(self, corpus: str) -> Job:
        """Return the job of functions and held-out documents of an embedded corpus."""
        others = tuple(self.scale.tasks.others) if self.scale.tasks else ()
        found: Any = self.scale.corpora[corpus]
        text: Any = found.text if isinstance(found, OwnCorpus) else found
        settings = FunctionsSettings(corpus=text, others=others)
        reads = (*text.packages, *others)
        stage = "corpus.functions"
        return self.make("functions", stage, corpus, {}, settings, reads, corpus=corpus)

    def makers(self, name: str, seed: int | None = None, shard: str | None = None) -> list[Job]:
        """Return the jobs of a trajectory, or of one shard of it, in order."""
        kind = self.timeline.trajectories[name]
        if isinstance(kind, Run):
            return [self.train(name, seed)]
        shards = [shard] if shard else list(self.timeline.shards(name))
        if isinstance(kind, Public):
            return [self.fetch(name, each) for each in shards]
        return [self.average(name, each, seed) for each in shards]

    def manifests(self, name: str, seed: int | None = None, shard: str | None = None) -> list[str]:
        """Return paths of the manifests of these jobs."""
        return [job.manifest for job in self.makers(name, seed, shard)]

    def inputs(self, name: str, seed: int, shard: str | None = None) -> dict[str, list[str]]:
        """Return manifests of a trajectory and of its corpus, by label."""
        corpus = self.corpus(self.shape(name).corpus).manifest
        return {"corpus": [corpus], "trajectory": self.manifests(name, seed, shard)}

    @cache
    def train(self, name: str, seed: int | None = None) -> Job:
        """Return the job of one run."""
        timeline, scale, seed = self.timeline, self.scale, self.seed(name, seed)
        run = self.config.runs.runs[name]
        trained = run.trained(timeline)
        longest = max(trained.context, run.model_shape(timeline).model.context)
        first, last = run.ends(timeline)
        inputs = {"corpus": [self.corpus(trained.corpus).manifest]}
        for label, source in run.sources().items():
            inputs[label] = self.manifests(source, seed)
        optimizer = run.optimizer_in(timeline)
        before = getattr(run, "weights", None) or getattr(run, "after", None)
        settings = TrainSettings(
            **scale.model_dump(include={"precision", "compile", "budget", "log_every"}),
            model=trained.model.model_copy(update={"context": longest}),
            vocabulary=scale.whole(trained.corpus).vocabulary,
            start=timeline.checkpoints(before)[-1].id if before else None,
            objective=(run if isinstance(run, Stage) else run.whole(timeline)).objective,
            batch=trained.batch,
            micro_batch=trained.micro_batch,
            context=trained.context,
            seed=seed,
            optimizer=optimizer.model_copy(update={"clip": None}),
            clip=optimizer.clip or timeline.defaults.clip,
            schedule=run.schedule_in(timeline),
            first=first,
            last=last,
            first_tokens=run.tokens(timeline, first),
            data_first=run.data_first(timeline),
            checkpoint_steps=tuple(p.step or 0 for p in timeline.checkpoints(name)),
            state_steps=tuple(run.state_steps(timeline)) if isinstance(run, Whole) else (),
        )
        told = f"{name} seed {seed}"
        return self.make("train", run.stage, told, inputs, settings, run=name, seed=seed)

    @cache
    def fetch(self, name: str, shard: str) -> Job:
        """Return the job of one shard of a public model."""
        public = self.config.runs.public[name]
        settings = public.settings(self.checkpoints(name, shard), self.parameters(name))
        told = f"{name} {shard}"
        return self.make("fetch", public.stage, told, {}, settings, public=name, shard=shard)

    @cache
    def average(self, name: str, shard: str = "all", seed: int | None = None) -> Job:
        """Return the job of one shard of averages."""
        kind, seed = self.config.runs.averages[name], self.seed(name, seed)
        chosen = self.checkpoints(name, shard)
        means = tuple(mean for mean in kind.means(self.timeline) if mean.id in chosen)
        sources = {label: self.manifests(source, seed) for label, source in kind.sources().items()}
        choice = None
        if getattr(kind, "greedy", False):
            shape, scale = kind.model_shape(self.timeline), self.scale
            blocks = scale.curvature.count(shape.context)
            choice = ChoosingText(shape.context, blocks, scale.evaluation.batch)
            sources["corpus"] = [self.corpus(scale.held_by(shape.corpus)).manifest]
        settings = AverageSettings(phase=kind.phase, means=means, choice=choice)
        at = {"average": name, "seed": seed, "shard": shard}
        return self.make("average", kind.stage, f"{name} seed {seed}", sources, settings, **at)

    def checkpoints(self, name: str, shard: str) -> tuple[str, ...]:
        """Return ids of the measured checkpoints of one shard."""
        return tuple(point.id for point in self.timeline.shards(name)[shard])

    def runs(self, names: list[str]) -> list[str]:
        """Return the runs and public models whose learning rates trajectories follow, each once."""
        found = (self.timeline.trajectories[name].run(name, self.timeline) for name in names)
        return list(dict.fromkeys(found))
