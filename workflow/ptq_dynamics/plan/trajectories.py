"""The jobs that make trajectories: corpus, training runs, averages of checkpoints."""

from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.config import Branch, Config, Lawa
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan import corpora
from ptq_dynamics.plan.checks import check
from ptq_dynamics.plan.timeline import Timeline


class Trajectories:
    """The trajectories, which all other jobs take."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.config = config
        self.root = root
        self.timeline = Timeline(config)
        self.results = f"results/{config.choice.scale}"
        self.pictures = f"figures/{config.choice.scale}"
        check(self.timeline)

    @cache
    def corpus(self, name: str) -> Job:
        """Token files and tokenizer of one corpus."""
        return corpora.job(name, self.config.scale.corpora[name], self.results)

    def corpus_of(self, trajectory: str) -> Job:
        """The corpus that a trajectory's model reads."""
        return self.corpus(self.timeline.shape(trajectory).corpus)

    @cache
    def train(self, run: str) -> Job:
        """Training of one run."""
        whole, scale, defaults = (
            self.timeline.trunk(run),
            self.config.scale,
            self.config.runs.defaults,
        )
        inputs = {"corpus": [self.corpus_of(run).manifest]}
        if isinstance(this := self.timeline.run(run), Branch):
            inputs["trunk"] = [self.train(this.trunk).manifest]
        first, last = self.timeline.ends(run)
        shape = scale.models[whole.model].model_dump(exclude={"batch", "micro_batch", "corpus"})
        config = {
            "model": {
                **shape,
                "vocabulary": scale.corpora[scale.models[whole.model].corpus].vocabulary,
            },
            "batch": scale.models[whole.model].batch,
            "micro_batch": scale.models[whole.model].micro_batch,
            "precision": scale.precision,
            "compile": scale.compile,
            "seed": self.config.choice.seed,
            "optimizer": {
                **defaults.optimizer.model_dump(mode="json"),
                **whole.optimizer.model_dump(exclude_none=True),
            },
            "schedule": self._schedule(run),
            "first": first,
            "last": last,
            "checkpoint_every": self.timeline.checkpoint_every(run),
            "state_steps": self.timeline.state_steps(run),
            "log_every": scale.log_every,
        }
        return Job("trajectories.train", run, f"{self.results}/train/{run}", inputs, config)

    def _schedule(self, run: str) -> dict[str, Any]:
        """The learning rate schedule of a run, in steps (see `schedules`)."""
        this, whole = self.timeline.run(run), self.timeline.trunk(run)
        first, last = self.timeline.ends(run)
        warmup = self.timeline.steps(whole.warmup or self.config.runs.defaults.warmup)
        schedule = {
            "kind": whole.schedule,
            "peak": whole.peak_lr,
            "warmup": warmup,
            "floor": this.floor * whole.peak_lr,
        }
        if isinstance(this, Branch):
            cooldown = {"start": first, "length": last - first, "shape": this.shape}
            return {**schedule, "kind": "wsd", **cooldown}
        if whole.schedule == "cosine":
            return {**schedule, "stop": last}
        if whole.cooldown is not None:
            length = self.timeline.steps(whole.cooldown)
            return {**schedule, "start": last - length, "length": length, "shape": whole.shape}
        return schedule

    @cache
    def average(self, average: str) -> Job:
        """Averages of checkpoints."""
        settings = self.config.runs.averages[average]
        config: dict[str, Any] = {"steps": self.timeline.measured_steps(average)}
        if isinstance(settings, Lawa):
            every = self.timeline.steps(settings.every)
            config |= {"kind": "lawa", "every": every, "window": settings.window}
            inputs = {"trajectory": [self.trajectory(settings.trajectory).manifest]}
        else:
            config |= {"kind": "line"}
            ends = {"start": settings.start, "end": settings.end}
            inputs = {label: [self.trajectory(name).manifest] for label, name in ends.items()}
        return Job(
            "trajectories.average", average, f"{self.results}/average/{average}", inputs, config
        )

    def trajectory(self, name: str) -> Job:
        """The job that makes a trajectory, whatever its kind."""
        return self.average(name) if name in self.config.runs.averages else self.train(name)
