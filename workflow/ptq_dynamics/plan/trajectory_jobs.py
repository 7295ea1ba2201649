"""The jobs of corpora and tasks, of tools, and of trajectories: training runs, downloaded or linked
checkpoints, averages."""

from collections.abc import Collection
from functools import cache
from itertools import chain

from ptq_dynamics.base import needs
from ptq_dynamics.corpus.functions import FunctionsSettings
from ptq_dynamics.corpus.sources import Corpus, Derived
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.sources.own import OwnCorpus, Texts
from ptq_dynamics.engine.job import Job
from ptq_dynamics.measure.tasks.harness import HarnessSettings, HarnessTask
from ptq_dynamics.measure.tasks.made import MadeSettings, MadeTask
from ptq_dynamics.plan.planned import PlannedAverage, PlannedTrajectory
from ptq_dynamics.plan.planned_runs import PlannedRun
from ptq_dynamics.plan.releases import PlannedRelease
from ptq_dynamics.plan.site import Planner, Rule
from ptq_dynamics.quantize import environment
from ptq_dynamics.train.settings import TrainSettings
from ptq_dynamics.trajectories.averages import AverageSettings, ChoosingText
from ptq_dynamics.trajectories.averages.merges import Merge
from ptq_dynamics.trajectories.fetch import FetchSettings
from ptq_dynamics.trajectories.local import LocalSettings

CORPUS = Rule[Corpus]("corpus", "<results>/corpus/{corpus}/", "corpus.corpus")
FUNCTIONS = Rule[FunctionsSettings](
    "functions", "<results>/functions/{corpus}/", "corpus.functions"
)
MAKE_TASK = Rule[MadeSettings](
    "make_task", "<results>/tasks/{made}/{corpus}/", "measure.tasks.made"
)
FETCH_TASK = Rule[HarnessSettings](
    "fetch_task", "<results>/tasks/{fetched}/", "measure.tasks.harness"
)
ENVIRONMENT = Rule[environment.EnvironmentSettings](
    "environment", "envs/{tool}/", "quantize.environment"
)
TRAIN = Rule[TrainSettings]("train", "<results>/train/{run}/seed-{seed}/", "train.train")
FETCH = Rule[FetchSettings]("fetch", "<results>/fetch/{public}/{shard}/", "trajectories.fetch")
LINK = Rule[LocalSettings](FETCH.name, FETCH.folder, "trajectories.local")
AVERAGE = Rule[AverageSettings](
    "average", "<results>/average/{average}/seed-{seed}/{shard}/", "trajectories.average"
)
RULES = (CORPUS, FUNCTIONS, MAKE_TASK, FETCH_TASK, ENVIRONMENT, TRAIN, FETCH, AVERAGE)


class TrajectoryJobs(Planner):
    """Jobs of corpora, and of trajectories on them."""

    @cache
    def corpus(self, name: str = "main") -> Job:
        """Return the job of one corpus."""
        corpus, inputs = self.scale.corpora[name], {}
        if isinstance(corpus, Derived):
            inputs[needs.CORPUS] = [self.corpus(corpus.of).manifest]
            if corpus.from_functions:
                inputs[needs.FUNCTIONS] = [self.functions(corpus.of).manifest]
        if isinstance(corpus, OwnCorpus):
            inputs[needs.CHECKPOINT] = self.manifests(name)[:1]  # even if others are added
        packages = getattr(_text(corpus), "packages", ())
        return self.make(CORPUS, name, inputs, corpus, packages, corpus=name)

    @cache
    def functions(self, corpus: str) -> Job:
        """Return the job of functions and held-out documents of an embedded corpus."""
        others = tuple(self.scale.tasks.others) if self.scale.tasks else ()
        text = _text(self.scale.corpora[corpus])
        assert isinstance(text, EmbeddedCorpus)
        settings = FunctionsSettings(corpus=text, others=others)
        reads = (*text.packages, *others)
        return self.make(FUNCTIONS, corpus, {}, settings, reads, corpus=corpus)

    @cache
    def task(self, task: str, corpus: str) -> Job:
        """Return the job of a task, downloaded or generated from held-out documents."""
        kind, tasks = self.config.tasks[task], self.scale.tasks
        if isinstance(kind, HarnessTask):
            fetched = HarnessSettings(name=task, task=kind)
            return self.make(FETCH_TASK, task, {}, fetched, fetched=task)
        assert isinstance(kind, MadeTask) and tasks is not None
        settings = MadeSettings(
            name=task,
            kind=kind.kind,
            shots=tasks.shots_before(task),
            **tasks.model_dump(include={"documents", "pool", "context"}),
        )
        inputs = {
            needs.FUNCTIONS: [self.functions(corpus).manifest],
            needs.CORPUS: [self.corpus(corpus).manifest],
        }
        return self.make(MAKE_TASK, task, inputs, settings, made=task, corpus=corpus)

    @cache
    def environment(self, tool: str, python: str | None) -> Job:
        """Return the job that installs a quantizer's tool."""
        lock, root = f"envs/{tool}.txt", self.site.root
        # The other file locks the CUDA libraries of torch.
        digest = environment.digest(root / lock, root / "envs/cuda.txt")
        settings = environment.EnvironmentSettings(
            lock=lock, folder=f"envs/{tool}", digest=digest, python=python
        )
        return self.make(ENVIRONMENT, tool, {}, settings, tool=tool)

    def jobs(self, name: str, seed: int | None = None, shard: str | None = None) -> list[Job]:
        """Return the jobs of a trajectory, or of one shard of it, in order."""
        trajectory = self.planned[name]
        if isinstance(trajectory, PlannedRun):
            return [self.train(name, seed)]
        shards = [shard] if shard else list(trajectory.shards)
        if isinstance(trajectory, PlannedRelease):
            return [self.fetch(name, part) for part in shards]
        return [self.average(name, part, seed) for part in shards]

    def manifests(self, name: str, seed: int | None = None, shard: str | None = None) -> list[str]:
        """Return paths of the manifests of these jobs."""
        return [job.manifest for job in self.jobs(name, seed, shard)]

    def manifests_of(
        self, source: PlannedTrajectory, seed: int | None, ids: Collection[str]
    ) -> list[str]:
        """Return paths of the manifests of the shards that have some checkpoints."""
        measured = {point.id for point in source.measured}
        if not ids or not measured.issuperset(ids):
            return self.manifests(source.name, seed)
        having = (s for s, points in source.shards.items() if {*ids} & {p.id for p in points})
        every = (self.manifests(source.name, seed, shard) for shard in having)
        return list(dict.fromkeys(chain.from_iterable(every)))

    def inputs(self, name: str, seed: int, shard: str | None = None) -> dict[str, list[str]]:
        """Return manifests of a trajectory and of its corpus, by label."""
        corpus = self.corpus(self.planned[name].shape.corpus).manifest
        return {needs.CORPUS: [corpus], needs.TRAJECTORY: self.manifests(name, seed, shard)}

    @cache
    def train(self, name: str, seed: int | None = None) -> Job:
        """Return the job of one run."""
        run, scale, seed = self.planned.run(name), self.scale, self.seed(name, seed)
        trained, optimizer = run.trained, run.optimizer
        longest = max(trained.context, run.shape.model.context)
        inputs = {needs.CORPUS: [self.corpus(trained.corpus).manifest]}
        for label, source in run.sources.items():
            inputs[label] = self.manifests(source.name, seed)
        weights = {needs.WEIGHTS, needs.AFTER}  # sources whose weights alone the run takes
        alone = [source for label, source in run.sources.items() if label in weights]
        settings = TrainSettings(
            **scale.model_dump(include={"precision", "compile", "budget", "log_every"}),
            model=trained.model.model_copy(update={"context": longest}),
            vocabulary=scale.base_corpus(trained.corpus).vocabulary,
            start=alone[0].checkpoints[-1].id if alone else None,
            objective=run.objective,
            batch=trained.batch,
            micro_batch=trained.micro_batch,
            context=trained.context,
            seed=seed,
            optimizer=optimizer.model_copy(update={"clip": None}),
            clip=optimizer.clip or run.basis.defaults.clip,
            schedule=run.schedule,
            first=run.first,
            last=run.last,
            first_tokens=run.tokens_at(run.first),
            data_first=run.data_first,
            checkpoint_steps=tuple(point.step or 0 for point in run.checkpoints),
            state_steps=tuple(run.state_steps),
        )
        return self.make(TRAIN, f"{name} seed {seed}", inputs, settings, run=name, seed=seed)

    @cache
    def fetch(self, name: str, shard: str) -> Job:
        """Return the job of one shard of a public model."""
        model = self.planned[name]
        assert isinstance(model, PlannedRelease)
        settings = model.entry.settings(self.measured_ids(name, shard), model.parameters)
        at, label = {"public": name, "shard": shard}, f"{name} {shard}"
        if isinstance(settings, LocalSettings):
            return self.make(LINK, label, {}, settings, **at)
        return self.make(FETCH, label, {}, settings, **at)

    @cache
    def average(self, name: str, shard: str = "all", seed: int | None = None) -> Job:
        """Return the job of one shard of averages."""
        average, seed = self.planned[name], self.seed(name, seed)
        assert isinstance(average, PlannedAverage)
        chosen = self.measured_ids(name, shard)
        means = tuple(mean for mean in average.means if mean.id in chosen)
        members = {(member.source, member.checkpoint) for mean in means for member in mean.members}
        inputs = {
            label: self.manifests_of(source, seed, [id_ for of, id_ in members if of == label])
            for label, source in average.sources.items()
        }
        choice, scale, shape = None, self.scale, average.shape
        if isinstance(average.entry, Merge) and average.entry.greedy:
            blocks = scale.curvature.count(shape.context)
            choice = ChoosingText(shape.context, blocks, scale.evaluation.batch)
            inputs[needs.CORPUS] = [self.corpus(scale.held_by(shape.corpus)).manifest]
        settings = AverageSettings(phase=average.entry.phase, means=means, choice=choice)
        at = {"average": name, "seed": seed, "shard": shard}
        return self.make(AVERAGE, f"{name} seed {seed}", inputs, settings, **at)

    def measured_ids(self, name: str, shard: str) -> tuple[str, ...]:
        """Return ids of the measured checkpoints of one shard."""
        return tuple(point.id for point in self.planned[name].shards[shard])


def _text(corpus: Corpus) -> Corpus | Texts:
    """Return the corpus, or the text of own checkpoints, whose packages are read."""
    return corpus.text if isinstance(corpus, OwnCorpus) else corpus
