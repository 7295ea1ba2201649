"""The jobs of downstream tasks: their data, and how checkpoints do on them."""

from functools import cache

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import HarnessTask, MadeTask
from ptq_dynamics.config.tasks import Tasks as Chosen
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.corpora import Corpora
from ptq_dynamics.graph.quantization import Quantization
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.names import BESIDE, COUNTED, FULL_PRECISION
from ptq_dynamics.measure.settings import AccuracySettings, Series
from ptq_dynamics.measure.tasks.settings import HarnessSettings, MadeSettings


class Tasks:
    """Tasks, and accuracies of trajectories on them, quantized or not."""

    def __init__(
        self, site: Site, corpora: Corpora, trajectories: Trajectories, quantization: Quantization
    ) -> None:
        self._site, self._corpora = site, corpora
        self._trajectories, self._quantization = trajectories, quantization

    def of_kind(self, kind: type[MadeTask] | type[HarnessTask]) -> list[str]:
        """Names of the tasks of a kind."""
        tasks = self._site.config.tasks
        return [name for name, each in tasks.items() if isinstance(each, kind)]

    @property
    def _chosen(self) -> Chosen:
        chosen = self._site.config.scale.tasks
        if chosen is None:
            choice = self._site.config.choice.scale
            raise Problem(f"config/scales/{choice}.yaml has no tasks; add them")
        return chosen

    @cache
    def made(self, task: str, corpus: str) -> Job:
        """A task about documents that a corpus holds out."""
        kind, chosen = self._site.config.tasks[task], self._chosen
        assert isinstance(kind, MadeTask)
        assert chosen.documents is not None and chosen.context is not None
        return self._site.add(
            Job(
                "measure.tasks.make",
                task,
                self._site.place("make_task", made=task, corpus=corpus),
                {
                    "functions": [self._corpora.functions(corpus).manifest],
                    "corpus": [self._corpora.corpus(corpus).manifest],
                },
                MadeSettings(
                    task=task,
                    kind=kind.kind,
                    documents=chosen.documents,
                    pool=chosen.pool,
                    shots=chosen.shots_before(task),
                    context=chosen.context,
                ),
            )
        )

    @cache
    def fetched(self, task: str) -> Job:
        """A task of the harness with its data."""
        kind = self._site.config.tasks[task]
        assert isinstance(kind, HarnessTask)
        settings = HarnessSettings(
            task=task,
            name=kind.task,
            repository=kind.repository,
            files=kind.files,
            revision=kind.revision,
            metric=kind.metric,
        )
        folder = self._site.place("fetch_task", fetched=task)
        return self._site.add(Job("measure.tasks.fetch", task, folder, {}, settings))

    @cache
    def accuracy(
        self,
        trajectory: str,
        quantizer: str,
        task: str,
        shard: str = "all",
        seed: int | None = None,
    ) -> Job:
        """Outcomes of one shard on a task, under a quantizer or in full precision."""
        site, chosen = self._site, self._chosen
        seed = site.seed(trajectory, seed)
        checkpoints = self._quantization.weights(trajectory, quantizer, shard, seed)
        shape = site.timeline.trajectory(trajectory).model_shape(site.timeline)
        public = site.timeline.run(trajectory) is None
        made = isinstance(site.config.tasks[task], MadeTask)
        held_by = site.config.scale.held_by(shape.corpus)
        source = self.made(task, held_by) if made else self.fetched(task)
        return site.add(
            Job(
                "measure.accuracy",
                f"{trajectory} seed {seed} {quantizer} {task}",
                site.place(
                    "accuracy",
                    trajectory=trajectory,
                    seed=seed,
                    method=quantizer,
                    task=task,
                    shard=shard,
                ),
                {"task": [source.manifest], "checkpoints": checkpoints},
                AccuracySettings(
                    checkpoints=self._trajectories.checkpoints(trajectory, shard),
                    # What was released reads more than the blocks that losses are measured on.
                    context=(public and chosen.context) or shape.context,
                    documents=None if made else chosen.documents,
                    shots=chosen.shots_before(task),
                    batch=chosen.batch,
                    backend=chosen.backend,
                    full_precision=quantizer == FULL_PRECISION,
                ),
            )
        )

    def accuracies(self, series: Series) -> dict[str, list[str]]:
        """The manifests of a series on all tasks of the scale, by their labels, which say whether a
        task counts in the mean."""
        shards = self._site.timeline.shards(series.trajectory)
        found = {}
        for task in self._chosen.names:
            kind = BESIDE if task in self._chosen.at_chance else COUNTED
            of = (series.trajectory, series.quantizer, task)
            jobs = [self.accuracy(*of, shard, series.seed) for shard in shards]
            found[series.label(f"{kind} {task}")] = [job.manifest for job in jobs]
        return found
